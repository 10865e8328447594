"""Find the unbounded backward as-of join of a program, and the rows a time slice needs from before its start.

    ~a2 = ~in0 as of ~in1 on k   →  Carry(left="trades", right="quotes", keys=(("k", "k"),), where=None)

Such a join needs the last right sample of each key before the slice, and nothing else from before it. A task reads
back only until it has found those samples for the keys of its left rows.

This analysis does not change the program.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.analysis.predicates import then
from penstock.analysis.substitution import Definitions, definitions, inlined
from penstock.expr.nodes import Column, Expr
from penstock.ir.joins import Asof
from penstock.ir.nodes import Input, Program, Samples
from penstock.types.arrow import kind_of

# Key types for which Arrow's equality agrees with ours. Floats are excluded: -0.0 equals 0.0 here.
_EXACT = frozenset({"bool", "int", "uint", "date", "timestamp", "string"})


@dataclass(frozen=True, slots=True)
class Carry:
    """Two streams, the pairs of columns that are the join keys, and a predicate on the right rows."""

    left: str
    right: str
    keys: tuple[tuple[str, str], ...]
    where: Expr | None


@dataclass(frozen=True, slots=True)
class _Side:
    """One join input traced to its stream: the join's columns over the stream's columns, and the row filter."""

    stream: str
    schema: pa.Schema
    columns: Definitions
    where: Expr | None


def carry_in(program: Program) -> Carry | None:
    """Return the carried-in rows of a program's slices; None unless they are the last rows of one stream per key."""
    joins = [obj.body for obj in program.objects if isinstance(obj.body, Asof) and _unbounded(obj.body)]
    if len(joins) != 1 or not joins[0].on:
        return None
    left, right = _side(program, joins[0].left), _side(program, joins[0].right)
    if left is None or right is None:
        return None
    keys = [_key(left, right, pair) for pair in joins[0].on]
    known = tuple(key for key in keys if key is not None)
    return Carry(left.stream, right.stream, known, right.where) if len(known) == len(keys) else None


def without_carry(program: Program) -> Program:
    """Return the program with tolerance 0 in that join, to measure the reach of the remaining objects."""
    changed = tuple(
        replace(obj, body=replace(obj.body, tolerance=0))
        if isinstance(obj.body, Asof) and _unbounded(obj.body)
        else obj
        for obj in program.objects
    )
    return replace(program, objects=changed)


def _unbounded(join: Asof) -> bool:
    return join.tolerance is None and join.direction == "backward"


def _side(program: Program, name: str) -> _Side | None:
    """Trace an object back to the rows of one input with unchanged times; None if that is impossible."""
    this = program[name]
    match this.body:
        case Input(stream=stream) if not this.time.implied:
            columns: Definitions = {name: Column(name) for name in this.schema.names}
            return _Side(stream, this.schema, columns, None)
        case Samples(source=source, where=where, fields=fields):
            below = _side(program, source)
            clock = next((field.expr for field in fields if field.name == this.time.column), None)
            if below is None or clock not in {None, Column(program[source].time.column)}:
                return None
            made = {name: inlined(expr, below.columns) for name, expr in definitions(fields).items()}
            known = {name: expr for name, expr in made.items() if expr is not None}
            return replace(
                below, columns=known, where=then(below.where, inlined(where, below.columns), total=False)
            )
        case _:
            return None


def _key(left: _Side, right: _Side, pair: tuple[str, str]) -> tuple[str, str] | None:
    """Return the input columns of a key; None if it is computed, or its types differ or do not compare exactly."""
    match left.columns.get(pair[0]), right.columns.get(pair[1]):
        case Column(name=one), Column(name=other):
            types = left.schema.field(one).type, right.schema.field(other).type
            return (one, other) if types[0] == types[1] and kind_of(types[0]) in _EXACT else None
        case _:
            return None
