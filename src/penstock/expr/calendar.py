"""Calendar fields of instants by integer arithmetic, proleptic Gregorian, for any number of ticks."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

import pyarrow as pa

from penstock.errors import UnsupportedError, WindowError
from penstock.expr.arithmetic import Setting, fit
from penstock.expr.rules import zone_of
from penstock.types.arrow import tick_unit
from penstock.types.time import NANOSECONDS
from penstock.types.wall_clock import time_zone

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
