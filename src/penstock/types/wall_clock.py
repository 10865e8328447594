"""The wall clock of a time zone: convert arrays of local times to instants and back.

Instants are ticks since 1970-01-01 00:00 UTC. Local times are ticks since 1970-01-01 00:00 local, on a clock on which
every day has 24 hours. One rule covers daylight saving, changes of a zone's offset, and skipped days: **a local time
maps to the first instant at which the clock shows it or a later time.**

* a local time that the clock skips maps to the instant of the jump;
* one that the clock shows twice maps to its first occurrence;
* the mapping is monotonic, so ordered boundaries stay ordered.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from difflib import get_close_matches
from functools import lru_cache
from itertools import pairwise
from zoneinfo import ZoneInfo, available_timezones

import numpy as np
import numpy.typing as npt

from penstock.errors import WindowError
from penstock.types.time import NANOSECONDS

Ticks = npt.NDArray[np.int64]

DAY = 86_400
FIRST_YEAR, LAST_YEAR = 1, 9999
# `zoneinfo` has no list of transitions, so we probe offsets often enough that no two transitions fall between two
# probes: the two closest in the tz database are four days apart (a test checks).
PROBE = 2 * DAY

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


@lru_cache(maxsize=256)
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
    found = [each for year in years for each in _changes(zone, year) if _fits(each[0] * second, second)]
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


@lru_cache(maxsize=10_000)
def _changes(zone: str, year: int) -> tuple[tuple[int, int], ...]:
    """List the clock's transitions in a year as (second, new offset)."""
    rules = time_zone(zone)
    end = _start_of(year + 1)
    asked = [*range(_start_of(year), end, PROBE), end]
    answers = [(second, _offset(rules, second)) for second in asked]
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


@lru_cache(maxsize=1_000)
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
