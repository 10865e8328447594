"""Find expressions to partition the inputs by, so that the query runs on each partition independently.

    ~w1 = … over ~in0 by a, b    ~b2 = … look back over ~w1 by b   →  {"in0": (b,)}

Every object that combines samples does so within its keys. The keys common to all such objects, traced back to
expressions over each input, partition the query: its result is the union of the partitions' results. If there are
no common keys, the analysis returns the reason as text.

This analysis does not change the program.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from penstock.expr.nodes import Column, Expr, Field, columns_of, has_aggregate, substitute, walk
from penstock.expr.nodes import Reduced as ReducedExpr
from penstock.ir import nodes as ir
from penstock.ir.nodes import (
    Apply,
    Asof,
    Attach,
    Body,
    Distinct,
    Input,
    Join,
    Lookback,
    Merge,
    Object,
    Program,
    Reduce,
    RollingJoin,
    Samples,
    Signals,
    Table,
    Top,
)
from penstock.ir.signals.nodes import Sampled
from penstock.types.arrow import kind_of, value_type
from penstock.types.windows import (
    WINDOW_BOUNDS,
    Calendar,
    InWindow,
    Lookup,
    TimeWindow,
    Unbounded,
    Within,
    left_column,
    right_column,
)

# Per input of an object: the object's columns as expressions over the input's columns.
Origin = dict[str, dict[str, Expr]]
# One key as an expression over each input.
Key = frozenset[tuple[str, Expr]]
TICKING = frozenset({"timestamp", "date", "duration"})


@dataclass(frozen=True, slots=True)
class Undivided:
    """The reason why the inputs cannot be partitioned."""

    reason: str


def partition_keys(program: Program) -> Mapping[str, tuple[Expr, ...]] | Undivided:
    """Return for each input its partition expressions, in the same order for all inputs."""
    inputs = frozenset(obj.name for obj in program.objects if isinstance(obj.body, Input))
    common = _common(program)
    if isinstance(common, Undivided):
        return common
    ordered = sorted((dict(key) for key in common), key=repr)
    if any(key.keys() != inputs for key in ordered):
        return Undivided("the streams are not divided by the same keys")
    return {name: tuple(key[name] for key in ordered) for name in sorted(inputs)}


def key_places(program: Program, name: str) -> tuple[int, ...]:
    """Return the positions of a window's keys that are common to all objects; empty if none are."""
    common = _common(program)
    body = program[name].body
    if isinstance(common, Undivided) or not isinstance(body, Reduce):
        return ()
    origin = _origins(program)[body.source]
    traced = [_key(key.expr, origin) for key in body.keys]
    return tuple(place for place, key in enumerate(traced) if key in common)


def _common(program: Program) -> frozenset[Key] | Undivided:
    """Return the keys shared by all objects that combine samples."""
    origins = _origins(program)
    common: frozenset[Key] | None = None
    for obj in program.objects:
        found = _keys_of(obj, program, origins)
        if isinstance(found, Undivided):
            return found
        if found is not None:
            common = found if common is None else common & found
    if not common:
        return Undivided("no key is common to all windows" if common is not None else "there are no windows")
    return common


def _keys_of(
    this: Object, program: Program, origins: Mapping[str, Origin]
) -> frozenset[Key] | Undivided | None:
    """Return the keys within which an object combines samples; None if it processes each sample separately."""
    match this.body:
        case Input() | Samples() | Merge() | Table():
            return None
        case Join(pairing=Lookup()) as body:
            return None if looks_up(body) else Undivided(f"~{this.name} gives rows of a table, each once")
        case Join(pairing=InWindow(left=Unbounded())):
            return Undivided(f"~{this.name} is one window for all keys")
        case (
            Join(left=left, right=right) | Asof(left=left, right=right) | RollingJoin(left=left, right=right)
        ):
            return _pair_keys(this, program[left], program[right], origins)
        case Reduce(domain=Unbounded()) | Attach(domain=Unbounded()) | Apply(domain=Unbounded()):
            return Undivided(f"~{this.name} is one window for all keys")
        case Reduce(source=source, keys=keys) | Attach(source=source, keys=keys):
            return _named(this, keys, origins[source])
        case Lookback(source=source, keys=keys) | Apply(source=source, keys=keys):
            return _named(this, keys, origins[source])
        case Distinct(source=source, subset=subset):
            return _named(this, [Field(name, Column(name)) for name in subset], origins[source])
        case Signals() as body:
            return _signal_keys(this, body, origins)
        case Top():
            return Undivided(f"~{this.name} compares all rows of a window")
        case body:
            return Undivided(f"~{this.name} ({type(body).__name__.lower()}) is not known to keep keys apart")


def _named(this: Object, keys: Iterable[Field], origin: Origin) -> frozenset[Key] | Undivided:
    fields = tuple(keys)
    if not fields:
        return Undivided(f"~{this.name} has no keys")
    known = frozenset(key for field in fields if (key := _key(field.expr, origin)) is not None)
    return known or Undivided(f"the keys of ~{this.name} are results of windows")


def _pair_keys(
    this: Object, left: Object, right: Object, origins: Mapping[str, Origin]
) -> frozenset[Key] | Undivided:
    """Return the equality keys of a join; types of both sides must hash alike."""
    assert isinstance(this.body, Join | Asof | RollingJoin)
    found: set[Key] = set()
    for one, other in this.body.on:
        if hash_alike(left.schema.field(one).type, right.schema.field(other).type):
            sides = _key(Column(one), origins[left.name]), _key(Column(other), origins[right.name])
            found |= {_both(*sides)} if None not in sides else set()
    return frozenset(found - {frozenset()}) or Undivided(f"~{this.name} has no keys that divide both sides")


def _both(one: Key | None, other: Key | None) -> Key:
    """Combine the keys of two sides; a stream on both sides must have the same key on both."""
    whole = (one or frozenset()) | (other or frozenset())
    return whole if len({name for name, _ in whole}) == len(whole) else frozenset()


def hash_alike(one: pa.DataType, other: pa.DataType) -> bool:
    """Return whether equal values of two types have the same hash; times are hashed as ticks of their unit."""
    kinds = kind_of(one), kind_of(other)
    if kinds[0] in TICKING or kinds[1] in TICKING:
        return bool(value_type(one) == value_type(other))
    return kinds[0] == kinds[1] or set(kinds) == {"int", "uint"}


def looks_up(body: Body) -> bool:
    """Return whether a join looks up each stream row in a table, and emits no unmatched table rows."""
    match body:
        case Join(pairing=Lookup(table=1), how="inner" | "left" | "semi" | "anti"):
            return True
        case Join(pairing=Lookup(table=0), how="inner" | "right"):
            return True
        case _:
            return False


def _signal_keys(this: Object, body: Signals, origins: Mapping[str, Origin]) -> frozenset[Key] | Undivided:
    if not body.program.keys.names:
        return Undivided(f"~{this.name} is a signal without keys")
    found = _sampled(body, origins)
    whole = [{name: columns.get(key) for name, columns in found.items()} for key in body.program.keys.names]
    known = frozenset(
        frozenset((name, expr) for name, expr in node.items() if expr is not None)
        for node in whole
        if None not in node.values()
    )
    return known or Undivided(f"the keys of ~{this.name} are results of windows")


def _sampled(body: Signals, origins: Mapping[str, Origin]) -> Origin:
    """Trace the keys of a signal's result into every sampled stream."""
    ways: list[Origin] = []
    for obj in body.program.objects:
        if isinstance(obj.body, Sampled):
            origin = origins[body.sources[int(obj.body.input)]]
            fields = [
                Field(key, Column(name))
                for key, name in zip(body.program.keys.names, obj.body.keys, strict=True)
            ]
            ways.append(_through(fields, origin))
    return _merged(ways)


def _key(expr: Expr, origin: Origin) -> Key | None:
    traced = {name: _traced(expr, columns) for name, columns in origin.items()}
    return (
        None
        if None in traced.values()
        else frozenset((name, node) for name, node in traced.items() if node is not None)
    )


# --- origins of columns -------------------------------------------------------------------------------------


def _origins(program: Program) -> dict[str, Origin]:
    found: dict[str, Origin] = {}
    for obj in program.objects:
        found[obj.name] = _origin(obj, obj.body, found)
    return found


def _origin(this: Object, body: Body, found: Mapping[str, Origin]) -> Origin:
    match body:
        case Input():
            return {this.name: {name: Column(name) for name in this.schema.names}}
        case Merge(sources=sources):
            return _merged([found[name] for name in sources])
        case Samples(source=source, fields=fields):
            return _through(fields, found[source])
        case Reduce(source=source, keys=keys, fields=fields):
            return _through(fields, _through(keys, found[source]))
        case Attach(source=source, fields=fields) | Lookback(source=source, fields=fields):
            return _through(fields, _without_bounds(found[source]))
        case Apply(source=source, keys=keys):
            return _through(keys, found[source])
        case Signals() as body:
            return _sampled(body, found)
        case Join(fields=fields) | Asof(fields=fields):
            return _through(fields, _of_pairs(body, found))
        case RollingJoin(left=left, right=right, on=on, fields=fields):
            pairs = [Field(one, Column(other)) for one, other in on]
            return _through(fields, _merged([found[left], _through(pairs, found[right])]))
        case Distinct(source=source) | Top(source=source):
            return found[source]
        case _:
            return {}


def _of_pairs(body: Join | Asof, found: Mapping[str, Origin]) -> Origin:
    """Trace the columns of a pair; where the left sample is missing, its keys are the right sample's."""
    left = {
        name: {left_column(column): expr for column, expr in columns.items()}
        for name, columns in found[body.left].items()
    }
    right = {
        name: {right_column(column): expr for column, expr in columns.items()}
        | {left_column(one): columns[other] for one, other in body.on if other in columns}
        for name, columns in found[body.right].items()
    }
    return _merged([left, right])


def _merged(several: Iterable[Origin]) -> Origin:
    """Merge origins; for an input with several paths, keep only the columns that are equal on all paths."""
    merged: Origin = {}
    for origin in several:
        for name, columns in origin.items():
            before = merged.setdefault(name, columns)
            merged[name] = {column: expr for column, expr in before.items() if columns.get(column) == expr}
    return merged


def _through(fields: Iterable[Field], origin: Origin) -> Origin:
    made = tuple(fields)
    return {
        name: {field.name: expr for field in made if (expr := _traced(field.expr, columns)) is not None}
        for name, columns in origin.items()
    }


def _without_bounds(origin: Origin) -> Origin:
    """Drop columns that the window bounds shadow."""
    return {
        name: {column: expr for column, expr in columns.items() if column not in WINDOW_BOUNDS}
        for name, columns in origin.items()
    }


def _traced(expr: Expr, columns: Mapping[str, Expr]) -> Expr | None:
    """Express an expression over an input's columns; None if it reads anything else."""
    made = any(isinstance(node, ReducedExpr) for node in walk(expr)) or has_aggregate(expr)
    if made or not columns_of(expr) <= columns.keys() or not columns_of(expr):
        return None
    return substitute(expr, dict(columns))


# --- Find the streams whose rows may be distributed over tasks arbitrarily if the other stream is replicated.
#
# A left row of a join matches right rows only, so any task that has all right rows can process it. The rows of a very
# frequent key therefore need not all go to one task (the join-matrix: left rows once, right rows everywhere). This
# holds for joins whose result for a left row depends on no other left row, and only if all operators before and after
# the join process rows one by one.
#
# This analysis does not change the program.


def spreadable(program: ir.Program) -> tuple[str, ...]:
    """Return the names of the streams, the left one first; empty if the query does not allow this."""
    joins = [obj for obj in program.objects if not _row_by_row(obj.body)]
    if len(joins) != 1:
        return ()
    body = joins[0].body
    if not (isinstance(body, Join | Asof | RollingJoin) and _left_rows_alone(body)):
        return ()
    streams = [_stream(name, program) for name in (body.left, body.right)]
    if None in streams or streams[0] == streams[1]:
        return ()
    both = isinstance(body, Join) and body.how == "inner"
    return tuple(stream for stream in streams[: 2 if both else 1] if stream is not None)


def _row_by_row(body: ir.Body) -> bool:
    lookup = isinstance(body, Join) and isinstance(body.pairing, Lookup) and looks_up(body)
    return lookup or isinstance(body, ir.Input | ir.Samples | Table)


def _left_rows_alone(body: Join | Asof | RollingJoin) -> bool:
    """Return whether the result for a left row is independent of other left rows; not so in sessions and unbounded windows."""
    match body:
        case Join(
            pairing=InWindow(left=TimeWindow() | Calendar(), right=TimeWindow() | Calendar()) | Within()
        ):
            return body.how in ("inner", "left", "semi", "anti")
        case Asof() | RollingJoin():
            return True
        case _:
            return False


def _stream(name: str, program: ir.Program) -> str | None:
    """Return the one stream that an object's samples come from; None if there are several."""
    body = program[name].body
    if isinstance(body, ir.Input):
        return body.stream
    found = {_stream(source, program) for source in ir.sources_of(body)} - {None}
    return found.pop() if len(found) == 1 else None
