"""Windows on the wall clock of a time zone: days, weeks and months across daylight saving.

Starts and ends are computed in local time, where every day has 24 hours, and then converted to instants: a day with
a daylight-saving transition has 23 or 25 hours. Windows start

* every `every` ticks from 1970-01-01 00:00 local, whole weeks from Monday 1969-12-29;
* every `every` months from January 1970;

shifted by `offset` ticks of local time. A window ends its size later in local time. Months are added as on a
calendar: 31 January plus one month is the last day of February.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from difflib import get_close_matches
from itertools import pairwise
from zoneinfo import ZoneInfo, available_timezones

import numpy as np
import numpy.typing as npt

from penstock.caches import CACHES
from penstock.errors import WindowError
from penstock.types.time import NANOSECONDS
from penstock.types.windows import Calendar, CalendarStep

# --- The wall clock of a time zone: convert arrays of local times to instants and back.
#
# Instants are ticks since 1970-01-01 00:00 UTC. Local times are ticks since 1970-01-01 00:00 local, on a clock on which
# every day has 24 hours. One rule covers daylight saving, changes of a zone's offset, and skipped days: **a local time
# maps to the first instant at which the clock shows it or a later time.**
#
# * a local time that the clock skips maps to the instant of the jump;
# * one that the clock shows twice maps to its first occurrence;
# * the mapping is monotonic, so ordered boundaries stay ordered.

Ticks = npt.NDArray[np.int64]

DAY_SECONDS = 86_400
FIRST_YEAR, LAST_YEAR = 1, 9999
# `zoneinfo` has no list of transitions, so we probe offsets often enough that no two transitions fall between two
# probes: the two closest in the tz database are four days apart (a test checks).
PROBE = 2 * DAY_SECONDS

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIXED = re.compile(r"([+-])([01]\d|2[0-3]):([0-5]\d)")


@dataclass(frozen=True, slots=True)
class WallClock:
    """A clock that is `offsets[i]` ticks ahead of UTC from instant `since[i]` on.

    `before[i]` is the latest local time that the clock showed before `since[i]`: after a backward change, it is later
    than the time shown at `since[i]`.
    """

    since: Ticks
    offsets: Ticks
    before: Ticks

    def instants(self, local: Ticks) -> Ticks:
        """Return the first instants at which the clock shows the local times, or later ones."""
        period = np.searchsorted(self.before[1:], local, side="left")
        found: Ticks = np.maximum(local - self.offsets[period], self.since[period])
        return found

    def shown(self, instant: int) -> int:
        """Return the latest local time that the clock has shown up to an instant, inclusive."""
        period = np.searchsorted(self.since[1:], instant, side="right")
        return max(instant + int(self.offsets[period]), int(self.before[period]))

    def local(self, instants: Ticks) -> Ticks:
        """Convert instants to local times."""
        found: Ticks = instants + self.offsets[self._period(instants)]
        return found

    def last(self, local: Ticks, until: Ticks) -> Ticks:
        """Return the last instants, at most `until`, at which the clock showed the local times or skipped them."""
        period = self._period(until)
        again = local - self.offsets[period]
        found: Ticks = np.where(again >= self.since[period], again, self.instants(local))
        return found

    def _period(self, instants: Ticks) -> Ticks:
        return np.searchsorted(self.since[1:], instants, side="right")


@CACHES.results(most=256)
def wall_clock(zone: str, unit: str, first_year: int, last_year: int) -> WallClock:
    """Return the clock of a zone, valid from `first_year` through `last_year`, in ticks of a unit.

    Dates have no zone: in days, local times equal instants.

    >>> wall_clock("Asia/Tokyo", "s", 2026, 2026).instants(np.array([9 * 3600]))
    array([0])
    """
    rules = time_zone(zone)
    if unit == "d":
        return _clock([], [0])
    second = NANOSECONDS["s"] // NANOSECONDS[unit]
    years = range(max(first_year, FIRST_YEAR), min(last_year, LAST_YEAR) + 1)
    found = [change for year in years for change in _changes(zone, year) if _fits(change[0] * second, second)]
    start = _offset(rules, (found[0][0] - 1) if found else _start_of(years[0]))
    return _clock([at * second for at, _ in found], [start * second, *(ahead * second for _, ahead in found)])


def _fits(instant: int, second: int) -> bool:
    return abs(instant) < (1 << 63) - PROBE * second


def _clock(changes: list[int], offsets: list[int]) -> WallClock:
    # Increasing: an offset changes by less than two days, and transitions are further apart than that.
    before = [at + ahead - 1 for at, ahead in zip(changes, offsets, strict=False)]
    return WallClock(_from_always(changes), np.array(offsets, np.int64), _from_always(before))


def _from_always(ticks: list[int]) -> Ticks:
    return np.array([np.iinfo(np.int64).min, *ticks], np.int64)


@CACHES.results(most=10_000)
def _changes(zone: str, year: int) -> tuple[tuple[int, int], ...]:
    """List the clock's transitions in a year as (second, new offset)."""
    rules = time_zone(zone)
    end = _start_of(year + 1)
    seconds = [*range(_start_of(year), end, PROBE), end]
    answers = [(second, _offset(rules, second)) for second in seconds]
    return tuple(
        (_first_with(rules, ahead, early, late), ahead)
        for (early, before), (late, ahead) in pairwise(answers)
        if before != ahead
    )


def _first_with(rules: tzinfo, ahead: int, early: int, late: int) -> int:
    """Bisect (early, late], in which the offset changes once, to the second of the change."""
    while late - early > 1:
        middle = (early + late) // 2
        early, late = (early, middle) if _offset(rules, middle) == ahead else (middle, late)
    return late


def _start_of(year: int) -> int:
    """Return the second at which a year starts, clamped to the range in which all local times exist."""
    if year <= FIRST_YEAR:
        return _seconds(datetime(FIRST_YEAR, 1, 2, tzinfo=UTC))
    return _seconds(
        datetime(year, 1, 1, tzinfo=UTC) if year <= LAST_YEAR else datetime(LAST_YEAR, 12, 30, tzinfo=UTC)
    )


def _seconds(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(seconds=1)


def _offset(rules: tzinfo, second: int) -> int:
    ahead = (_EPOCH + timedelta(seconds=second)).astimezone(rules).utcoffset()
    assert ahead is not None
    return ahead // timedelta(seconds=1)


@CACHES.results(most=1_000)
def time_zone(name: str) -> tzinfo:
    """Return a zone of the tz database by name, or a zone of fixed offset.

    >>> time_zone("+05:45")
    datetime.timezone(datetime.timedelta(seconds=20700))
    """
    if fixed := _FIXED.fullmatch(name):
        ahead = timedelta(hours=int(fixed[2]), minutes=int(fixed[3]))
        return timezone(-ahead if fixed[1] == "-" else ahead)
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # unknown key; a path outside the database; a folder in it
        raise WindowError(
            f"there is no time zone {name!r}{_nearest(name)}; "
            "write tz= as a name of the tz database, such as 'Europe/Berlin' or 'UTC', or an offset like '+02:00'"
        ) from None


def _nearest(name: str) -> str:
    near = get_close_matches(name, available_timezones(), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


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
    clock = _clock_for(calendar, first, last)
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


def _clock_for(calendar: Calendar, first: int, last: int) -> WallClock:
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
