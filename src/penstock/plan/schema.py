"""The schema and the time of a plan's result."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa

from penstock.expr.nodes import Column, Field
from penstock.expr.typing import column_type, type_of
from penstock.plan.join_schema import Side, join_schema, join_time
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
from penstock.types.pairing import LEFT_ROW_KINDS, InWindow, Lookup
from penstock.types.time import TIMELESS, Time
from penstock.types.windows import WINDOW_END, WINDOW_START


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
            added = [each for fields in spans for each in typed(fields, before)]
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


def side_of(plan: Plan) -> Side:
    """Return an input's schema and time, for the join rules."""
    return Side(schema_of(plan), time_of(plan))


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
    return [each for each in ordered(plan) if not inputs(each)]
