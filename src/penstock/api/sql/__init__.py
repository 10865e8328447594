"""Streaming SQL: translates text to the logical plan of the fluent API. There is no separate engine.

    text     ::= select, with WITH, sub-queries in FROM, UNION ALL; a leading "(query) as R" (SABER) is read as WITH
    source   ::= name [window] [AS alias]
    window   ::= "[" RANGE (length [SLIDE length] | UNBOUNDED) "]"
               | "[" [PARTITION BY name, …] ROWS count [SLIDE count] "]"
               | "[" SESSION length "]"
    length   ::= number                          seconds; ticks if time has no unit
               | number unit | 'text' | INTERVAL …

One step per file: `parse.py` (text → syntax tree and window clauses), `scope.py` (name resolution), `expressions.py`
with the catalogues `scalars.py` and `aggregates.py`, `sources.py`, `join_conditions.py` and `joins.py` (FROM),
`group_by.py` and `select.py` (the rest of a SELECT), `query.py` (the entry point). Only this package imports sqlglot;
it accepts only the syntax nodes named here and raises `SqlError` for all others.
"""
