"""Windows as users describe them, before they meet a stream and its unit of time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from penstock.errors import UnsupportedError, WindowError
from penstock.plan.nodes import TimeWindow
from penstock.types.duration import Duration, nanoseconds, to_ticks
from penstock.types.time import Time

MOST_WINDOWS_PER_ROW = 1_000_000


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """Windows of `size`, one starting every `every`, shifted by `offset`."""

    size: Duration
    every: Duration
    offset: Duration | None = None


def tumbling(size: Duration, offset: Duration | None = None, tz: str | None = None) -> WindowSpec:
    """Cut time into windows that follow each other without gap or overlap.

    They are half-open, `[start, end)`, and aligned to 1970-01-01 UTC plus the offset.

    >>> import penstock as pk
    >>> pk.tumbling("10s")
    WindowSpec(size='10s', every='10s', offset=None)
    """
    return sliding(size, size, offset, tz)


def sliding(
    size: Duration, every: Duration, offset: Duration | None = None, tz: str | None = None
) -> WindowSpec:
    """Cut time into windows that overlap: one of `size` starts every `every`.

    >>> import penstock as pk
    >>> pk.sliding("1h", every="5m").every
    '5m'
    """
    if tz is not None:
        raise UnsupportedError("calendar windows (tz=) are not in this version; windows are aligned to UTC")
    for what, given in (("the size of the window", size), ("the step of the window (every=)", every)):
        _require_positive(given, what)
    return WindowSpec(size, every, offset)


def _require_positive(duration: Any, what: str) -> None:
    length = nanoseconds(duration, what) if isinstance(duration, (str, timedelta)) else duration
    if isinstance(length, bool) or not hasattr(length, "__index__"):
        length = nanoseconds(duration, what)
    if length <= 0:
        raise WindowError(f"{what} is {duration!r}; it must be longer than zero")


def resolve(spec: WindowSpec, time: Time) -> TimeWindow:
    """Count a window in ticks of a stream's time, refusing plans with far too many windows."""
    size = to_ticks(spec.size, time, "the size of the window")
    every = to_ticks(spec.every, time, "the step of the window (every=)")
    offset = 0 if spec.offset is None else to_ticks(spec.offset, time, "the offset of the window")
    per_row = -(-size // every)
    if per_row > MOST_WINDOWS_PER_ROW:
        raise WindowError(
            f"a window of {spec.size!r} every {spec.every!r} puts each row into {per_row:,} windows, more than "
            f"{MOST_WINDOWS_PER_ROW:,}; use a larger step (every=) or a smaller size"
        )
    return TimeWindow(size, every, offset % every)


def session(gap: Duration) -> WindowSpec:
    """Group rows that follow each other within a gap: not in this version.

    >>> import penstock as pk
    >>> pk.session("30m")
    Traceback (most recent call last):
    penstock.errors.UnsupportedError: session windows are not in this version; ...
    """
    raise _later("session")


def rows(size: int, every: int | None = None, partial: bool = False) -> WindowSpec:
    """Group rows by their number: not in this version.

    >>> import penstock as pk
    >>> pk.rows(100)
    Traceback (most recent call last):
    penstock.errors.UnsupportedError: count windows are not in this version; ...
    """
    raise _later("count")


def unbounded() -> WindowSpec:
    """Put all rows into one window: not in this version.

    >>> import penstock as pk
    >>> pk.unbounded()
    Traceback (most recent call last):
    penstock.errors.UnsupportedError: unbounded windows are not in this version; ...
    """
    raise _later("unbounded")


def _later(kind: str) -> UnsupportedError:
    return UnsupportedError(f"{kind} windows are not in this version; use pk.tumbling or pk.sliding")
