"""Options of a stream for late rows, malformed rows and idle inputs."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping

import pyarrow as pa

from penstock.api.arguments import shown
from penstock.errors import DurationError, ExpressionTypeError, LateRowsWarning, MalformedRowsWarning
from penstock.plan.nodes import Edges, Source
from penstock.sources.malformed import DROP, ON_BAD
from penstock.types.choices import one_of
from penstock.types.duration import Duration, to_ticks
from penstock.types.time import Time

LateTo = str | os.PathLike[str] | Callable[[pa.RecordBatch], object]
Folder = str | os.PathLike[str]

_PACKAGE = __name__.partition(".")[0]
_WALL = "the clock on the wall"
QUARANTINE = "quarantine"  # the default folder of malformed records


def edges_of(
    on_bad: str | None,
    late_to: LateTo | None = None,
    quarantine_to: Folder | None = None,
    idle_after: Duration | None = None,
    beside: str = QUARANTINE,
) -> Edges:
    """Check the options; malformed records go to `beside` unless a folder is named."""
    if on_bad is not None and not one_of(on_bad, ON_BAD):
        raise ExpressionTypeError(f"on_bad is {shown(on_bad)}; it is one of {', '.join(map(repr, ON_BAD))}")
    if quarantine_to is not None and on_bad != "quarantine":
        raise ExpressionTypeError(
            f"quarantine_to is given, but on_bad is {on_bad or DROP!r}; say on_bad='quarantine'"
        )
    if not isinstance(quarantine_to, str | os.PathLike | None):
        raise ExpressionTypeError(f"quarantine_to is {shown(quarantine_to)}; it is the path of a folder")
    kept = os.fspath(quarantine_to or beside) if on_bad == "quarantine" else None
    idle = None if idle_after is None else round(seconds(idle_after, "idle_after") * 1e6)
    quarantine = None if kept is None else _whole(kept)
    return Edges(_late_to(late_to), quarantine, idle, on_bad_given=on_bad is not None)


def _late_to(given: object) -> str | Callable[[pa.RecordBatch], object] | None:
    match given:
        case None:
            return None
        case str() | os.PathLike():
            return _whole(os.fspath(given))
        case _ if callable(given):
            return given
    raise ExpressionTypeError(
        f"late_to is a {type(given).__name__}; it is a folder, or a function that takes a RecordBatch"
    )


def _whole(folder: str) -> str:
    """Return the absolute path or the URI of a folder: Spark tasks run in other working directories."""
    from penstock.storage.uri import absolute  # noqa: PLC0415 - loaded on first use

    return absolute(folder)


def late_rows_message(late: Mapping[str, int], read: int) -> str:
    """Describe how many rows of which streams were late, and what to do.

    >>> late_rows_message({"clicks": 3}, 10).split(";")[0]
    "3 of the 10 rows read so far came too late and are left out (stream 'clicks')"
    """
    streams = ", ".join(repr(name) for name in late)
    return (
        f"{sum(late.values()):,} of the {read:,} rows read so far came too late and are left out "
        f"(stream{'s' * (len(late) > 1)} {streams}); give lateness= how far out of order rows may come, or late_to= "
        "where late ones go; metrics.late counts them"
    )


def warn_of_malformed_rows(sources: Iterable[Source], malformed: int) -> bool:
    """Warn if malformed rows of a stream without `on_bad` were dropped; return whether a warning was issued."""
    unsaid = [source.name for source in sources if not source.edges.on_bad_given]
    if not malformed or not unsaid:
        return False
    message = (
        f"{malformed} malformed rows were dropped (streams: {', '.join(map(str, unsaid))}); say on_bad='drop' to "
        "accept that, on_bad='fail' for an error that names the first, or on_bad='quarantine' to keep them"
    )
    warnings.warn(message, MalformedRowsWarning, outside_level())
    return True


def warn_of_late_rows(sources: Iterable[Source], late_count: Callable[[str], int], read: int) -> bool:
    """Warn of late rows of streams without options for them; return whether there are any."""
    unsaid = [source.name for source in sources if not source.edges.expects_late_rows]
    late = {name: count for name in unsaid if (count := late_count(name))}
    if late:
        warnings.warn(late_rows_message(late, read), LateRowsWarning, outside_level())
    return bool(late)


def outside_level() -> int:
    """Return the `stacklevel` at which a warning names the first line outside of this package.

    >>> outside_level()
    2
    """
    frame, level = sys._getframe(1), 1  # noqa: SLF001 - warnings.warn does the same
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        frame, level = frame.f_back, level + 1
    return level


def seconds(duration: Duration, what: str) -> float:
    """Convert a wall-clock duration to seconds.

    >>> seconds("1500ms", "poll")
    1.5
    """
    if isinstance(duration, int) and not isinstance(duration, bool):
        raise DurationError(
            f"{what} is the bare number {duration}, which has no unit; give a duration such as '{abs(duration)}s'"
        )
    ticks = to_ticks(duration, Time(_WALL, pa.timestamp("us"), "us"), what)
    if ticks < 0:
        raise DurationError(f"{what} is {duration!r}; it must not be negative")
    return ticks / 1e6
