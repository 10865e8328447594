"""Windows on the calendar worked out by hand: days of 23 and 25 hours, months, weeks, lateness."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

import penstock as pk

BERLIN = ZoneInfo("Europe/Berlin")
EVENTS = {"t": "timestamp[s, UTC]"}


def at(text: str) -> datetime:
    """Read a time of the clocks in Berlin."""
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN)


def events(*moments: str) -> pa.Table:
    return pa.table({"t": pa.array([at(moment) for moment in moments], pa.timestamp("s", "UTC"))})


def _shown(table: pa.Table) -> list[tuple[str, str, int]]:
    return [
        (_local(row["window_start"]), _local(row["window_end"]), row["n"])
        for row in table.select(["window_start", "window_end", "n"]).to_pylist()
    ]


def _local(moment: datetime) -> str:
    return moment.astimezone(BERLIN).strftime("%Y-%m-%d %H:%M")


def windows(table: pa.Table, window: Any) -> list[tuple[str, str, int]]:
    return _shown(pk.from_arrow(table, time="t").window(window).agg(n=pk.count()).collect())


def hours(table: pa.Table) -> list[float]:
    rows = table.to_pylist()
    return [(row["window_end"] - row["window_start"]).total_seconds() / 3600 for row in rows]


def test_a_day_runs_from_midnight_to_midnight_of_its_zone() -> None:
    """In January, midnight in Berlin is 23:00 UTC."""
    table = events("2026-01-10 00:00", "2026-01-10 23:59", "2026-01-11 00:00")
    assert windows(table, pk.tumbling("1d", tz="Europe/Berlin")) == [
        ("2026-01-10 00:00", "2026-01-11 00:00", 2),
        ("2026-01-11 00:00", "2026-01-12 00:00", 1),
    ]


def test_the_day_the_clocks_go_forward_has_23_hours_and_the_day_they_go_back_25() -> None:
    table = events("2026-03-29 12:00", "2026-10-25 12:00", "2026-10-26 12:00")
    days = pk.from_arrow(table, time="t").window(pk.tumbling("1d", tz="Europe/Berlin")).agg(n=pk.count())
    assert hours(days.collect()) == [23.0, 25.0, 24.0]


def test_months_are_as_long_as_they_are() -> None:
    table = events("2024-02-29 23:59", "2024-03-01 00:00", "2024-03-31 23:59")
    assert windows(table, pk.tumbling("1mo", tz="Europe/Berlin")) == [
        ("2024-02-01 00:00", "2024-03-01 00:00", 1),
        ("2024-03-01 00:00", "2024-04-01 00:00", 2),
    ]


def test_weeks_begin_on_monday() -> None:
    """2026-03-29 is a Sunday."""
    table = events("2026-03-23 00:00", "2026-03-29 23:59", "2026-03-30 00:00")
    assert windows(table, pk.tumbling("1w", tz="Europe/Berlin")) == [
        ("2026-03-23 00:00", "2026-03-30 00:00", 2),
        ("2026-03-30 00:00", "2026-04-06 00:00", 1),
    ]


@pytest.mark.parametrize(
    ("window", "starts"),
    [
        (pk.tumbling("1w"), ["2026-03-23", "2026-03-30"]),
        (pk.tumbling("7d"), ["2026-03-19", "2026-03-26"]),
        (pk.tumbling("2w"), ["2026-03-23"]),
        (pk.tumbling("1w", offset="1d"), ["2026-03-17", "2026-03-24"]),
        (pk.sliding("2w", every="1w"), ["2026-03-16", "2026-03-23", "2026-03-30"]),
        (pk.sliding("1w", every="7d"), ["2026-03-19", "2026-03-26"]),
    ],
)
def test_weeks_begin_on_monday_without_a_zone_too(window: Any, starts: list[str]) -> None:
    """The 23rd and the 30th are Mondays, the 19th and the 26th Thursdays, as the 1st of January 1970 was."""
    table = pa.table({"day": pa.array([date(2026, 3, 23), date(2026, 3, 30)])})
    made = pk.from_arrow(table, time="day").window(window).agg(n=pk.count()).collect()
    assert [str(start) for start in made["window_start"].to_pylist()] == starts


def test_weeks_of_signals_begin_on_monday() -> None:
    days = pa.array([date(2026, 3, 22), date(2026, 3, 23), date(2026, 3, 29)])
    level = pk.from_arrow(pa.table({"day": days, "v": [1.0, 2.0, 3.0]}), time="day").signal("v")
    weeks = {
        "per": (level.per("1w").sum(), ["2026-03-16", "2026-03-23"], [1.0, 5.0]),
        "window": (level.window("1w").sum(), ["2026-03-23", "2026-03-30"], [1.0, 5.0]),
        "time": (level.per("1w").time_mean(), ["2026-03-16", "2026-03-23"], [1.0, 2.0]),
        "resample": (level.resample(every="1w", method="last"), ["2026-03-23"], [2.0]),
        "chop": (level.chop("1w").per("1d").count(), ["2026-03-22", "2026-03-29"], [1, 1]),
    }
    for name, (signal, starts, values) in weeks.items():
        made = signal.collect()
        assert [str(start) for start in made["start"].to_pylist()] == starts, name
        assert made["value"].to_pylist() == pytest.approx(values), name


def test_an_offset_moves_days_on_the_wall_clock() -> None:
    """A day from six to six, also across the change of clocks."""
    table = events("2026-03-28 06:00", "2026-03-29 05:59", "2026-03-29 06:00")
    assert windows(table, pk.tumbling("1d", offset="6h", tz="Europe/Berlin")) == [
        ("2026-03-28 06:00", "2026-03-29 06:00", 2),
        ("2026-03-29 06:00", "2026-03-30 06:00", 1),
    ]


def test_two_days_may_overlap_by_one() -> None:
    table = events("2026-03-29 12:00")
    assert windows(table, pk.sliding("2d", every="1d", tz="Europe/Berlin")) == [
        ("2026-03-28 00:00", "2026-03-30 00:00", 1),
        ("2026-03-29 00:00", "2026-03-31 00:00", 1),
    ]


def test_a_day_is_given_when_the_watermark_reaches_its_midnight() -> None:
    stream = pk.stream("events", EVENTS, time="t")
    days = stream.window(pk.tumbling("1d", tz="Europe/Berlin")).agg(n=pk.count())
    with days.open() as live:
        assert live.push(events("2026-03-29 23:59")) == []
        assert [_shown(pa.Table.from_batches([b])) for b in live.push(events("2026-03-30 00:00"))] == [
            [("2026-03-29 00:00", "2026-03-30 00:00", 1)]
        ]


def test_a_row_is_late_only_when_all_days_that_hold_it_are_over() -> None:
    """At noon of the 31st the days 29-30 are over; a row of the 30th still counts for the days 30-31."""
    stream = pk.stream("events", EVENTS, time="t")
    pairs = stream.window(pk.sliding("2d", every="1d", tz="Europe/Berlin")).agg(n=pk.count())
    with pairs.open() as live:
        early = live.push(events("2026-03-31 12:00"))
        early += live.push(events("2026-03-30 12:00"))
        early += live.push(events("2026-03-29 12:00"))
        assert early == []
        shown = [row for batch in live.finish() for row in _shown(pa.Table.from_batches([batch]))]
        assert shown == [
            ("2026-03-30 00:00", "2026-04-01 00:00", 2),
            ("2026-03-31 00:00", "2026-04-02 00:00", 1),
        ]
        assert (live.metrics.accepted, live.metrics.late) == (2, 1)
