"""Times in the local time of their zone: truncation to calendar units, offsets, formatting and parsing."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import ExpressionTypeError, UnsupportedError
from penstock.errors import OverflowError as PenstockOverflow
from penstock.expr.arithmetic import Setting
from penstock.expr.calendar import UTC_NAMES, clock_of
from penstock.expr.rules import zone_of
from penstock.types.arrow import from_physical, physical, physical_type, physical_values, tick_unit
from penstock.types.calendar import first_of, month_of
from penstock.types.time import NANOSECONDS
from penstock.types.wall_clock import FIRST_YEAR, LAST_YEAR, Ticks, WallClock, wall_clock

Options = Mapping[str, Any]
_MONDAY = -3  # 1969-12-29, in days
_YEAR = 31_556_952 * NANOSECONDS["s"]  # on average
_LENGTHS = {
    "nanosecond": 1,
    "microsecond": NANOSECONDS["us"],
    "millisecond": NANOSECONDS["ms"],
    "second": NANOSECONDS["s"],
    "minute": 60 * NANOSECONDS["s"],
    "hour": 3_600 * NANOSECONDS["s"],
    "day": NANOSECONDS["d"],
    "week": 7 * NANOSECONDS["d"],
}
_ISO = {"iso": " ", "iso:strict": "T"}  # separator between date and time
_FRACTIONS = {"s": "", "ms": "%.3f", "us": "%.6f", "ns": "%.9f"}
_OWN = re.compile(r"%[%sYFGC]|%(?P<point>\.?)(?P<digits>[369]?)f")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def floor_time(times: pa.Array, options: Options) -> pa.Array:
    """Truncate to a multiple of months, weeks, days … in the local time of the column's zone; weeks begin on Monday.

    An ambiguous local time maps to its last occurrence not after the input, as in Polars; a skipped one to the jump.
    """
    if len(times) == times.null_count:
        return times
    ticks = physical(times.drop_null()).cast(pa.int64()).to_numpy()
    clock = _clock(times.type, int(ticks.min()), int(ticks.max()))
    found = clock.last(_floored(clock.local(ticks), options, tick_unit(times.type) or "s"), ticks)
    return _spread(_typed(found, times.type), times.is_valid())


def replace_zone(times: pa.Array, options: Options) -> pa.Array:
    """Reinterpret local times in another zone; "" is none. An ambiguous time maps to its first occurrence, a skipped one to the jump."""
    return _moved(times, pa.timestamp(times.type.unit, options["zone"] or None), lambda local, _: local)


def offset(times: pa.Array, options: Options) -> pa.Array:
    """Add months and days in the local time of the zone; a day beyond the end of a month becomes its last day."""

    def moved(local: Ticks, day: int) -> Ticks:
        date, rest = np.divmod(local, day)
        month: Ticks = month_of(date) + int(options["months"])
        place = np.minimum(date - first_of(month_of(date)), first_of(month + 1) - first_of(month) - 1)
        return _at(first_of(month) + place + int(options["days"]), rest, day)

    return _moved(times, times.type, moved)


def month_start(times: pa.Array, options: Options) -> pa.Array:
    """Move times to the first day of their month; keep the time of day."""
    return _moved(
        times, times.type, lambda local, day: _at(first_of(month_of(local // day)), local % day, day)
    )


def month_end(times: pa.Array, options: Options) -> pa.Array:
    """Move times to the last day of their month; keep the time of day."""
    return _moved(
        times,
        times.type,
        lambda local, day: _at(first_of(month_of(local // day) + 1) - 1, local % day, day),
    )


def _moved(times: pa.Array, goal: pa.DataType, move: Callable[[Ticks, int], Ticks]) -> pa.Array:
    """Apply `move` to local times, and convert them to instants in the zone of the `goal` type."""
    if len(times) == times.null_count:
        return pa.nulls(len(times), goal)
    unit = tick_unit(times.type) or "s"
    ticks = physical(times.drop_null()).cast(pa.int64()).to_numpy()
    shown = _clock(times.type, int(ticks.min()), int(ticks.max())).local(ticks)
    local = move(shown, NANOSECONDS["d"] // NANOSECONDS[unit])
    found = _clock(goal, int(local.min()), int(local.max())).instants(local)
    return _spread(_typed(found, goal), times.is_valid())


def _at(date: Ticks, rest: Ticks | int, day: int) -> Ticks:
    """Combine dates and times of day; raise an error on overflow."""
    most = (1 << 63) // day - 1
    if int(date.min()) < -most or int(date.max()) > most:
        raise _too_far("64 bits")
    return date * day + rest


def _typed(ticks: Ticks, dtype: pa.DataType) -> pa.Array:
    try:
        return pa.array(ticks).cast(physical_type(dtype)).view(dtype)
    except pa.ArrowInvalid:
        raise _too_far(str(dtype)) from None  # Arrow's message quotes the value


def _too_far(holder: str) -> PenstockOverflow:
    return PenstockOverflow(
        f"a time on the calendar is farther from 1970 than {holder} can hold; use a coarser unit, or filter such rows out"
    )


def _spread(values: pa.Array, known: pa.Array) -> pa.Array:
    """Scatter values to the valid positions, with nulls elsewhere."""
    import pyarrow.compute as pc  # noqa: PLC0415 - loaded on first use

    return pc.replace_with_mask(pa.nulls(len(known), values.type), known, values)


def _clock(dtype: pa.DataType, first: int, last: int) -> WallClock:
    """Return the clock of a column's zone around its times; raise an error if adding a few days could overflow."""
    zone, unit = zone_of(dtype), tick_unit(dtype) or "s"
    if max(-first, last) > (1 << 63) - 4 * NANOSECONDS["d"] // NANOSECONDS[unit]:
        raise _too_far("64 bits")
    if zone is None or zone in UTC_NAMES:
        return wall_clock("UTC", "d", 1970, 1970)
    low, high = (1970 + ticks * NANOSECONDS[unit] // _YEAR for ticks in (first, last))
    if low < FIRST_YEAR or high > LAST_YEAR:
        raise UnsupportedError(
            f"times are truncated in zone {zone!r} in the years 1 to 9999 alone; filter others out first"
        )
    return wall_clock(zone, unit, low - 1, high + 1)


def _floored(local: Ticks, options: Options, unit: str) -> Ticks:
    day = NANOSECONDS["d"] // NANOSECONDS[unit]
    every = int(options["every"])
    if options["unit"] == "month":
        month = (local // day).astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
        first: Ticks = (
            (month - month % every).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
        )
        return _at(first, 0, day)
    step = every * _LENGTHS[options["unit"]] // NANOSECONDS[unit]
    passed = local - (_MONDAY * day if options["unit"] == "week" else 0)
    floored: Ticks = local - passed % step
    if (floored > local).any():
        raise _too_far("64 bits")
    return floored


def of_one(function: Callable[[pa.Array, Options], pa.Array]) -> Callable[[Setting, int], Any]:
    """Define a function of one time by the function of an array."""
    return lambda setting, ticks: physical_values(
        function(from_physical([ticks], setting.types[0]), setting.options)
    )[0]


def strftime(setting: Setting, ticks: Any) -> str:
    """Format a time in the local time of its zone, as C's strftime does; years have four digits.

    Fractions of a second are those of Polars: `%f` has nine digits, `%3f` three, and `%.3f` a point before them.
    The formats "iso" and "iso:strict" are those of Polars too.
    """
    dtype, text = setting.types[0], str(setting.options["format"])
    passed = ticks * NANOSECONDS[tick_unit(dtype) or "s"]
    try:
        moment = (_EPOCH + timedelta(microseconds=passed // 1_000)).astimezone(clock_of(dtype))
        plain = _iso(dtype, _ISO[text], moment) if text in _ISO else text
        return moment.strftime(_OWN.sub(lambda found: _written(found, passed, moment), plain))
    except (OverflowError, ValueError):
        raise UnsupportedError(
            "strftime writes times of the years 1 to 9999 alone; filter others out first"
        ) from None


def _iso(dtype: pa.DataType, between: str, moment: datetime) -> str:
    """Return the ISO 8601 format with the digits of the type, and the zone's offset at that moment."""
    if not pa.types.is_timestamp(dtype):
        return "%Y-%m-%d"
    offset = moment.utcoffset() or timedelta()
    hours, minutes = divmod(abs(offset) // timedelta(minutes=1), 60)
    shown = "" if dtype.tz is None else f"{'-' if offset < timedelta() else '+'}{hours:02}:{minutes:02}"
    return f"%Y-%m-%d{between}%H:%M:%S{_FRACTIONS[dtype.unit]}{shown}"


def _written(found: re.Match[str], passed: int, moment: datetime) -> str:
    """Format the codes that C's strftime lacks or gets wrong: epoch seconds, fractions, and years before 1000."""
    seconds, nanoseconds = divmod(passed, NANOSECONDS["s"])
    match found[0]:
        case "%%":
            return "%%"
        case "%s":
            return str(seconds)
        case "%Y":
            return f"{moment.year:04}"
        case "%F":
            return f"{moment.year:04}-%m-%d"
        case "%G":
            return f"{moment.isocalendar().year:04}"
        case "%C":
            return f"{moment.year // 100:02}"
        case _:
            return found["point"] + f"{nanoseconds:09}"[: int(found["digits"] or 9)]


def parse_time(setting: Setting, text: str) -> int | None:
    """Parse a time by a format; return null for other text, or raise an error if `strict`."""
    try:
        moment = datetime.strptime(text, str(setting.options["format"]))  # noqa: DTZ007 - the zone is optional
    except ValueError:
        if setting.options["strict"]:
            raise ExpressionTypeError(
                "a text is no time of the format that was given; correct the format, or give strict=False"
            ) from None
        return None
    zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    passed = zoned - _EPOCH
    return passed.days if setting.result == pa.date32() else passed // timedelta(microseconds=1)
