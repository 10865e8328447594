"""Window types, shared by the logical plan, the time-centric IR and the physical plan.

Lengths are ticks of the stream's time; counts are rows.
"""

from __future__ import annotations

from dataclasses import dataclass

WINDOW_START = "window_start"
WINDOW_END = "window_end"


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """Windows [start, start + size) on a grid: start = offset + n * every."""

    size: int
    every: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class CarriedWindow:
    """The window that each row already carries, in `window_start` and `window_end`."""


@dataclass(frozen=True, slots=True)
class Session:
    """Rows of a key that follow each other within `gap`: [first, last + gap), joined at exactly last + gap."""

    gap: int


@dataclass(frozen=True, slots=True)
class Count:
    """`size` rows of a key, one window starting every `every` rows; `partial` gives the tail at the end."""

    size: int
    every: int
    partial: bool = False


@dataclass(frozen=True, slots=True)
class Unbounded:
    """All rows: one window for all keys, from the first row's time to the last's + 1 tick."""


@dataclass(frozen=True, slots=True)
class CalendarStep:
    """A length on the wall clock of a zone: months, and ticks of a clock on which every day has 24 hours."""

    months: int = 0
    ticks: int = 0


@dataclass(frozen=True, slots=True)
class Calendar:
    """Windows aligned to local midnight (months: to the first; weeks: to Monday) in a time zone.

    `offset` is in ticks of the wall clock. `unit` is the length of a tick: ns, us, ms, s or d.
    """

    size: CalendarStep
    every: CalendarStep
    offset: int
    zone: str
    unit: str


Window = TimeWindow | CarriedWindow | Session | Count | Unbounded | Calendar


@dataclass(frozen=True, slots=True)
class LookBack:
    """The rows a row looks back on: those of the same key in a span of time, or the last `rows` of them.

    At time t the span ends at t - delay and is `size` long; `closed` tells which ends belong to it
    ("right", "left", "both", "none"). Counted in rows, "right" includes the row itself, "left" does not;
    with a delay, rows up to t - delay are counted, or, with "left", before it.
    """

    size: int | None = None
    rows: int | None = None
    closed: str = "right"
    delay: int = 0


@dataclass(frozen=True, slots=True)
class Steps:
    """Stretches of time of one length, from an offset on, within which a query cannot tell times of a column apart.

    >>> Steps("ts", 10, 3).number(12), Steps("ts", 10, 3).number(13)
    (0, 1)
    """

    column: str
    length: int
    offset: int

    def number(self, tick: int) -> int:
        return (tick - self.offset) // self.length
