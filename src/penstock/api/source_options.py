"""Options that sources share: their time, bad and late rows, and access to storage."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime
from importlib import import_module
from time import time_ns
from typing import Any

import pyarrow as pa

from penstock.api.literals import literal, shown
from penstock.errors import (
    DurationError,
    ExpressionTypeError,
    SchemaMismatchError,
    WindowError,
)
from penstock.expr.arithmetic import convert
from penstock.expr.rules import zone_of
from penstock.expr.typing import column_type
from penstock.plan.nodes import Edges, Source
from penstock.sources.malformed import DROP, ON_BAD
from penstock.storage.access import LOCAL, Access
from penstock.storage.uri import CLOUD, HADOOP, Uri, resolved
from penstock.types.arrow import TIME_UNITS, kind_of, tick_unit
from penstock.types.choices import one_of
from penstock.types.duration import Duration, is_whole, nanoseconds, to_ticks
from penstock.types.time import NANOSECONDS, Time

# --- How a source reaches its files: by its own options, else by the configuration of the Spark session, else by the environment.


def access_to(paths: Any, storage_options: object = None, filesystem: object = None) -> Access:
    """Check `storage_options=` and `filesystem=` of a source, and fill in the settings of a running Spark session."""
    if storage_options is not None or filesystem is not None:
        return Access.of(storage_options, filesystem)
    uri = _cloud_uri(paths)
    if uri is None or "pyspark.sql" not in sys.modules:
        return LOCAL
    found: Access = import_module("penstock.spark.storage").active_access(uri)
    return found


def _cloud_uri(paths: Any) -> str | None:
    """Return the first path if it lies in an object store. One call reads one store."""
    first = (
        paths
        if isinstance(paths, str | os.PathLike) or not isinstance(paths, list | tuple)
        else next(iter(paths), None)
    )
    if not isinstance(first, str):
        return None
    uri = Uri.of(resolved(first))
    return first if uri is not None and uri.scheme in (*CLOUD, *HADOOP) else None


# --- Options of a stream for late rows, malformed rows and idle inputs.

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


def malformed_rows_warning(sources: Iterable[Source], malformed: int) -> str | None:
    """Return what to warn of if malformed rows of a stream without `on_bad` were dropped."""
    unsaid = [source.name for source in sources if not source.edges.on_bad_given]
    if not malformed or not unsaid:
        return None
    return (
        f"{malformed} malformed rows were dropped (streams: {', '.join(map(str, unsaid))}); say on_bad='drop' to "
        "accept that, on_bad='fail' for an error that names the first, or on_bad='quarantine' to keep them"
    )


def late_rows_warning(sources: Iterable[Source], late_count: Callable[[str], int], read: int) -> str | None:
    """Return what to warn of if streams without options for late rows had some."""
    unsaid = [source.name for source in sources if not source.edges.expects_late_rows]
    late = {name: count for name in unsaid if (count := late_count(name))}
    return late_rows_message(late, read) if late else None


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


# --- Resolve the time of a stream from the user's arguments.

IMPLIED = "time"


@dataclass(frozen=True, slots=True)
class Every:
    """Regular time implied by the position of a row: `start + i * period`."""

    period: Duration
    start: object = None
    unit: str | None = None


def every(period: Duration, start: object = None, unit: str | None = None) -> Every:
    """Declare that rows follow at a fixed period, so that no time column is stored.

    The stream gets a column `time`: timestamps if the period has a unit, integer ticks if it is a
    bare number (`unit=` then sets the length of a tick).

    >>> import pyarrow as pa, penstock as pk
    >>> ecg = pk.from_arrow(pa.table({"mv": [0.1, 0.2, 0.4]}), time=pk.every("4ms"))
    >>> ecg.schema
    time: timestamp[us]
    mv: double
    """
    length = period if is_whole(period) else nanoseconds(period, "the period of pk.every")
    if length <= 0:
        raise WindowError(f"the period of pk.every is {period!r}; it must be longer than zero")
    _check_unit(unit)
    return Every(period, start, unit)


@dataclass(frozen=True, slots=True)
class Arrival:
    """The time at which rows arrive. `clock` returns nanoseconds since the epoch."""

    unit: str = "us"
    clock: Callable[[], int] = time_ns


def arrival(unit: str = "us", *, clock: Callable[[], int] = time_ns) -> Arrival:
    """Stamp rows with the time at which they are pushed, for windows over processing time.

    The stream gets a column `time`, timestamps in UTC, which never decrease: no row is late. Windows close as the clock
    passes their end: at the next push, in `live.wait()`, or without a call in `open(background=True)`. `clock` returns
    nanoseconds since the epoch.

    >>> import penstock as pk
    >>> now = 1_500_000_000
    >>> clicks = pk.stream("clicks", {"v": "int64"}, time=pk.arrival(clock=lambda: now))
    >>> with clicks.window("1s").agg(total=pk.sum("v")).open() as live:
    ...     made = live.push({"v": 3})
    ...     now = 2_000_000_000
    ...     made += live.wait()
    >>> [batch["total"].to_pylist() for batch in made]
    [[3]]
    """
    if not callable(clock):
        raise ExpressionTypeError(
            f"clock is {shown(clock)}; it is a function that returns nanoseconds, such as time.time_ns"
        )
    if unit not in TIME_UNITS:
        raise DurationError(f"unit={unit!r} is not a unit of timestamps; use one of {', '.join(TIME_UNITS)}")
    return Arrival(unit, clock)


def _check_unit(unit: str | None) -> None:
    if unit is not None and (not isinstance(unit, str) or unit not in NANOSECONDS):
        raise DurationError(f"unit is {unit!r}; it is one of {', '.join(map(repr, NANOSECONDS))}")


def time_of_source(schema: pa.Schema, time: object, unit: str | None) -> tuple[pa.Schema, Time]:
    """Return the schema in which a stream's data is read, and its time."""
    match time:
        case Every():
            return schema, _implied(schema, _in_unit(time, unit))
        case Arrival():
            return _arriving(schema, time, unit)
        case str():
            readable = _signed_time(schema, time)
            return readable, _explicit(readable, time, unit)
        case _:
            raise ExpressionTypeError(
                f"time= names a column, or is pk.every(...) or pk.arrival(), but it is a {type(time).__name__}; "
                "write time='ts' or time=pk.every('4ms')"
            )


def _arriving(schema: pa.Schema, given: Arrival, unit: str | None) -> tuple[pa.Schema, Time]:
    """Add the column of arrival times, which ingress fills."""
    if unit is not None:
        raise DurationError("unit= is for integer columns; write time=pk.arrival(unit='ms')")
    if IMPLIED in schema.names:
        raise SchemaMismatchError(
            f"pk.arrival adds a column {IMPLIED!r}, but the stream already has one; drop or rename it, or name it as time="
        )
    dtype = pa.timestamp(given.unit, "UTC")
    return schema.insert(0, pa.field(IMPLIED, dtype)), Time(IMPLIED, dtype, given.unit)


def _signed_time(schema: pa.Schema, name: str) -> pa.Schema:
    """Convert unsigned times to int64: a window may start before zero."""
    if kind_of(column_type(name, schema)) != "uint":
        return schema
    return schema.set(schema.get_field_index(name), pa.field(name, pa.int64()))


def _explicit(schema: pa.Schema, name: str, unit: str | None) -> Time:
    dtype = column_type(name, schema)
    own = tick_unit(dtype)
    _check_unit(unit)
    if kind_of(dtype) == "int":
        return Time(name, dtype, unit)
    if kind_of(dtype) not in ("timestamp", "date"):
        raise ExpressionTypeError(
            f"the time column {name!r} is {dtype}; time is a timestamp, a date or an integer: cast it first, or, in files "
            f"of text, say how to read it, as in schema={{{name!r}: 'timestamp[us]', …}}"
        )
    if unit not in (None, own):
        raise DurationError(
            f"unit={unit!r} is for integer columns; the time column {name!r} is {dtype}, so leave it out"
        )
    return Time(name, dtype, own)


def _in_unit(given: Every, unit: str | None) -> Every:
    """Apply the `unit=` of the source to `pk.every`."""
    _check_unit(unit)
    if unit not in (None, given.unit) and given.unit is not None:
        raise DurationError(
            f"unit={unit!r} of the stream is not unit={given.unit!r} of pk.every; give one of them"
        )
    return given if unit is None else replace(given, unit=unit)


def _implied(schema: pa.Schema, given: Every) -> Time:
    if IMPLIED in schema.names:
        raise SchemaMismatchError(
            f"pk.every adds a column {IMPLIED!r}, but the data already has one; drop or rename it, or name it as time="
        )
    dtype, unit = _implied_type(given)
    bare = Time(IMPLIED, dtype, unit)
    period = to_ticks(given.period, bare, "the period of pk.every")
    start = 0 if given.start is None else instant(given.start, bare, "the start of pk.every")
    return Time(IMPLIED, dtype, unit, period=period, start=start)


def _implied_type(given: Every) -> tuple[pa.DataType, str | None]:
    if is_whole(given.period):
        return pa.int64(), given.unit
    unit = given.unit or ("us" if nanoseconds(given.period) % 1_000 == 0 else "ns")
    aware = isinstance(given.start, datetime) and given.start.tzinfo is not None
    if unit not in TIME_UNITS:
        raise DurationError(f"unit={unit!r} is not a unit of timestamps; use one of {', '.join(TIME_UNITS)}")
    return pa.timestamp(unit, "UTC" if aware else None), unit


def instant(value: object, time: Time, what: str) -> int:
    """Convert a point in time to ticks of a stream's time."""
    if is_whole(value):
        return _bare_instant(int(value), time, what)
    moment = _moment(value, what)
    given = literal(moment)
    if kind_of(time.type) == "int":
        target = (
            pa.timestamp("s" if time.unit == "d" else time.unit, zone_of(given.type)) if time.unit else None
        )
    else:
        target = time.type
    if target is None:
        raise DurationError(
            f"{what} is {moment.isoformat()}, but time counts ticks of no unit; give ticks, or declare unit="
        )
    if (zone_of(given.type) is None) != (zone_of(target) is None):
        raise DurationError(
            f"{what} is {moment.isoformat()}, but the time column is {time.type}: "
            "give both a time zone, or neither"
        )
    ticks = convert(given.value, given.type, target)
    return int(ticks) // 86_400 if time.unit == "d" and kind_of(time.type) == "int" else int(ticks)


def _bare_instant(ticks: int, time: Time, what: str) -> int:
    if kind_of(time.type) != "int":
        raise DurationError(f"{what} is the bare number {ticks}, but time is {time.type}; give a datetime")
    return ticks


def _moment(value: object, what: str) -> datetime:
    match value:
        case datetime():
            return value
        case date():
            return datetime(value.year, value.month, value.day)  # noqa: DTZ001 - naive, like the column
        case str():
            try:
                return datetime.fromisoformat(value)
            except ValueError:
                raise DurationError(f"{what} is {value!r}; write it like '2026-01-31T12:00:00'") from None
        case _:
            raise DurationError(
                f"{what} is a {type(value).__name__}; give a datetime, a date, an ISO string or ticks"
            )
