"""Find what tasks exchange at slice boundaries where a halo of fixed time does not suffice.

    ~w1 = … over ~in0 by k in sessions of 10   →  Sessions(gap=10, keys=("k",), exact=True)
    ~w1 = … over ~in0 in windows of 5 rows     →  Counts(size=5, every=5)

* The end of a session is not known at planning time. The task whose slice contains the start of a session reads on
  until the session ends. Other tasks detect from a halo of one gap that the session is not theirs.
* A count window is identified by its row numbers, which file footers give if no row is filtered out.

This analysis does not change the program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.analysis.graph import Definitions, definitions, inlined
from penstock.analysis.partition_keys import partition_keys
from penstock.analysis.predicates import then
from penstock.expr.nodes import Cast, Column, Expr
from penstock.ir import nodes as ir
from penstock.ir.nodes import Asof, Input, Program, Samples
from penstock.ir.signals import nodes as temporal
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
    """Windows of `size` rows, over all rows of the input; for look-backs of rows, windows of one row that read `more` before."""

    size: int
    every: int
    more: int = 0

    @property
    def past(self) -> int:
        """The number of rows before the last one of a window that its result needs."""
        return self.size - 1 + self.more

    def __str__(self) -> str:
        return f"{self.past} rows before their last"


def slice_borders(program: ir.Program) -> Sessions | Counts | None:
    """Return the boundary requirement of a program; None if it is neither sessions nor counts."""
    output = program[program.output]
    if not isinstance(output.body, ir.Reduce | ir.Lookback) or not _plain(program, output.body.source):
        return None
    everything = output.body.where is None and _keeps_all(program, output.body.source)
    implied = _implied(program, output.body.source)
    match output.body:
        case ir.Lookback(spans=spans, keys=()) if everything and not implied:
            counts = [span.rows for span in spans if span.rows is not None and not span.delay]
            return Counts(1, 1, max(counts)) if len(counts) == len(spans) else None
        case ir.Reduce(domain=Session(gap=gap), keys=keys) if WINDOW_START in output.schema.names:
            if implied:
                return None
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
            return True
        case ir.Samples(source=source, fields=fields):
            clock = next((field.expr for field in fields if field.name == this.time.column), None)
            return clock in {None, Column(program[source].time.column)} and _plain(program, source)
        case _:
            return False


def _implied(program: Program, name: str) -> bool:
    """Return whether the times of a plain object's input follow from row numbers."""
    this = program[name]
    return _implied(program, this.body.source) if isinstance(this.body, ir.Samples) else this.time.implied


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


def _side(program: Program, name: str, implied: bool = False) -> _Side | None:
    """Trace an object back to the rows of one input with unchanged times; None if that is impossible."""
    this = program[name]
    match this.body:
        case Input(stream=stream) if implied or not this.time.implied:
            columns: Definitions = {name: Column(name) for name in this.schema.names}
            return _Side(stream, this.schema, columns, None)
        case Samples(source=source, where=where, fields=fields):
            below = _side(program, source, implied)
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


# --- Find the streams whose samples hold over the bounds of slices, where each row is a sample.
#
#     ~i1 = signals over ~in0: v[t] - v[t - 1s]   →  Held(objects={"i1"}, streams=("trades",), valued={})
#
# The last sample before a slice and the first one after it are in the nearest row groups with a row before and after,
# as footers say. Without keys, and if no row is filtered out, nothing else from outside the slice and its halo matters.
#
# This analysis does not change the program.


@dataclass(frozen=True, slots=True)
class Held:
    """The objects that read held samples, their streams, and the columns of streams that may not be null."""

    objects: frozenset[str]
    streams: tuple[str, ...]
    valued: tuple[tuple[str, str], ...] = ()


def held_samples(program: Program) -> Held | None:
    """Return what is held over the bounds of a program's slices; None if nothing is, or if it is not in the nearest rows."""
    holding = {obj.name: _holds(program, obj.body) for obj in program.objects if _may_hold(obj.body)}
    known = [found for found in holding.values() if found is not None]
    if not known or len(known) < len(holding):
        return None
    streams = dict.fromkeys(stream for streams, _ in known for stream in streams)
    valued = dict.fromkeys(column for _, columns in known for column in columns)
    return Held(frozenset(holding), tuple(streams), tuple(valued))


_Holding = tuple[list[str], list[tuple[str, str]]]


def _may_hold(body: ir.Body) -> bool:
    return isinstance(body, ir.Signals) or (
        isinstance(body, Asof) and body.tolerance is None and body.direction != "backward"
    )


def _holds(program: Program, body: ir.Body) -> _Holding | None:
    match body:
        case ir.Signals():
            return _signals_hold(program, body)
        case Asof(right=right, on=()):
            side = _side(program, right, implied=True)
            return None if side is None or side.where is not None else ([side.stream], [])
        case _:
            return None


def _signals_hold(program: Program, body: ir.Signals) -> _Holding | None:
    """Return the streams of a signal without keys, and the columns whose samples are interpolated."""
    if body.program.keys.names or not body.program.pieces:
        return None
    sides = {name: _side(program, name, implied=True) for name in body.sources}
    if any(side is None or side.where is not None for side in sides.values()):
        return None
    columns: list[tuple[str, str]] = []
    for obj in body.program.objects:
        match obj.body:
            case temporal.Sampled(hold=temporal.Hold(until=None)) | temporal.Expression():
                continue
            case temporal.Chop(marks=None):
                continue
            case temporal.Resample(source=name):
                found = _valued(body, name, sides)
                if found is None:
                    return None
                columns += found
            case _:
                return None
    return [side.stream for side in sides.values() if side is not None], columns


def _valued(body: ir.Signals, name: str, sides: Mapping[str, _Side | None]) -> list[tuple[str, str]] | None:
    """Return the columns of a stream that a signal has as its value, perhaps in another type; None if it is computed."""
    match body.program[name].body:
        case temporal.Sampled(input=place, fields=fields):
            side = sides[body.sources[int(place)]]
            assert side is not None
            found = [side.columns.get(field.expr.name) for field in fields if isinstance(field.expr, Column)]
            names = [column.name for column in found if isinstance(column, Column)]
            return [(side.stream, name) for name in names] if len(names) == len(fields) else None
        case temporal.Expression(accesses=(access,), reductions=(), fields=fields):
            plain = all(isinstance(_uncast(field.expr), Column) for field in fields)
            return _valued(body, access.source, sides) if plain else None
        case _:
            return None


def _uncast(expr: Expr) -> Expr:
    return _uncast(expr.arg) if isinstance(expr, Cast) else expr
