"""The time of a stream: its column and unit, or how it is implied by the row number."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

NANOSECONDS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000, "d": 86_400_000_000_000}

_LENGTHS = {"d": NANOSECONDS["d"], "h": 3_600_000_000_000, "m": 60_000_000_000} | {
    unit: NANOSECONDS[unit] for unit in ("s", "ms", "us")
}


@dataclass(frozen=True, slots=True)
class Time:
    """The source of a row's time, in integer ticks of the column's unit.

    * explicit: the value of `column`, plus `shift` ticks (a window result's time is
      `window_end - 1 tick`, so its shift is -1);
    * implied: `start + i * period` for the i-th row of the stream, if `period` is set.
      The column is then computed, never stored.

    `unit` is the length of a tick (ns, us, ms, s, d), or None for integer columns without a unit.
    """

    column: str
    type: pa.DataType
    unit: str | None
    shift: int = 0
    period: int | None = None
    start: int = 0

    @property
    def implied(self) -> bool:
        return self.period is not None

    @property
    def stored(self) -> Time:
        """The same time as a stored column, no longer implied by row numbers."""
        return replace(self, period=None, start=0)


TIMELESS = Time("", pa.int64(), None)  # for tables; no column has this name


def length_of(ticks: int, unit: str | None) -> str:
    """Format a number of ticks in the largest unit that divides it.

    >>> length_of(10_000_000, "us"), length_of(90, "s"), length_of(7, None)
    ('10s', '90s', '7')
    """
    if unit is None:
        return str(ticks)
    length = ticks * NANOSECONDS[unit]
    for name, size in _LENGTHS.items():
        if length % size == 0 and length:
            return f"{length // size}{name}"
    return f"{length}ns"


def describe_length(ticks: int, unit: str | None) -> str:
    """Format a number of ticks for a sentence; a bare number gets the unit "ticks".

    >>> describe_length(10_000_000, "us"), describe_length(7, None)
    ('10s', '7 ticks')
    """
    return f"{ticks} ticks" if unit is None else length_of(ticks, unit)


def describe_reach(past: int, future: int, unit: str | None, around: str) -> str:
    """Describe the maximum reach before and after a time.

    >>> describe_reach(9_999_999, 0, "us", "their time"), describe_reach(5, 2, "s", "it")
    ('less than 10s before their time', '5s before and 2s after it')
    """
    ways = [
        f"{_at_most(ticks, unit)} {side}" for ticks, side in ((past, "before"), (future, "after")) if ticks
    ]
    return f"{' and '.join(ways) or 'neither before nor after'} {around}"


def _at_most(ticks: int, unit: str | None) -> str:
    """Format a reach: a half-open 10 s window reaches 9,999,999 us back, which prints as "less than 10s"."""
    reached, beyond = describe_length(ticks, unit), describe_length(ticks + 1, unit)
    return reached if len(reached) <= len(beyond) else f"less than {beyond}"
