"""Times on the wall clock of their zone: rounded down to calendar units, by Arrow, and written out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from penstock.errors import UnsupportedError
from penstock.expr.arithmetic import Setting
from penstock.expr.calendar import local_nanoseconds
from penstock.types.arrow import from_physical, physical_values

Options = Mapping[str, Any]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def floor_time(times: pa.Array, options: Options) -> pa.Array:
    """Round down to a multiple of some months, weeks, days … on the clock of the column's zone; weeks begin on Monday."""
    import pyarrow.compute as pc  # noqa: PLC0415 - loads when rows are there

    try:
        return pc.floor_temporal(
            times, multiple=options["every"], unit=options["unit"], week_starts_monday=True
        ).cast(times.type)
    except pa.ArrowInvalid as error:
        raise UnsupportedError(f"a time cannot be truncated in zone {times.type.tz!r}: {error}") from None


def of_one(function: Callable[[pa.Array, Options], pa.Array]) -> Callable[[Setting, int], Any]:
    """Define a function of one time by that of many."""
    return lambda setting, ticks: physical_values(
        function(from_physical([ticks], setting.types[0]), setting.options)
    )[0]


def strftime(setting: Setting, ticks: Any) -> str:
    """Write a time on the clock of its zone, as C's strftime does; years have four digits."""
    micros = local_nanoseconds(ticks, setting.types[0]) // 1_000
    try:
        return (_EPOCH + timedelta(microseconds=micros)).strftime(str(setting.options["format"]))
    except (OverflowError, ValueError):
        raise UnsupportedError("strftime writes times of the years 1 to 9999 alone") from None
