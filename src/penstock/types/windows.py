"""Window types, shared by the logical plan, the time-centric IR and the physical plan.

Lengths are ticks of the stream's time; counts are rows.
"""

from __future__ import annotations

from dataclasses import dataclass

WINDOW_START = "window_start"
WINDOW_END = "window_end"
WINDOW_BOUNDS = (WINDOW_START, WINDOW_END)


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
    """Rows of a key at most `gap` apart: [first, last + gap); a row at exactly last + gap still joins."""

    gap: int


@dataclass(frozen=True, slots=True)
class Count:
    """`size` rows of a key, a window starting every `every` rows; `partial` also emits the incomplete last windows."""

    size: int
    every: int
    partial: bool = False


@dataclass(frozen=True, slots=True)
class Unbounded:
    """All rows: one window for all keys, from the first row's time to the last row's time + 1 tick."""


@dataclass(frozen=True, slots=True)
class CalendarStep:
    """A length in local time: months, and ticks of a clock on which every day has 24 hours."""

    months: int = 0
    ticks: int = 0


@dataclass(frozen=True, slots=True)
class Calendar:
    """Windows aligned to local midnight (months: to the first; weeks: to Monday) in a time zone.

    `offset` is in ticks of local time. `unit` is the length of a tick: ns, us, ms, s or d.
    """

    size: CalendarStep
    every: CalendarStep
    offset: int
    zone: str
    unit: str


Window = TimeWindow | CarriedWindow | Session | Count | Unbounded | Calendar


@dataclass(frozen=True, slots=True)
class LookBack:
    """The look-back span of a row: rows of the same key in a span of time, or the last `rows` of them.

    At time t the span ends at t - delay and is `size` long; `closed` names the ends that belong to it
    ("right", "left", "both", "none"). For row counts, "right" includes the row itself, "left" does not;
    with a delay, rows up to t - delay are counted, or, with "left", rows before it.
    """

    size: int | None = None
    rows: int | None = None
    closed: str = "right"
    delay: int = 0


@dataclass(frozen=True, slots=True)
class Steps:
    """Segments of time of one length, from an offset on, within which a query does not distinguish times of a column.

    >>> Steps("ts", 10, 3).number(12), Steps("ts", 10, 3).number(13)
    (0, 1)
    """

    column: str
    length: int
    offset: int

    def number(self, tick: int) -> int:
        return (tick - self.offset) // self.length


# --- Join kinds and pairings, shared by the logical plan and the time-centric IR.

JOIN_TIME = "join_time"
JOIN_KINDS = ("inner", "left", "right", "full", "semi", "anti")
DIRECTIONS = ("backward", "forward", "nearest")
JOIN_ALGORITHMS = ("auto", "npj", "prj", "mway", "mpass", "shj_jm", "shj_jb", "pmj_jm", "pmj_jb")
TARGETS = ("throughput", "latency", "progress")
LEFT_ROW_KINDS = ("semi", "anti")  # these return left rows unchanged

Keys = tuple[tuple[str, str], ...]  # pairs of equal columns: left name, right name


@dataclass(frozen=True, slots=True)
class Within:
    """The right row's time minus the left row's lies in [lo, hi], both ends included."""

    lo: int
    hi: int


@dataclass(frozen=True, slots=True)
class Lookup:
    """One side is a table without time; every row of the other is matched against all of it. `table` is 0 (left) or 1."""

    table: int


@dataclass(frozen=True, slots=True)
class InWindow:
    """Both rows lie in windows that end at the same time."""

    left: Window
    right: Window


Pairing = InWindow | Within | Lookup


def windows_overlap(pairing: InWindow) -> bool:
    """Whether a row may lie in several windows of a join."""
    match pairing.left, pairing.right:
        case TimeWindow() as left, TimeWindow() as right:
            return left != right or left.size > left.every
        case Calendar(size=size, every=every), _:
            return size != every
        case _:
            return False


def left_column(name: str) -> str:
    """Return the name of a left column in a pair of rows; no right column can have that name."""
    return f"left.{name}"


def right_column(name: str) -> str:
    """Return the name of a right column in a pair of rows."""
    return f"right.{name}"
