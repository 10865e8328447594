"""Dates and intervals in SQL: what the fluent API says of them holds."""

from __future__ import annotations

from datetime import date, timedelta

import pyarrow as pa

import penstock as pk

TABLE = pa.table(
    {"t": [0, 1], "day": [date(2026, 2, 28), None], "took": pa.array([3, None], pa.duration("s"))}
)


def test_intervals_move_dates_and_are_divided() -> None:
    trips = pk.from_arrow(TABLE, time="t", name="trips")
    text = "select day + interval '1' day as a, day - interval '1' second as b, took / 2 as c, took * 0.5 as d from trips"
    first, second = pk.sql(text, trips=trips).collect().to_pylist()
    assert first == {
        "a": date(2026, 3, 1),
        "b": date(2026, 2, 27),
        "c": timedelta(seconds=1),
        "d": timedelta(seconds=1),
    }
    assert set(second.values()) == {None}
