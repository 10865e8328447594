"""The schema and the time of a plan's result."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.expr.nodes import Column, Field, split_aggregates
from penstock.expr.typing import column_type, type_of
from penstock.plan.nodes import (
    Aggregate,
    Apply,
    AsofJoin,
    Attach,
    Distinct,
    Filter,
    Intervals,
    Join,
    Lookback,
    Plan,
    Project,
    RollingJoin,
    Source,
    Table,
    TopK,
    Union,
    fact,
    inputs,
    ordered,
)
from penstock.types.arrow import value_type
from penstock.types.time import TIMELESS, Time
from penstock.types.windows import (
    JOIN_TIME,
    LEFT_ROW_KINDS,
    WINDOW_BOUNDS,
    WINDOW_END,
    WINDOW_START,
    InWindow,
    Lookup,
    left_column,
    right_column,
)

# --- The schema and the time of a join's result, and the columns that a predicate over pairs may reference.


@dataclass(frozen=True, slots=True)
class JoinInput:
    """One input of a join: its schema and its time."""

    schema: pa.Schema
    time: Time


@dataclass(frozen=True, slots=True)
class PairColumn:
    """A column of the result, and its name in the pair of rows."""

    name: str
    of_pair: str
    type: pa.DataType


def pair_schema(left: JoinInput, right: JoinInput) -> pa.Schema:
    """List the columns of a pair of rows: left.x, then right.y."""
    return pa.schema(
        [
            *(pa.field(left_column(column.name), column.type) for column in left.schema),
            *(pa.field(right_column(column.name), column.type) for column in right.schema),
        ]
    )


def join_schema(plan: Join | AsofJoin | RollingJoin, left: JoinInput, right: JoinInput) -> pa.Schema:
    """Return the schema of a join's result."""
    if isinstance(plan, RollingJoin):
        # Aggregates are typed over right columns, the expressions around them over left columns.
        added = [
            pa.field(column.name, rolling_type(plan, column.name, left, right)) for column in plan.fields
        ]
        return pa.schema([*left.schema, *added])
    return pa.schema([pa.field(column.name, column.type) for column in join_columns(plan, left, right)])


def rolling_type(plan: RollingJoin, name: str, left: JoinInput, right: JoinInput) -> pa.DataType:
    """Return the type of a field of a rolling join."""
    expr = next(field.expr for field in plan.fields if field.name == name)
    outer, aggregates = split_aggregates(expr)
    return type_of(outer, left.schema, [type_of(aggregate, right.schema) for aggregate in aggregates])


def join_columns(plan: Join | AsofJoin, left: JoinInput, right: JoinInput) -> list[PairColumn]:
    """List the columns of a result: window bounds, keys, other left columns, right columns, and the later time."""
    whole = [PairColumn(field.name, left_column(field.name), field.type) for field in left.schema]
    if isinstance(plan, AsofJoin):
        return [*whole, *_right_columns(plan, whole, right)]
    if plan.how in LEFT_ROW_KINDS:
        return whole
    own = [PairColumn(name, name, left.time.type) for name in _added(plan)]
    bounds, last = [column for column in own if column.name != JOIN_TIME], own[-1:] if own else []
    keys = [name for name, _ in plan.on]
    taken = {*keys, *(column.name for column in own)}
    first = [column for name in keys for column in whole if column.name == name]
    others = [column for column in whole if column.name not in taken]
    before = [*bounds, *first, *others]
    return [*before, *_right_columns(plan, [*before, *last], right), *last]


def _added(plan: Join) -> tuple[str, ...]:
    """Return the columns that a join adds; they replace those of an earlier join on the left."""
    match plan.pairing:
        case InWindow():
            return (*WINDOW_BOUNDS, JOIN_TIME)
        case Lookup():
            return ()
        case _:
            return (JOIN_TIME,)


def _right_columns(plan: Join | AsofJoin, before: Sequence[PairColumn], right: JoinInput) -> list[PairColumn]:
    """Name the right columns, appending the suffix until the name is unique."""
    keys = {name for _, name in plan.on}
    taken = {column.name for column in before}
    found: list[PairColumn] = []
    for field in right.schema:
        if field.name not in keys:
            name = field.name
            while name in taken:
                name += plan.suffix
            taken.add(name)
            found.append(PairColumn(name, right_column(field.name), field.type))
    return found


def join_time(plan: Join | AsofJoin | RollingJoin, left: JoinInput, right: JoinInput) -> Time:
    """Return the time of a join's result."""
    if not isinstance(plan, Join) or plan.how in LEFT_ROW_KINDS:
        return left.time.stored
    if isinstance(plan.pairing, Lookup):
        return left.time.stored if plan.pairing.table else _right_time(plan, left, right)
    return Time(JOIN_TIME, left.time.type, left.time.unit)


def _right_time(plan: Join, left: JoinInput, right: JoinInput) -> Time:
    """Return the right side's time under its column name in the result."""
    keys = {own: other for other, own in plan.on}
    wanted = (
        left_column(keys[right.time.column]) if right.time.column in keys else right_column(right.time.column)
    )
    name = next(column.name for column in join_columns(plan, left, right) if column.of_pair == wanted)
    return replace(right.time.stored, column=name)


def schema_of(plan: Plan) -> pa.Schema:
    """Return the schema of a plan's result."""
    return fact(plan, "schema", _schema)


def _schema(plan: Plan) -> pa.Schema:
    match plan:
        case Source():
            return source_schema(plan)
        case Table(schema=schema):
            return schema
        case Join() | AsofJoin() | RollingJoin():
            return join_schema(plan, side_of(plan.left), side_of(plan.right))
        case Filter(input=inner) | Distinct(input=inner) | TopK(input=inner):
            return schema_of(inner)
        case Project(input=inner, fields=fields):
            return pa.schema(typed(fields, schema_of(inner)))
        case Union(inputs=several):
            return schema_of(several[0])
        case Aggregate(input=inner, by=by, fields=fields):
            before = scope_of(plan)
            keys = [pa.field(name, column_type(name, before)) for name in by]
            return pa.schema([*bounds(time_of(inner)), *keys, *typed(fields, before)])
        case Lookback(input=inner, by=by, fields=spans, rows=rows):
            before = schema_of(inner)
            kept = before.names if rows else dict.fromkeys([time_of(inner).column, *by])
            added = [field for fields in spans for field in typed(fields, before)]
            return pa.schema([*(before.field(name) for name in kept), *added])
        case Apply(input=inner, by=by, schema=schema):
            keys = [pa.field(name, column_type(name, schema_of(inner))) for name in by]
            return pa.schema([*bounds(time_of(inner)), *keys, *schema])
        case Intervals(program=program):
            return program.schema
        case Attach(input=inner, fields=fields):
            before = schema_of(inner)
            added = [] if WINDOW_START in before.names else bounds(time_of(inner))
            return pa.schema([*before, *added, *typed(fields, scope_of(plan))])


def source_schema(source: Source) -> pa.Schema:
    """Return a stream's columns, with an implied time column first."""
    if not source.time.implied:
        return source.schema
    return pa.schema([pa.field(source.time.column, source.time.type), *source.schema])


def typed(fields: Iterable[Field], schema: pa.Schema) -> list[pa.Field]:
    """Return the typed fields of a node over its input."""
    return [pa.field(column.name, type_of(column.expr, schema)) for column in fields]


def bounds(time: Time) -> list[pa.Field]:
    """Return the two columns with the bounds of a row's window."""
    return [pa.field(WINDOW_START, time.type), pa.field(WINDOW_END, time.type)]


def scope_of(plan: Aggregate | Attach) -> pa.Schema:
    """List the columns that a windowed node's fields may reference: the input's, and the window bounds."""
    before = schema_of(plan.input)
    kept = [field for field in before if field.name not in {WINDOW_START, WINDOW_END}]
    return pa.schema([*kept, *bounds(time_of(plan.input))])


def time_of(plan: Plan) -> Time:
    """Return the time of the rows of a plan's result.

    A window result's time is the last tick of its window: `window_end`, shifted by -1. After the source, an
    implied time is an ordinary column, because a filter may have dropped rows.
    """
    return fact(plan, "time", _time)


def _time(plan: Plan) -> Time:
    match plan:
        case Source(time=time):
            return time
        case Table():
            return TIMELESS
        case Join() | AsofJoin() | RollingJoin():
            return join_time(plan, side_of(plan.left), side_of(plan.right))
        case Filter(input=inner) | Distinct(input=inner) | TopK(input=inner) | Attach(input=inner):
            return time_of(inner).stored
        case Project(input=inner, time=name):
            return replace(time_of(inner).stored, column=name)
        case Union(inputs=several):
            return time_of(several[0]).stored
        case Lookback(input=inner):
            return time_of(inner).stored
        case Aggregate(input=inner) | Apply(input=inner):
            before = time_of(inner)
            return Time(WINDOW_END, before.type, before.unit, shift=-1)
        case Intervals(program=program):
            return program.time


def side_of(plan: Plan) -> JoinInput:
    """Return an input's schema and time, for the join rules."""
    return JoinInput(schema_of(plan), time_of(plan))


def carries_window(plan: Plan) -> bool:
    """Return whether the rows of a plan's result carry the bounds of their window."""
    return fact(plan, "carries_window", _carries_window)


def _carries_window(plan: Plan) -> bool:
    match plan:
        case Aggregate() | Attach() | Apply():
            return True
        case Lookback(input=inner, rows=rows):
            return rows and carries_window(inner)
        case Source() | Table() | Intervals():
            return False
        case Join():
            return _join_carries_window(plan)
        case AsofJoin(left=left) | RollingJoin(left=left):
            return carries_window(left)
        case Union(inputs=several):
            return all(carries_window(reduction) for reduction in several)
        case Project(input=inner, fields=fields):
            untouched = all(Field(name, Column(name)) in fields for name in (WINDOW_START, WINDOW_END))
            return untouched and carries_window(inner)
        case _:
            return carries_window(plan.input)


def _join_carries_window(plan: Join) -> bool:
    """Return whether a join's rows carry a window: between streams, only window joins keep times within it."""
    match plan.pairing:
        case InWindow():
            return plan.how not in LEFT_ROW_KINDS or carries_window(plan.left)
        case Lookup(table=table):
            stream = plan.left if table else plan.right
            return carries_window(stream) and {WINDOW_START, WINDOW_END} <= set(schema_of(plan).names)
        case _:
            return plan.how in LEFT_ROW_KINDS and carries_window(plan.left)


def sequences_of(plan: Plan) -> frozenset[pa.DataType]:
    """Return the types of the sequence columns that order rows of equal time; window and join results have none."""
    return fact(plan, "sequences", _sequences)


def _sequences(plan: Plan) -> frozenset[pa.DataType]:
    match plan:
        case Source(sequence=str() as name, schema=schema):
            return frozenset({value_type(schema.field(name).type)})
        case Filter() | Project() | Union() | Distinct() | Lookback() | TopK():
            return frozenset().union(*(sequences_of(input_) for input_ in inputs(plan)))
        case AsofJoin(left=left) | RollingJoin(left=left):
            return sequences_of(left)
        case _:
            return frozenset()


def sources_of(plan: Plan) -> tuple[Source, ...]:
    """List the streams a plan reads, without duplicates, in plan order."""
    return tuple(leaf for leaf in _leaves(plan) if isinstance(leaf, Source))


def tables_of(plan: Plan) -> tuple[Table, ...]:
    """List the tables a plan reads, without duplicates, in plan order."""
    return tuple(leaf for leaf in _leaves(plan) if isinstance(leaf, Table))


def _leaves(plan: Plan) -> list[Plan]:
    return [node for node in ordered(plan) if not inputs(node)]
