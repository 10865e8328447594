"""Date plus duration, and division and scaling of durations, rewritten to integer arithmetic as in Polars."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from penstock.expr.nodes import Call, Case, Cast, Expr, Literal
from penstock.expr.typing import type_of
from penstock.types.arrow import kind_of, tick_unit, value_type
from penstock.types.time import NANOSECONDS

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


def _later(date: Expr, of: pa.DataType, span: Expr, dtype: pa.DataType) -> Expr:
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
    ("add", "date", "duration"): _later,
    ("add", "duration", "date"): _swapped(_later),
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
