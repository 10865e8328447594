"""Units of time and parts of dates, in loop IR."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import I64, I128, Const, Value, const, select
from penstock.loop.numbers import fits
from penstock.types.time import NANOSECONDS

DAY_NS = NANOSECONDS["d"]


def is_temporal(dtype: pa.DataType) -> bool:
    kinds = pa.types.is_timestamp, pa.types.is_duration, pa.types.is_date
    return any(is_kind(dtype) for is_kind in kinds)


def tick(dtype: pa.DataType) -> int:
    """The length of one tick in nanoseconds."""
    if pa.types.is_date32(dtype):
        return DAY_NS
    if pa.types.is_date64(dtype):
        return NANOSECONDS["ms"]
    return NANOSECONDS[dtype.unit]


def finer(source: pa.DataType, target: pa.DataType) -> int:
    """The number of ticks of `target` per tick of `source`; 1 if `target` is not finer."""
    if not (is_temporal(source) and is_temporal(target)):
        return 1
    return max(tick(source) // tick(target), 1)


def scaled(ticks: Value, factor: int) -> Value:
    """Convert ticks to a finer unit, in 128 bits unless the result is known to fit 64."""
    if factor == 1:
        return ticks
    if isinstance(ticks, Const) and fits(int(ticks.value) * factor, I64):
        return const(int(ticks.value) * factor, I64)
    return ticks.to(I128) * factor


def rescale(ticks: Value, source: pa.DataType, target: pa.DataType) -> Value:
    """Change the unit; round down to a coarser one. A date64 is a whole number of days."""
    if pa.types.is_date64(target) and tick(source) < DAY_NS:
        day = const(DAY_NS // tick(source), I128)
        ticks = ticks.to(I128) - floor_mod(ticks.to(I128), day)
    up, down = finer(source, target), finer(target, source)
    return scaled(ticks, up) if up > 1 else floor_div(ticks, const(down, ticks.type)) if down > 1 else ticks


def floor_div(a: Value, b: Value) -> Value:
    """Divide, rounding down. The loop IR's division truncates."""
    quotient = a.div(b)
    if a.type.kind == "uint":
        return quotient
    return quotient - _borrow(a, b).to(a.type)


def floor_mod(a: Value, b: Value) -> Value:
    """The remainder with the sign of the divisor."""
    rest = a.rem(b)
    if a.type.kind == "uint":
        return rest
    return select(_borrow(a, b), rest + b, rest)


def _borrow(a: Value, b: Value) -> Value:
    rest = a.rem(b)
    if isinstance(b, Const) and b.value > 0:
        return rest < 0
    return rest.ne(0) & ((rest < 0) ^ (b < 0))


def _days(ticks: Value, dtype: pa.DataType) -> Value:
    return floor_div(ticks, const(max(DAY_NS // tick(dtype), 1), I64))


def _of_day(ticks: Value, dtype: pa.DataType) -> Value:
    return floor_mod(ticks, const(max(DAY_NS // tick(dtype), 1), I64))


def _civil(k: KernelBuilder, ticks: Value, dtype: pa.DataType) -> tuple[Value, Value, Value]:
    """Year, month and day of a day number (Howard Hinnant's days-to-civil algorithm)."""
    z = k.var("z", _days(ticks, dtype) + 719468)
    era = k.var("era", floor_div(z, const(146097, I64)))
    doe = k.var("doe", z - era * 146097)
    leap = doe.div(1460) - doe.div(36524) + doe.div(146096)
    yoe = k.var("yoe", (doe - leap).div(365))
    doy = k.var("doy", doe - (yoe * 365 + yoe.div(4) - yoe.div(100)))
    mp = k.var("mp", (doy * 5 + 2).div(153))
    day = doy - (mp * 153 + 2).div(5) + 1
    month = k.var("month", select(mp < 10, mp + 3, mp - 9))
    year = yoe + era * 400 + (month <= 2).to(I64)
    return k.var("year", year), month, day


def _clock(unit: int, modulo: int) -> Callable[[KernelBuilder, Value, pa.DataType], Value]:
    """A part of the time of day: whole `unit`s, modulo the next larger one."""

    def part(k: KernelBuilder, ticks: Value, dtype: pa.DataType) -> Value:
        length = tick(dtype)
        inside = k.var("of_day", _of_day(ticks, dtype))
        if length > unit:
            return floor_mod(inside * (length // unit), const(modulo, I64))
        return floor_div(inside, const(unit // length, I64)).rem(modulo)

    return part


def _subsecond(unit: int) -> Callable[[KernelBuilder, Value, pa.DataType], Value]:
    """Milli-, micro- or nanoseconds since the last whole second, as in Polars."""
    return _clock(unit, NANOSECONDS["s"] // unit)


def _ordinal_day(k: KernelBuilder, ticks: Value, dtype: pa.DataType) -> Value:
    year, month, day = _civil(k, ticks, dtype)
    leap = year.rem(4).eq(0) & (year.rem(100).ne(0) | year.rem(400).eq(0))
    shift = (month * 367 - 362).div(12)
    correction = select(month <= 2, const(0, I64), select(leap, const(-1, I64), const(-2, I64)))
    return shift + correction + day


def _weekday(k: KernelBuilder, ticks: Value, dtype: pa.DataType) -> Value:
    return floor_mod(_days(ticks, dtype) + 3, const(7, I64)) + 1


def _week(k: KernelBuilder, ticks: Value, dtype: pa.DataType) -> Value:
    """The ISO 8601 week: that of the Thursday in the same Monday-to-Sunday week."""
    day = const(max(DAY_NS // tick(dtype), 1), I64)
    weekday = k.var("weekday", _weekday(k, ticks, dtype))
    thursday = k.var("thursday", ticks + (const(4, I64) - weekday) * day)
    return (_ordinal_day(k, thursday, dtype) - 1).div(7) + 1


def _quarter(k: KernelBuilder, ticks: Value, dtype: pa.DataType) -> Value:
    return (_civil(k, ticks, dtype)[1] - 1).div(3) + 1


CALENDAR_PARTS: dict[str, Callable[[KernelBuilder, Value, pa.DataType], Value]] = {
    "year": lambda k, ticks, dtype: _civil(k, ticks, dtype)[0],
    "month": lambda k, ticks, dtype: _civil(k, ticks, dtype)[1],
    "day": lambda k, ticks, dtype: _civil(k, ticks, dtype)[2],
    "hour": _clock(3600 * NANOSECONDS["s"], 24),
    "minute": _clock(60 * NANOSECONDS["s"], 60),
    "second": _clock(NANOSECONDS["s"], 60),
    "millisecond": _subsecond(NANOSECONDS["ms"]),
    "microsecond": _subsecond(NANOSECONDS["us"]),
    "nanosecond": _subsecond(NANOSECONDS["ns"]),
    "weekday": _weekday,
    "ordinal_day": _ordinal_day,
    "week": _week,
    "quarter": _quarter,
    "date": lambda k, ticks, dtype: _days(ticks, dtype),
    "epoch_ticks": lambda k, ticks, dtype: ticks,
}
