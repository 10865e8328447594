"""Window specifications, before they are resolved for a stream and its unit of time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

from penstock.errors import WindowError
from penstock.types.calendar import calendar_bounds, check_calendar
from penstock.types.duration import Duration, calendar_step, is_whole, nanoseconds, to_ticks, week_begin
from penstock.types.time import Time
from penstock.types.windows import Calendar, CalendarStep, Count, Session, TimeWindow, Unbounded, Window

# A single row can produce a result in each of its windows. Count windows produce one result every few rows, however
# many overlap, so their limit is higher: the largest number measured.
MOST_WINDOWS_PER_ROW = 1_000_000
MOST_COUNTED_WINDOWS_PER_ROW = 1 << 22
_SIZE, _STEP, _OFFSET = (
    "the size of the window",
    "the step of the window (every=)",
    "the offset of the window",
)


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """Windows of `size`, one starting every `every`, shifted by `offset`, in the local time of a zone."""

    size: Duration
    every: Duration
    offset: Duration | None = None
    tz: str | None = None

    def resolve(self, time: Time) -> Window:
        """Convert the window to ticks of a stream's time; reject far too many windows per row."""
        if self.tz is not None:
            return _calendar(self, self.tz, time)
        size, every = to_ticks(self.size, time, _SIZE), to_ticks(self.every, time, _STEP)
        offset = 0 if self.offset is None else to_ticks(self.offset, time, _OFFSET)
        _refuse_explosion(-(-size // every), self.size, self.every)
        return TimeWindow(size, every, (offset + week_begin(self.every, time)) % every)


@dataclass(frozen=True, slots=True)
class SessionSpec:
    """Rows at most a gap apart."""

    gap: Duration

    def resolve(self, time: Time) -> Window:
        return Session(to_ticks(self.gap, time, "the gap of the session"))


@dataclass(frozen=True, slots=True)
class RowsSpec:
    """Windows of `size` rows, one starting every `every` rows."""

    size: int
    every: int | None = None
    partial: bool = False

    def resolve(self, time: Time) -> Window:
        every = self.size if self.every is None else self.every
        _refuse_explosion(-(-self.size // every), self.size, every, MOST_COUNTED_WINDOWS_PER_ROW)
        return Count(self.size, every, self.partial)


@dataclass(frozen=True, slots=True)
class UnboundedSpec:
    """All rows."""

    def resolve(self, time: Time) -> Window:
        return Unbounded()


AnyWindow = WindowSpec | SessionSpec | RowsSpec | UnboundedSpec


def tumbling(size: Duration, offset: Duration | None = None, tz: str | ZoneInfo | None = None) -> WindowSpec:
    """Divide time into windows without gap or overlap.

    They are half-open, `[start, end)`, and aligned to 1970-01-01 UTC plus the offset; windows of whole weeks ("w") begin
    on a Monday. With `tz=`, they are aligned to local midnight: days have their local length, months begin on the first.

    >>> import penstock as pk
    >>> pk.tumbling("10s")
    WindowSpec(size='10s', every='10s', offset=None, tz=None)
    >>> pk.tumbling("1mo", tz="Europe/Berlin").size
    '1mo'
    """
    return sliding(size, size, offset, tz)


def sliding(
    size: Duration, every: Duration, offset: Duration | None = None, tz: str | ZoneInfo | None = None
) -> WindowSpec:
    """Divide time into overlapping windows: one of `size` starts every `every`.

    >>> import penstock as pk
    >>> pk.sliding("1h", every="5m").every
    '5m'
    """
    if tz is None:
        for what, given in ((_SIZE, size), (_STEP, every)):
            require_positive(given, what)
    elif isinstance(tz, ZoneInfo) and tz.key is not None:
        tz = tz.key
    elif not isinstance(tz, str):
        raise WindowError(f"tz= is of type {type(tz).__name__}; name a time zone, such as 'Europe/Berlin'")
    return WindowSpec(size, every, offset, tz)


def session(gap: Duration) -> SessionSpec:
    """Group the rows of a key that are at most a gap apart: a session is `[first, last + gap)`.

    A row exactly `gap` after another still joins its session; an out-of-order row may merge two sessions.

    >>> import pyarrow as pa, penstock as pk
    >>> clicks = pk.from_arrow(pa.table({"t": [0, 5, 30], "user": ["a", "a", "a"]}), time="t")
    >>> clicks.window(pk.session(10), by="user").agg(n=pk.count()).collect().to_pydict()
    {'window_start': [0, 30], 'window_end': [15, 40], 'user': ['a', 'a'], 'n': [2, 1]}
    """
    require_positive(gap, "the gap of the session")
    return SessionSpec(gap)


def rows(size: int, every: int | None = None, partial: bool = False) -> RowsSpec:
    """Group rows by count: windows of `size` rows of a key, one starting every `every` rows.

    A window is emitted when it is full; it spans from its first row's time to one tick after its last row's.
    `partial=True` also emits the incomplete last windows when input ends. In `rolling`, the last `size` rows of each key.

    >>> import pyarrow as pa, penstock as pk
    >>> ticks = pk.from_arrow(pa.table({"t": [1, 2, 3, 4, 5], "v": [1, 2, 3, 4, 5]}), time="t")
    >>> ticks.window(pk.rows(2)).agg(total=pk.sum("v")).collect().to_pydict()
    {'window_start': [1, 3], 'window_end': [3, 5], 'total': [3, 7]}
    """
    for what, given in (("the size of a window of rows", size), ("its step (every=)", every)):
        if given is None and what.startswith("its step"):
            continue
        if not is_whole(given):
            raise WindowError(f"{what} is {given!r}; it is a whole number of rows")
        if int(given) < 1:
            raise WindowError(f"{what} is {given}; it must be at least 1")
    if not isinstance(partial, bool):
        raise WindowError(f"partial is {partial!r:.40}; it is True or False")
    return RowsSpec(int(size), None if every is None else int(every), partial)


def unbounded() -> UnboundedSpec:
    """Put all rows into one window, emitted when input ends: from the first row's time to the last's + 1 tick.

    >>> import pyarrow as pa, penstock as pk
    >>> events = pk.from_arrow(pa.table({"t": [3, 9], "v": [1, 2]}), time="t")
    >>> events.window(pk.unbounded()).agg(total=pk.sum("v")).collect().to_pydict()
    {'window_start': [3], 'window_end': [10], 'total': [3]}
    """
    return UnboundedSpec()


def require_positive(duration: Any, what: str) -> None:
    """Reject a length that is not positive."""
    length = nanoseconds(duration, what) if isinstance(duration, (str, timedelta)) else duration
    if not isinstance(length, Fraction) and not is_whole(length):
        length = nanoseconds(duration, what)
    if length <= 0:
        raise WindowError(f"{what} is {duration!r}; it must be longer than zero")


def _refuse_explosion(per_row: int, size: object, every: object, most: int = MOST_WINDOWS_PER_ROW) -> None:
    if per_row > most:
        raise WindowError(
            f"a window of {size!r} every {every!r} puts each row into {per_row:,} windows, more than "
            f"{most:,}; use a larger step (every=) or a smaller size"
        )


def _calendar(spec: WindowSpec, zone: str, time: Time) -> Window:
    unit = time.unit or ""
    size, every = calendar_step(spec.size, time.unit, _SIZE), calendar_step(spec.every, time.unit, _STEP)
    offset = 0 if spec.offset is None else to_ticks(spec.offset, time, _OFFSET)
    calendar = Calendar(size, every, offset, zone, unit)
    check_calendar(calendar)
    starts, _ = calendar_bounds(calendar, 0, 0) if not _is_long(size, every) else ((), ())
    _refuse_explosion(max(len(starts), _ratio(size, every)), spec.size, spec.every)
    return calendar


def _is_long(size: CalendarStep, every: CalendarStep) -> bool:
    return _ratio(size, every) > MOST_WINDOWS_PER_ROW


def _ratio(size: CalendarStep, every: CalendarStep) -> int:
    if size.months and every.months:
        return -(-size.months // every.months)
    if size.ticks and every.ticks:
        return -(-size.ticks // every.ticks)
    return 1
