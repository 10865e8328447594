"""Make signals from the rows of a stream."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.api.bind import flat, row_fields
from penstock.api.expr import Expr, column_or_node
from penstock.api.signals.graph import refuse_clash, refuse_taken, sampled
from penstock.api.signals.signal import Signal
from penstock.api.stream import Stream
from penstock.api.windowed import keyed
from penstock.errors import ExpressionTypeError, PenstockError, SchemaMismatchError, SignalError, WindowError
from penstock.expr.aggregates import AGGREGATES
from penstock.expr.nodes import Aggregate, Cast, Column, Field
from penstock.expr.typing import column_type, type_of
from penstock.ir.signals.nodes import DURATION, START, VALUE, Hold, Sampled
from penstock.plan.nodes import Plan
from penstock.plan.schema import schema_of, time_of
from penstock.types.choices import one_of
from penstock.types.duration import Duration, to_ticks
from penstock.types.time import Time

RESOLVES = ("first", "last", "sum", "mean", "min", "max")
_INCOMPARABLE = (pa.null(), pa.month_day_nano_interval())


def signal(
    stream: Stream,
    values: object,
    by: object,
    lasting: Duration | None,
    interval: str | Sequence[str] | None,
    resolve: str | None,
) -> Signal:
    """Make a signal of a stream's rows, checking the arguments against its columns and time."""
    plan, keys = keyed(stream.raw_plan, by)
    plan, until = _between(plan, interval)
    schema, time = schema_of(plan), time_of(plan)
    if time.column not in schema.names:
        raise WindowError(
            "these rows have no time any more, it was dropped; keep the time column to make a signal"
        )
    fields = _fields(values, schema, time)
    fields = _wide(fields, schema, resolve)
    typed = _typed(fields, schema)
    _refuse_nested(typed)
    refuse_clash([*keys, DURATION], typed.names)
    refuse_taken(keys)
    hold = Hold(_lasting(lasting, interval, time), until, resolve)
    own = stream if plan is stream.raw_plan else stream.derived(plan)
    body = Sampled(f"stream {id(own.raw_plan)}", keys, fields, hold)
    key_schema = pa.schema([pa.field(name, column_type(name, schema)) for name in keys])
    return Signal(*sampled(own, body, typed, key_schema, Time(START, time.type, time.unit)))


def _fields(values: object, schema: pa.Schema, time: Time) -> tuple[Field, ...]:
    """Resolve the values; a single one is named `value`, several keep their names."""
    several = flat([values])
    if not several:
        raise ExpressionTypeError("a signal needs a column or an expression for its value")
    if len(several) == 1 and not isinstance(values, list | tuple):
        node = column_or_node(several[0])
        return row_fields((), {VALUE: Expr(node)}, schema, time, "signal")
    return row_fields(several, {}, schema, time, "signal")


def _refuse_nested(values: pa.Schema) -> None:
    """Reject types whose values cannot be compared for changes."""
    for value in values:
        other = value.type in _INCOMPARABLE or isinstance(value.type, pa.BaseExtensionType)
        if other or pa.types.is_nested(value.type):
            raise ExpressionTypeError(
                f"a signal cannot have the value {value.name!r} of type {value.type}; take a number, text or time out of it first"
            )


def _between(plan: Plan, interval: str | Sequence[str] | None) -> tuple[Plan, str | None]:
    """Resolve interval= to the time column of samples, and the column of their ends."""
    if interval is None:
        return plan, None
    schema, time = schema_of(plan), time_of(plan)
    if isinstance(interval, str):
        interval = (time.column, interval)
    if not isinstance(interval, Sequence) or len(interval) != 2:
        raise SignalError(f"interval= names two columns, such as ('start', 'end'), not {interval!r}")
    start, end = interval
    for name in (start, end):
        if column_type(name, schema) != time.type:
            raise SchemaMismatchError(
                f"interval= names {name!r}, of type {column_type(name, schema)}; it must be {time.type}, "
                f"as the time column {time.column!r} is"
            )
    if start != time.column:
        raise SignalError(
            f"interval= begins with {start!r}, but the time of these rows is {time.column!r}; "
            f"declare the stream with time={start!r}"
        )
    return plan, end


def _lasting(lasting: Duration | None, interval: object, time: Time) -> int | None:
    if lasting is None:
        return None
    if interval is not None:
        raise SignalError("a sample holds for lasting= or between the columns of interval=; give one of them")
    ticks = to_ticks(lasting, time, "lasting=")
    if ticks <= 0:
        raise WindowError(f"lasting= is {lasting!r}; it must be longer than zero")
    return ticks


def _typed(fields: tuple[Field, ...], schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(column.name, type_of(column.expr, schema)) for column in fields])


def _wide(fields: tuple[Field, ...], schema: pa.Schema, resolve: str | None) -> tuple[Field, ...]:
    """Cast values to the result type of `resolve`: sums are 64 bits wide, means are floats."""
    if resolve is None:
        return fields
    if not one_of(resolve, RESOLVES):
        raise SignalError(f"resolve is {resolve!r}; it is one of {', '.join(map(repr, RESOLVES))}")
    values = _typed(fields, schema)
    made = [_resolved(resolve, column.name, values) for column in fields]
    return tuple(
        column if dtype == values.field(column.name).type else Field(column.name, Cast(column.expr, dtype))
        for column, dtype in zip(fields, made, strict=True)
    )


def _resolved(resolve: str, name: str, values: pa.Schema) -> pa.DataType:
    options = tuple(sorted(AGGREGATES[resolve].settings(()).items()))
    try:
        return type_of(Aggregate(resolve, (Column(name),), None, options), values)
    except PenstockError as error:
        raise SignalError(f"resolve={resolve!r} does not fit {name!r}: {error}") from error
