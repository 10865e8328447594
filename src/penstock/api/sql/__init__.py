"""Streaming SQL: text in, the plan of the fluent API out. There is no second engine behind it.

    text     ::= select, with WITH, sub-queries in FROM, UNION ALL; SABER's "(query) as R" in front counts as WITH
    source   ::= name [window] [AS alias]
    window   ::= "[" RANGE (length [SLIDE length] | UNBOUNDED) "]"
               | "[" [PARTITION BY name, …] ROWS count [SLIDE count] "]"
               | "[" SESSION length "]"
    length   ::= number                          seconds; ticks where time has no unit
               | number unit | 'text' | INTERVAL …

One step a file: `reading.py` (text → syntax tree and window clauses), `scope.py` (what names mean), `expressions.py`
with the catalogues `scalars.py` and `aggregates.py`, `sources.py`, `meeting.py` and `joins.py` (FROM), `grouping.py` and `selecting.py`
(the rest of a SELECT), `query.py` (the door). Only this package imports sqlglot, and of its tree only nodes
that are named here are taken: every other one is a `SqlError`.
"""
