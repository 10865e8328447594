"""Windows on the wall clock of a time zone: days, weeks and months across daylight saving.

Starts and ends are computed in local time, where every day has 24 hours, and then converted to instants: a day with
a daylight-saving transition has 23 or 25 hours. Windows start

* every `every` ticks from 1970-01-01 00:00 local, whole weeks from Monday 1969-12-29;
* every `every` months from January 1970;

shifted by `offset` ticks of local time. A window ends its size later in local time. Months are added as on a
calendar: 31 January plus one month is the last day of February.
"""

from __future__ import annotations

import numpy as np

from penstock.errors import WindowError
from penstock.types.time import NANOSECONDS
from penstock.types.wall_clock import Ticks, WallClock, time_zone, wall_clock
from penstock.types.windows import Calendar, CalendarStep

# 160 MB of starts and as much of ends: one-minute windows for 40 years.
MOST_WINDOWS = 20_000_000

_MONDAY = -3  # 1969-12-29, in days
_LONGEST_MONTH = 31  # days
_YEAR = 31_556_952 * NANOSECONDS["s"]  # on average
_YEAR_1, _YEAR_10000 = -62_135_596_800 * NANOSECONDS["s"], 253_402_300_800 * NANOSECONDS["s"]


def calendar_windows(calendar: Calendar, first: int, last: int) -> list[tuple[int, int]]:
    """List, by start, the windows that hold any instant from `first` to `last` (ticks since the epoch, UTC).

    >>> day = CalendarStep(ticks=86_400)
    >>> spring = calendar_windows(Calendar(day, day, 0, "Europe/Berlin", "s"), 1774652400, 1774821599)
    >>> [(end - start) // 3600 for start, end in spring]
    [24, 23]
    """
    starts, ends = calendar_bounds(calendar, first, last)
    return list(zip(starts.tolist(), ends.tolist(), strict=True))


def calendar_bounds(calendar: Calendar, first: int, last: int) -> tuple[Ticks, Ticks]:
    """Return the starts and the ends of `calendar_windows` as arrays; both are non-decreasing.

    >>> month = CalendarStep(months=1)
    >>> calendar_bounds(Calendar(month, month, 0, "Asia/Kathmandu", "d"), 0, 40)
    (array([ 0, 31]), array([31, 59]))
    """
    check_calendar(calendar)
    clock = _clock(calendar, first, last)
    local_starts, local_ends = _local_windows(calendar, clock.shown(first), clock.shown(last))
    starts, ends = clock.instants(local_starts), clock.instants(local_ends)
    held = (starts < ends) & (starts <= last) & (first < ends)
    # Where the clock skips several starts and ends, several windows coincide; keep one.
    held[1:] &= (starts[1:] != starts[:-1]) | (ends[1:] != ends[:-1])
    return starts[held], ends[held]


def check_calendar(calendar: Calendar) -> None:
    """Reject an unknown zone, and lengths that do not give ordered windows."""
    time_zone(calendar.zone)
    size, every = calendar.size, calendar.every
    for what, step in (("the size of the window", size), ("the step of the window (every=)", every)):
        if step.months < 0 or step.ticks < 0 or not (step.months or step.ticks):
            raise WindowError(f"{what} must be longer than zero")
    if every.months and every.ticks:
        raise WindowError("the step of the window (every=) is in months or in other units, not in both")
    if size.months and every.ticks % _day(calendar.unit):
        # 30 January 18:00 and a month would be later than 31 January 06:00 and a month.
        raise WindowError("windows of months start on days: give every= in months, weeks or whole days")


def _day(unit: str) -> int:
    return NANOSECONDS["d"] // NANOSECONDS[unit]


def _clock(calendar: Calendar, first: int, last: int) -> WallClock:
    """Return the zone's clock around all windows that may be needed; raise an error outside the supported range."""
    tick = NANOSECONDS[calendar.unit]
    if first * tick < _YEAR_1 or last * tick >= _YEAR_10000:
        raise WindowError(
            "windows with tz= are for the years 1 to 9999, and there are times outside of them; filter those rows out, or leave tz= out"
        )
    around = abs(calendar.offset) + sum(
        _at_most(step, calendar.unit) for step in (calendar.size, calendar.every)
    )
    around += 2 * _day(calendar.unit)  # exceeds every UTC offset
    low, high = first - around, last + around
    if low < -(1 << 63) or high >= 1 << 63:
        raise WindowError(
            "a window with tz= reaches beyond the times that 64 bits can count; filter such rows out"
        )
    return wall_clock(calendar.zone, calendar.unit, _year(low * tick) - 1, _year(high * tick) + 1)


def _year(nanoseconds: int) -> int:
    return 1970 + nanoseconds // _YEAR


def _at_most(step: CalendarStep, unit: str) -> int:
    return step.months * _LONGEST_MONTH * _day(unit) + step.ticks


def _local_windows(calendar: Calendar, since: int, until: int) -> tuple[Ticks, Ticks]:
    """Compute the windows from `since` to `until` in local time, possibly with a few before."""
    low = _number(calendar, since - _at_most(calendar.size, calendar.unit))
    high = _number(calendar, until)
    if high - low >= MOST_WINDOWS:
        raise WindowError(
            f"there are {high - low:,} windows between the first and the last time, more than {MOST_WINDOWS:,} "
            "with tz=; use a larger step (every=), or windows without tz="
        )
    starts = _starts(calendar, np.arange(low, high + 1, dtype=np.int64))
    # Months are added without the offset, so that a window shifted by days still ends where the next one starts.
    shift = calendar.offset if calendar.every.months else 0
    return starts, _later(starts - shift, calendar.size, _day(calendar.unit)) + shift


def _number(calendar: Calendar, local: int) -> int:
    """Return the number of the last window that starts at or before a local time."""
    passed, every = local - _origin(calendar), calendar.every
    if every.months:
        month = month_of(np.array([passed // _day(calendar.unit)]))
        return int(month[0]) // every.months
    return passed // every.ticks


def _starts(calendar: Calendar, numbers: Ticks) -> Ticks:
    every, day = calendar.every, _day(calendar.unit)
    passed = first_of(numbers * every.months) * day if every.months else numbers * every.ticks
    return passed + _origin(calendar)


def _origin(calendar: Calendar) -> int:
    """Return the local start time of window 0."""
    day = _day(calendar.unit)
    weekly = not calendar.every.months and calendar.every.ticks % (7 * day) == 0
    return calendar.offset + (_MONDAY * day if weekly else 0)


def _later(local: Ticks, size: CalendarStep, day: int) -> Ticks:
    if not size.months:
        return local + size.ticks
    date, time = np.divmod(local, day)
    month = month_of(date)
    goal = month + size.months
    last = first_of(goal + 1) - 1
    moved = np.minimum(first_of(goal) + (date - first_of(month)), last)
    return moved * day + time + size.ticks


def month_of(date: Ticks) -> Ticks:
    """Return the month numbers since January 1970 of dates given as days since 1970-01-01."""
    return date.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)


def first_of(month: Ticks) -> Ticks:
    """Return the first day, since 1970-01-01, of months numbered as by `month_of`."""
    return month.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
