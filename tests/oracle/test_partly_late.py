"""Rows that miss some of their windows and enter others: counted as the plain definition says, and accepted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from penstock.ir.windows import LATE, PARTLY_LATE, fates
from penstock.types.windows import Calendar, TimeWindow, Window
from tests.oracle.effort import effort
from tests.restarts import ENGINES

START = -(1 << 63)
HOUR = 3600
SCHEMA = {"t": "timestamp[s]", "v": "int64"}
Rows = list[tuple[int, int]]

READERS: dict[str, Callable[[Any], Any]] = {
    "panes": lambda window: window.agg(n=pk.sum("v")),
    "partitions": lambda window: window.agg(n=pk.median("v")),
    "with_columns": lambda window: window.with_columns(n=pk.count()),
    "apply": lambda window: window.apply(lambda rows: rows.select(["v"]), pa.schema({"v": pa.int64()})),
}
WINDOWS: dict[str, tuple[Callable[[], Any], Window]] = {
    "sliding": (lambda: pk.sliding("6h", every="2h"), TimeWindow(6 * HOUR, 2 * HOUR)),
    "uneven": (lambda: pk.sliding("7h", every="3h", offset="1h"), TimeWindow(7 * HOUR, 3 * HOUR, HOUR)),
    "tumbling": (lambda: pk.tumbling("5h"), TimeWindow(5 * HOUR, 5 * HOUR)),
    "with gaps": (lambda: pk.sliding("2h", every="5h"), TimeWindow(2 * HOUR, 5 * HOUR)),
}


def watermarks(rows: Rows, lateness: int) -> list[int]:
    """The watermark of the rows before each row, filtered ones too."""
    reached, found = START, []
    for time, _ in rows:
        found.append(reached)
        reached = max(reached, time - lateness)
    return found


def expected(domain: Window, rows: Rows, lateness: int) -> tuple[int, int]:
    """How many of the rows that the filter lets through are partly late, and late."""
    arrivals = zip(rows, watermarks(rows, lateness), strict=True)
    found = fates(domain, [(time, None, mark) for (time, v), mark in arrivals if v > 0])
    return found.count(PARTLY_LATE), found.count(LATE)


def pushed(query: Any, rows: Rows, size: int, restarts: bool, engine: pk.Engine) -> pk.Metrics:
    live = query.open(engine=engine)
    for begin in range(0, len(rows), size):
        part = rows[begin : begin + size]
        times = pa.array([time for time, _ in part], pa.timestamp("s"))
        if restarts:
            live = query.open(state=live.state(), engine=engine)
        live.push(pa.record_batch({"t": times, "v": pa.array([v for _, v in part], pa.int64())}))
    live.finish()
    return live.metrics


ROWS = st.lists(st.tuples(st.integers(-60 * HOUR, 60 * HOUR), st.integers(0, 3)), min_size=1, max_size=40)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("window", WINDOWS)
@effort(25)
@given(
    rows=ROWS,
    size=st.integers(1, 40),
    hours=st.integers(0, 20),
    restarts=st.booleans(),
    engine=st.sampled_from(sorted(ENGINES)),
)
def test_rows_that_miss_some_of_their_windows_are_counted(
    reader: str, window: str, rows: Rows, size: int, hours: int, restarts: bool, engine: str
) -> None:
    make, domain = WINDOWS[window]
    source = pk.stream("s", SCHEMA, time="t", lateness=f"{hours}h").filter(pk.col("v") > 0)
    metrics = pushed(READERS[reader](source.window(make())), rows, size, restarts, ENGINES[engine])
    assert (metrics.partly_late, metrics.late) == expected(domain, rows, hours * HOUR)
    assert metrics.accepted + metrics.late + metrics.filtered == metrics.read == len(rows)
    assert metrics.partly_late <= metrics.accepted


@effort(25)
@given(rows=ROWS, size=st.integers(1, 40), hours=st.integers(0, 20), restarts=st.booleans())
def test_calendar_windows_count_them_too(rows: Rows, size: int, hours: int, restarts: bool) -> None:
    source = pk.stream("s", SCHEMA, time="t", lateness=f"{hours}h").filter(pk.col("v") > 0)
    query = source.window(pk.sliding("2d", every="1d", tz="Europe/Berlin")).agg(n=pk.sum("v"))
    domain = next(
        this.body.domain for this in query.compiled().program.objects if hasattr(this.body, "domain")
    )
    assert isinstance(domain, Calendar)
    metrics = pushed(query, rows, size, restarts, pk.Engine())
    assert (metrics.partly_late, metrics.late) == expected(domain, rows, hours * HOUR)


def test_joins_in_sliding_windows_have_no_such_rows() -> None:
    """A row before the watermark of its stream is late for a join; any other misses no window."""
    left, right = (pk.stream(name, {"t": "int64", "k": "int64"}, time="t") for name in ("a", "b"))
    live = left.join(right, on="k", window=pk.sliding(10, every=5)).open()
    live.push(a=pa.record_batch({"t": [1, 14, 11, 20], "k": [1, 1, 1, 1]}))
    live.push(b=pa.record_batch({"t": [1, 30, 27], "k": [1, 1, 1]}))
    live.finish()
    assert (live.metrics.partly_late, live.metrics.late, live.metrics.accepted) == (0, 2, 5)


def test_a_row_that_misses_one_of_its_two_windows_is_in_the_other() -> None:
    live = pk.stream("s", {"t": "int64"}, time="t").window(10, every=5).agg(n=pk.count()).open()
    made = live.push(pa.record_batch({"t": [2, 22]}))
    made += live.push(pa.record_batch({"t": [17, 9]}))
    made += live.finish()
    assert [tuple(row.values()) for batch in made for row in batch.to_pylist()] == [
        (-5, 5, 1),
        (0, 10, 1),
        (15, 25, 2),
        (20, 30, 1),
    ]
    counts = live.metrics
    assert (counts.read, counts.accepted, counts.late, counts.partly_late) == (4, 3, 1, 1)
