"""Windows on the wall clock of a time zone: days, weeks and months across daylight saving."""

from __future__ import annotations

from penstock.types.windows import Calendar


def calendar_windows(calendar: Calendar, first: int, last: int) -> list[tuple[int, int]]:
    """List, by start, the windows that hold any instant from `first` to `last` (ticks since the epoch, UTC)."""
    raise NotImplementedError
