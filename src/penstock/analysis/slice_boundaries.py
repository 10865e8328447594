"""Find what tasks exchange at slice boundaries where a halo of fixed time does not suffice.

    ~w1 = … over ~in0 by k in sessions of 10   →  Sessions(gap=10, keys=("k",), exact=True)
    ~w1 = … over ~in0 in windows of 5 rows     →  Counts(size=5, every=5)

* The end of a session is not known at planning time. The task whose slice contains the start of a session reads on
  until the session ends. Other tasks detect from a halo of one gap that the session is not theirs.
* A count window is identified by its row numbers, which file footers give if no row is filtered out.

This analysis does not change the program.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.analysis.graph import Definitions, definitions, inlined
from penstock.analysis.partition_keys import partition_keys
from penstock.analysis.predicates import then
from penstock.expr.nodes import Column, Expr
from penstock.ir import nodes as ir
from penstock.ir.nodes import Asof, Input, Program, Samples
from penstock.types.arrow import kind_of
from penstock.types.windows import WINDOW_START, Count, Session


@dataclass(frozen=True, slots=True)
class Sessions:
    """Sessions with a gap, keyed by columns of the input. `exact`: every input row belongs to a session."""

    gap: int
    keys: tuple[str, ...]
    exact: bool

    def __str__(self) -> str:
        return "as far as sessions go on that start there"


@dataclass(frozen=True, slots=True)
class Counts:
    """Windows of `size` rows, over all rows of the input."""

    size: int
    every: int

    def __str__(self) -> str:
        return f"{self.size - 1} rows before their last"


def slice_borders(program: ir.Program) -> Sessions | Counts | None:
    """Return the boundary requirement of a program; None if it is neither sessions nor counts."""
    output = program[program.output]
    if not isinstance(output.body, ir.Reduce) or not _plain(program, output.body.source):
        return None
    everything = output.body.where is None and _keeps_all(program, output.body.source)
    match output.body:
        case ir.Reduce(domain=Session(gap=gap), keys=keys) if WINDOW_START in output.schema.names:
            columns = _columns(program) if keys else ()
            return None if columns is None else Sessions(gap, columns, everything)
        case ir.Reduce(domain=Count(size=size, every=every), keys=(), having=None) if everything:
            return Counts(size, every)
        case _:
            return None


def _columns(program: ir.Program) -> tuple[str, ...] | None:
    """Return the key columns; None if a key is computed."""
    found = partition_keys(program)
    body = program[program.output].body
    if not isinstance(found, dict) or not isinstance(body, ir.Reduce):
        return None
    (keys,) = found.values()
    names = tuple(key.name for key in keys if isinstance(key, Column))
    return names if len(names) == len(body.keys) else None


def _plain(program: ir.Program, name: str) -> bool:
    """Return whether an object's rows are those of one input, with unchanged times."""
    this = program[name]
    match this.body:
        case ir.Input():
            return not this.time.implied
        case ir.Samples(source=source, fields=fields):
            clock = next((field.expr for field in fields if field.name == this.time.column), None)
            return clock in {None, Column(program[source].time.column)} and _plain(program, source)
        case _:
            return False


def _keeps_all(program: ir.Program, name: str) -> bool:
    match program[name].body:
        case ir.Samples(source=source, where=where):
            return where is None and _keeps_all(program, source)
        case _:
            return True


# --- Find the unbounded backward as-of join of a program, and the rows a time slice needs from before its start.
#
#     ~a2 = ~in0 as of ~in1 on k   →  Carry(left="trades", right="quotes", keys=(("k", "k"),), where=None)
#
# Such a join needs the last right sample of each key before the slice, and nothing else from before it. A task reads
# back only until it has found those samples for the keys of its left rows.
#
# This analysis does not change the program.

# Key types for which Arrow's equality agrees with ours. Floats are excluded: -0.0 equals 0.0 here.
_EXACT = frozenset({"bool", "int", "uint", "date", "timestamp", "string"})


@dataclass(frozen=True, slots=True)
class Carry:
    """Two streams, the pairs of columns that are the join keys, if any, and a predicate on the right rows."""

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
    if len(joins) != 1:
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
