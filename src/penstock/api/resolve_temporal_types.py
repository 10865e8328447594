"""Resolve parts of expressions that depend on column types: units of time, and string concatenation."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from penstock.errors import DurationError, ExpressionTypeError, UnsupportedError
from penstock.expr import nodes
from penstock.expr.nodes import Call, Case, Cast, Column, Expr, Literal
from penstock.expr.rules import INSTANTS, zone_of
from penstock.expr.show import show
from penstock.expr.typing import type_of
from penstock.types.arrow import kind_of, tick_unit, value_type
from penstock.types.duration import calendar_offset, calendar_parts, to_ticks
from penstock.types.time import NANOSECONDS, Time

# --- Date plus duration, and division and scaling of durations, rewritten to integer arithmetic as in Polars.

_Rule = Callable[[Expr, pa.DataType, Expr, pa.DataType], Expr]


def spanned(function: str, args: tuple[Expr, ...], schema: pa.Schema) -> Expr:
    """Rewrite an operation with a date or duration operand; return other operations unchanged.

    A date moves by whole days, the floor of the duration, as in Python. A duration computed with floats is
    truncated, as by a cast.
    """
    call = Call(function, args)
    if len(args) != 2:
        return call
    types = [value_type(type_of(arg, schema)) for arg in args]
    kinds = [kind_of(dtype) for dtype in types]
    rule = _RULES.get((function, *kinds))
    return call if rule is None else rule(args[0], types[0], args[1], types[1])


def _dates_later(date: Expr, of: pa.DataType, span: Expr, dtype: pa.DataType) -> Expr:
    return _moved(date, of, _ticks(span), dtype)


def _earlier(date: Expr, of: pa.DataType, span: Expr, dtype: pa.DataType) -> Expr:
    return _moved(date, of, Call("neg", (_ticks(span),)), dtype)


def _moved(date: Expr, of: pa.DataType, ticks: Expr, dtype: pa.DataType) -> Expr:
    """Compute in days: a date in the unit of the duration may not fit 64 bits."""
    a_day = NANOSECONDS["d"] // NANOSECONDS[tick_unit(dtype) or "s"]
    days = Call("floordiv", (ticks, Literal(a_day, pa.int64())))
    number = _ticks(_cast(date, of, pa.date32()))
    return _cast(Cast(Call("add", (number, days)), pa.date32()), pa.date32(), of)


def _between(a: Expr, first: pa.DataType, b: Expr, second: pa.DataType) -> Expr:
    """Subtract as timestamps in the other operand's unit; in microseconds if both are dates."""
    units = [dtype.unit for dtype in (first, second) if kind_of(dtype) == "timestamp"]
    if any(dtype.tz is not None for dtype in (first, second) if kind_of(dtype) == "timestamp"):
        return Call("sub", (a, b))  # a date has no zone: rejected later
    goal = pa.timestamp(units[0] if units else "us")
    return Call("sub", (_cast(a, first, goal), _cast(b, second, goal)))


def _divided(span: Expr, dtype: pa.DataType, by: Expr, _: pa.DataType) -> Expr:
    return Call("floordiv", (span, by))


def _scaled(span: Expr, dtype: pa.DataType, by: Expr, _: pa.DataType) -> Expr:
    return _whole(Call("mul", (_ticks(span), by)), dtype)


def _shared(span: Expr, dtype: pa.DataType, by: Expr, _: pa.DataType) -> Expr:
    """Divide by a float; division by zero is null, as for integers."""
    zero = Call("eq", (by, Literal(0.0, pa.float64())))
    known = Case(((zero, Literal(None, pa.float64())),), by)
    return _whole(Call("div", (_ticks(span), known)), dtype)


def _whole(ticks: Expr, dtype: pa.DataType) -> Expr:
    return Cast(Cast(ticks, pa.int64()), dtype)


def _ticks(time: Expr) -> Expr:
    return Call("epoch_ticks", (time,))


def _cast(arg: Expr, dtype: pa.DataType, goal: pa.DataType) -> Expr:
    return arg if dtype == goal else Cast(arg, goal)


def _swapped(rule: _Rule) -> _Rule:
    return lambda a, first, b, second: rule(b, second, a, first)


_RULES: dict[tuple[str, ...], _Rule] = {
    ("add", "date", "duration"): _dates_later,
    ("add", "duration", "date"): _swapped(_dates_later),
    ("sub", "date", "duration"): _earlier,
    **{
        ("sub", *kinds): _between
        for kinds in (("date", "date"), ("timestamp", "date"), ("date", "timestamp"))
    },
    ("div", "duration", "int"): _divided,
    ("div", "duration", "uint"): _divided,
    ("mul", "duration", "float"): _scaled,
    ("mul", "float", "duration"): _swapped(_scaled),
    ("div", "duration", "float"): _shared,
}


_UTC = (None, "UTC", "Etc/UTC", "+00:00")
_WHAT = "the duration of truncate"
_ROUND = "the duration of round"
_BY = "the duration of offset_by"
_UNITS = {
    "ns": "nanosecond",
    "us": "microsecond",
    "ms": "millisecond",
    "s": "second",
    "m": "minute",
    "h": "hour",
}
_UNITS |= {"d": "day", "w": "week", "mo": "month"}


def timed(node: nodes.Expr, schema: pa.Schema, time: Time) -> nodes.Expr:
    """Rewrite a node for the types of its arguments."""
    match node:
        case nodes.Call(function="truncate", args=(arg,), options=(("every", every),)):
            return _truncated(arg, every, schema, time)
        case nodes.Call(function="round_time", args=(arg,), options=(("every", every),)):
            return _rounded(arg, every, schema, time)
        case nodes.Call(function="offset_by", args=(arg,), options=(("by", by),)):
            return _offset(arg, by, schema, time)
        case nodes.Call(function="convert_time_zone", args=(arg,), options=(("zone", str(zone)),)):
            return _on_another_clock(arg, value_type(type_of(arg, schema)), zone)
        case nodes.Call(function="cast_time_unit", args=(arg,), options=(("unit", str(unit)),)):
            return _in_another_unit(arg, value_type(type_of(arg, schema)), unit)
        case nodes.Call(function="epoch_ticks", args=(arg,), options=(("unit", str(unit)),)):
            return _since_epoch(arg, unit, value_type(type_of(arg, schema)))
        case nodes.Call(function="add", args=args) if all(_is_text(arg, schema) for arg in args):
            return nodes.Call("concat", args)
        case nodes.Call(function="add" | "sub" | "mul" | "div" as function, args=args):
            return spanned(function, args, schema)
        case _:
            return node


def _is_text(arg: nodes.Expr, schema: pa.Schema) -> bool:
    return kind_of(type_of(arg, schema)) == "string"


def _truncated(arg: nodes.Expr, every: object, schema: pa.Schema, time: Time) -> nodes.Expr:
    """Convert the duration of a truncation to ticks of its argument, or to calendar units."""
    return _floored(arg, every, _clock_of(arg, schema, time), _WHAT)


def _clock_of(arg: nodes.Expr, schema: pa.Schema, time: Time) -> Time:
    dtype = value_type(type_of(arg, schema))
    return time if arg == Column(time.column) else Time(show(arg), dtype, tick_unit(dtype))


def _floored(arg: nodes.Expr, every: object, clock: Time, what: str) -> nodes.Expr:
    dtype = clock.type
    count, unit = calendar_parts(every, what) if kind_of(dtype) in INSTANTS else (0, "")
    by_calendar = unit in ("mo", "w") or (unit and zone_of(dtype) not in _UTC)
    if by_calendar:
        _require_positive(count, every, what)
        _require_short(count, every, what)
    ticks = 1 if unit == "mo" else to_ticks(every, clock, what)
    if by_calendar:
        return nodes.Call("floor_time", (arg,), (("every", count), ("unit", _UNITS[unit])))
    _require_positive(ticks, every, what)
    return nodes.Call("truncate", (arg,), (("every", ticks),))


def _rounded(arg: nodes.Expr, every: object, schema: pa.Schema, time: Time) -> nodes.Expr:
    """Add half a step and truncate: halves round up."""
    clock = _clock_of(arg, schema, time)
    dtype = clock.type
    if kind_of(dtype) not in {*INSTANTS, "duration", "int", "uint"}:
        raise ExpressionTypeError(
            f"round takes a timestamp, date, duration or integer, not {dtype}, in: {show(arg)}"
        )
    if kind_of(dtype) in INSTANTS and calendar_parts(every, _ROUND)[1] == "mo":
        raise DurationError(
            f"{_ROUND} is {every!r}, but months differ in length, so their middle is undefined; "
            "use .dt.truncate, or .dt.month_start"
        )
    ticks = to_ticks(every, clock, _ROUND)
    _require_positive(ticks, every, _ROUND)
    found = _floored(_later(arg, dtype, ticks // 2), every, clock, _ROUND)
    return nodes.Cast(found, dtype) if kind_of(dtype) in ("int", "uint") else found


def _later(arg: nodes.Expr, dtype: pa.DataType, ticks: int) -> nodes.Expr:
    unit = tick_unit(dtype)
    if kind_of(dtype) == "date":
        days = ticks * NANOSECONDS[unit or "d"] // NANOSECONDS["d"]
        return nodes.Call("offset", (arg,), (("days", days), ("months", 0)))
    return nodes.Call("add", (arg, nodes.Literal(ticks, pa.int64() if unit is None else pa.duration(unit))))


def _offset(arg: nodes.Expr, by: object, schema: pa.Schema, time: Time) -> nodes.Expr:
    """Add months and days in local time, then elapsed time."""
    dtype = value_type(type_of(arg, schema))
    if kind_of(dtype) not in INSTANTS:
        raise ExpressionTypeError(f"offset_by takes a timestamp or date, not {dtype}, in: {show(arg)}")
    months, days, rest = calendar_offset(by, _BY)
    clock = time if arg == Column(time.column) else Time(show(arg), dtype, tick_unit(dtype))
    ticks = to_ticks(rest, clock, _BY)
    moved = nodes.Call("offset", (arg,), (("days", days), ("months", months))) if months or days else arg
    unit = tick_unit(dtype) or "s"
    if unit == "d":
        return moved if not ticks else nodes.Call("offset", (moved,), (("days", ticks), ("months", 0)))
    return moved if not ticks else nodes.Call("add", (moved, nodes.Literal(ticks, pa.duration(unit))))


def _on_another_clock(arg: nodes.Expr, dtype: pa.DataType, zone: str) -> nodes.Expr:
    if kind_of(dtype) != "timestamp":
        raise ExpressionTypeError(f"convert_time_zone takes a timestamp, not {dtype}, in: {show(arg)}")
    return nodes.Cast(arg, pa.timestamp(dtype.unit, zone))


def _in_another_unit(arg: nodes.Expr, dtype: pa.DataType, unit: str) -> nodes.Expr:
    if kind_of(dtype) not in ("timestamp", "duration"):
        raise ExpressionTypeError(
            f"cast_time_unit takes a timestamp or duration, not {dtype}, in: {show(arg)}"
        )
    return nodes.Cast(
        arg, pa.timestamp(unit, dtype.tz) if kind_of(dtype) == "timestamp" else pa.duration(unit)
    )


def _require_positive(count: int, every: object, what: str) -> None:
    if count <= 0:
        raise DurationError(f"{what} is {every!r}; it must be longer than zero")


def _require_short(count: int, every: object, what: str) -> None:
    """Reject a count beyond the range of Arrow's calendar."""
    if count >= 1 << 31:
        raise UnsupportedError(f"{what} is {every!r}, which is too long for a calendar; use a larger unit")


def _since_epoch(arg: nodes.Expr, unit: str, dtype: pa.DataType) -> nodes.Expr:
    """Convert a time or duration to ticks of a unit."""
    if kind_of(dtype) not in (*INSTANTS, "duration"):
        raise ExpressionTypeError(f"epoch takes a timestamp, date or duration, not {dtype}, in: {show(arg)}")
    if kind_of(dtype) == "duration":
        target = pa.duration("s" if unit == "d" else unit)
    else:
        target = pa.date32() if unit == "d" else pa.timestamp(unit, zone_of(dtype))
    whole = arg if dtype == target else nodes.Cast(arg, target)
    return nodes.Call("epoch_ticks", (whole,))
