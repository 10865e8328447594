"""Parts of times in the column's zone, checked against Python's own calendar."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as pk

UTC = dt.UTC
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "Pacific/Apia"]
PARTS: dict[str, Callable[[dt.datetime], int]] = {
    "year": lambda t: t.year,
    "quarter": lambda t: (t.month + 2) // 3,
    "month": lambda t: t.month,
    "week": lambda t: t.isocalendar().week,
    "iso_year": lambda t: t.isocalendar().year,
    "weekday": lambda t: t.isoweekday(),
    "day": lambda t: t.day,
    "ordinal_day": lambda t: t.timetuple().tm_yday,
    "hour": lambda t: t.hour,
    "minute": lambda t: t.minute,
    "second": lambda t: t.second,
    "millisecond": lambda t: t.microsecond // 1_000,
    "microsecond": lambda t: t.microsecond,
}
# Instants around changes of clocks, of the calendar and of the epoch.
MOMENTS = [
    "1969-12-31T23:59:59.999999", "1970-01-01T00:00:00", "2000-02-29T12:00:00", "1900-03-01T00:00:00",
    "2024-03-31T00:59:59", "2024-03-31T01:00:00", "2024-10-27T00:59:59", "2024-10-27T01:00:00",
    "2024-12-30T00:00:00", "2021-01-03T23:30:00", "2026-01-01T05:00:00.123456", "2011-12-30T12:00:00",
]  # fmt: skip


def parts_of(moments: list[dt.datetime], dtype: pa.DataType) -> pa.Table:
    table = pa.table({"t": list(range(len(moments))), "x": pa.array(moments, dtype)})
    made = {name: getattr(pk.col("x").dt, name)() for name in PARTS}
    return pk.from_arrow(table, time="t").select(**made).collect()


@pytest.mark.parametrize("zone", ZONES)
def test_parts_are_those_of_the_wall_clock_in_the_zone(zone: str) -> None:
    moments = [dt.datetime.fromisoformat(text).replace(tzinfo=UTC) for text in MOMENTS]
    result = parts_of(moments, pa.timestamp("us", zone))
    local = [moment.astimezone(ZoneInfo(zone)) for moment in moments]
    for name, part in PARTS.items():
        assert result[name].to_pylist() == [part(value) for value in local], name


@settings(max_examples=15, deadline=None)
@given(
    moments=st.lists(st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2250, 1, 1)), min_size=1, max_size=50),
    unit=st.sampled_from(["us", "ns"]),
)
def test_parts_of_naive_times_are_those_of_utc(moments: list[dt.datetime], unit: str) -> None:
    result = parts_of(moments, pa.timestamp(unit))
    for name, part in PARTS.items():
        assert result[name].to_pylist() == [part(moment) for moment in moments], name


def test_windows_of_a_day_are_days_of_utc_whatever_the_zone() -> None:
    table = pa.table({"t": pa.array([0, 86_399, 86_400], pa.timestamp("s", "Asia/Kolkata")), "v": [1, 2, 4]})
    result = pk.from_arrow(table, time="t").window("1d").agg(s=pk.sum("v")).collect()
    assert result["s"].to_pylist() == [3, 4]


def test_an_hour_of_the_day_as_a_key() -> None:
    table = pa.table({"t": pa.array([0, 3_600, 86_400], pa.timestamp("s")), "v": [1, 2, 4]})
    hourly = pk.from_arrow(table, time="t").with_columns(hour=pk.col("t").dt.hour())
    result = hourly.window("7d", by="hour").agg(s=pk.sum("v")).collect()
    assert dict(zip(result["hour"].to_pylist(), result["s"].to_pylist(), strict=True)) == {0: 5, 1: 2}
