"""Dates and times as scalar functions: fields of instants, truncation, offsets, formatting and parsing."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import ExpressionTypeError, UnsupportedError, WindowError
from penstock.errors import OverflowError as PenstockOverflow
from penstock.expr.arithmetic import Setting, fit
from penstock.expr.rules import zone_of
from penstock.types.arrow import from_physical, physical, physical_type, physical_values, tick_unit
from penstock.types.calendar import (
    FIRST_YEAR,
    LAST_YEAR,
    Ticks,
    WallClock,
    first_of,
    month_of,
    time_zone,
    wall_clock,
)
from penstock.types.time import NANOSECONDS

# --- Calendar fields of instants by integer arithmetic, proleptic Gregorian, for any number of ticks.

_DAY = NANOSECONDS["d"]
_SECOND = NANOSECONDS["s"]
UTC_NAMES = frozenset({"UTC", "Etc/UTC", "Z", "+00:00", "GMT", "Etc/GMT"})


def civil(days: int) -> tuple[int, int, int]:
    """Convert days since 1970-01-01 to year, month and day (H. Hinnant, "chrono-compatible dates").

    >>> civil(-1)
    (1969, 12, 31)
    """
    shifted = days + 719_468
    era, of_era = divmod(shifted, 146_097)
    year_of_era = (of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted_month = (5 * of_year + 2) // 153
    day = of_year - (153 * shifted_month + 2) // 5 + 1
    month = shifted_month + 3 if shifted_month < 10 else shifted_month - 9
    return year_of_era + era * 400 + (month <= 2), month, day


def days_from_civil(year: int, month: int, day: int) -> int:
    """Convert year, month and day to days since 1970-01-01, the inverse of `civil`."""
    shifted = year - (month <= 2)
    era, year_of_era = divmod(shifted, 400)
    of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + of_year - 719_468


def local_nanoseconds(ticks: int, dtype: pa.DataType) -> int:
    """Return nanoseconds since the epoch in the local time of the column's zone."""
    instant = ticks * NANOSECONDS[tick_unit(dtype) or "s"]
    zone = zone_of(dtype)
    return instant if zone is None or zone in UTC_NAMES else instant + offset_at(instant, dtype)


def clock_of(dtype: pa.DataType) -> tzinfo:
    """Return the column's time zone; UTC if it has none."""
    zone = zone_of(dtype)
    try:
        return UTC if zone is None or zone in UTC_NAMES else time_zone(zone)
    except WindowError as reason:
        raise UnsupportedError(f"parts of a time in zone {zone!r} cannot be computed: {reason}") from reason


def offset_at(instant: int, dtype: pa.DataType) -> int:
    """Return the offset of a column's zone from UTC at an instant, both in nanoseconds."""
    try:
        utc = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=instant // _SECOND)
        shift = utc.astimezone(clock_of(dtype)).utcoffset() or timedelta()
    except (OverflowError, ValueError) as reason:
        raise UnsupportedError(
            f"parts of a time in zone {zone_of(dtype)!r} cannot be computed: {reason}"
        ) from reason
    return int(shift.total_seconds()) * _SECOND


def _iso(days: int) -> tuple[int, int]:
    """Return the ISO year and week: those of the Thursday of the same week."""
    thursday = days - (days + 3) % 7 + 3
    year = civil(thursday)[0]
    return year, (thursday - days_from_civil(year, 1, 1)) // 7 + 1


def of_date(part: Callable[[int], int]) -> Callable[[Setting, Any], int]:
    """Define a field that depends on the date only."""
    return lambda setting, ticks: part(local_nanoseconds(ticks, setting.types[0]) // _DAY)


def of_day(unit: int, cycle: int) -> Callable[[Setting, Any], int]:
    """Define a field of the time of day: whole units modulo `cycle`."""
    return lambda setting, ticks: local_nanoseconds(ticks, setting.types[0]) // unit % cycle


year = of_date(lambda days: civil(days)[0])
month = of_date(lambda days: civil(days)[1])
day = of_date(lambda days: civil(days)[2])
quarter = of_date(lambda days: (civil(days)[1] + 2) // 3)
weekday = of_date(lambda days: (days + 3) % 7 + 1)
ordinal_day = of_date(lambda days: days - days_from_civil(civil(days)[0], 1, 1) + 1)
week = of_date(lambda days: _iso(days)[1])
iso_year = of_date(lambda days: _iso(days)[0])
hour = of_day(3_600 * _SECOND, 24)
minute = of_day(60 * _SECOND, 60)
second = of_day(_SECOND, 60)
millisecond = of_day(10**6, 1_000)
microsecond = of_day(10**3, 10**6)
nanosecond = of_day(1, 10**9)


def date(setting: Setting, ticks: Any) -> int:
    return fit(local_nanoseconds(ticks, setting.types[0]) // _DAY, setting.result, "the date of a time")


def truncate(setting: Setting, ticks: Any) -> int:
    """Floor to a multiple of `every` ticks since the epoch."""
    every = setting.options["every"]
    assert isinstance(every, int)
    return fit(ticks - ticks % every, setting.result, "a truncated time")


# --- Times in the local time of their zone: truncation to calendar units, offsets, formatting and parsing.

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
        plain = _formatted_iso(dtype, _ISO[text], moment) if text in _ISO else text
        return moment.strftime(_OWN.sub(lambda found: _written(found, passed, moment), plain))
    except (OverflowError, ValueError):
        raise UnsupportedError(
            "strftime writes times of the years 1 to 9999 alone; filter others out first"
        ) from None


def _formatted_iso(dtype: pa.DataType, between: str, moment: datetime) -> str:
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
