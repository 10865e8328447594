"""Bytewax in this process, fed in batches as its guides advise."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from benchmarks.live.feed import Arrivals, Feed, rows_of
from benchmarks.live.measure import QUANTILES, WARM, wait_until
from benchmarks.live.points import Found
from benchmarks.live.queries import QUERIES, completing_rows
from benchmarks.workloads import START_US

BATCH = 1_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FAR = datetime(9999, 1, 1, tzinfo=UTC)
MOST = 1 << 62
LATENCY_SECONDS = 4.0
GAP_US = 5_000
GRIDS = {"tumbling": (100_000, 100_000), "sliding": (1_000_000, 10_000)}
"""Size and slide in microseconds."""


class Row(NamedTuple):
    """A row of the feed."""

    ts: datetime
    key: int
    et: int
    val: int


@contextmanager
def open_bytewax() -> Iterator[Bytewax | None]:
    """Give nothing where it is not installed."""
    yield Bytewax() if find_spec("bytewax") else None


@dataclass
class Bytewax:
    """Window folds by key on one worker: more would share one interpreter. It has no look-backs and no SQL."""

    name: str = "Bytewax"
    rows: int = 200_000
    queries: tuple[str, ...] = ("tumbling", "sliding", "session", "filter")

    def answer(self, query: str, feed: Feed, threads: int) -> pa.Table:
        """Collect all results."""
        return run(query, rows_in_batches(feed))[0]

    def throughput(self, query: str, feed: Feed, threads: int) -> Mapping[str, Found]:
        """Run over rows that are Python objects already."""
        batches = rows_in_batches(feed)
        begin, begin_cpu = time.perf_counter(), time.process_time()
        run(query, batches)
        return {"": Found(feed.rows, time.perf_counter() - begin, time.process_time() - begin_cpu)}

    def latency(self, query: str, feed: Feed, threads: int, rate: float) -> Found:
        """Give each batch when its last row is due."""
        several = replace(feed, rows=min(feed.rows, max(int(rate * LATENCY_SECONDS), 20 * BATCH)))
        batches = rows_in_batches(several)
        begin = time.perf_counter()
        table, moments = run(query, batches, lambda number: wait_until(begin + (number + 1) * BATCH / rate))
        waits = waits_of(query, several, table, np.array(moments) - begin, rate)
        quantiles = {name: float(np.quantile(waits, part)) for name, part in QUANTILES.items() if len(waits)}
        return Found(several.rows, time.perf_counter() - begin, 0.0, True, quantiles, len(waits))

    def source(self, feed: Feed, threads: int) -> Found | None:
        """Rows are in memory beforehand."""
        return None


def rows_in_batches(feed: Feed) -> list[list[Row]]:
    """Make the rows as Python objects."""
    table = rows_of(feed)
    times = [EPOCH + timedelta(microseconds=int(tick)) for tick in Arrivals.of(table).times]
    columns = (table[name].to_pylist() for name in ("key", "et", "val"))
    rows = [Row(*values) for values in zip(times, *columns, strict=True)]
    return [rows[at : at + BATCH] for at in range(0, len(rows), BATCH)]


def run(
    query: str, batches: Sequence[list[Row]], wait: Callable[[int], None] = lambda number: None
) -> tuple[pa.Table, list[float]]:
    """Run the dataflow to its end; return results and when each came out."""
    import bytewax.operators as op  # noqa: PLC0415 - an optional peer
    from bytewax.dataflow import Dataflow  # noqa: PLC0415
    from bytewax.testing import TestingSink, TestingSource, run_main  # noqa: PLC0415

    def given() -> Iterator[list[Row]]:
        for number, batch in enumerate(batches):
            wait(number)
            yield batch

    timed_batch, found = Dataflow("live"), list[tuple[int, int, int, int, float]]()
    rows = op.flat_map("rows", op.input("in", timed_batch, TestingSource(given())), lambda batch: batch)
    if query != "session":
        rows = op.filter("views", rows, lambda row: row.et == 1)
    results = doubled(rows) if query == "filter" else windowed(query, rows)
    op.output("out", op.map("clock", results, lambda row: (*row, time.perf_counter())), TestingSink(found))
    run_main(timed_batch)
    columns = list(zip(*found, strict=True)) or [()] * 5
    plain = dict(zip(("start", "end", "key", "value"), columns, strict=False))
    return pa.table({name: pa.array(values, pa.int64()) for name, values in plain.items()}), list(columns[4])


def doubled(rows: Any) -> Any:
    """Give a row's time twice, its key and twice its value."""
    import bytewax.operators as op  # noqa: PLC0415

    return op.map("twice", rows, lambda row: (micros(row.ts), micros(row.ts), row.key, 2 * row.val))


def windowed(query: str, rows: Any) -> Any:
    """Fold windows by key, and join each result with the bounds of its window."""
    import bytewax.operators as op  # noqa: PLC0415
    import bytewax.operators.windowing as win  # noqa: PLC0415

    aligned = EPOCH + timedelta(microseconds=START_US)
    windowers = {
        "tumbling": lambda: win.TumblingWindower(timedelta(milliseconds=100), aligned),
        "sliding": lambda: win.SlidingWindower(timedelta(seconds=1), timedelta(milliseconds=10), aligned),
        "session": lambda: win.SessionWindower(timedelta(milliseconds=5)),
    }
    # Time moves by rows alone: its own clock would also let it pass while rows are computed.
    clock = win.EventClock(lambda row: row.ts, timedelta(0), now_getter=lambda: EPOCH)
    by_key = op.key_on("by", rows, lambda row: str(row.key))
    begin, fold, merge = FOLDS[query]
    made = win.fold_window("fold", by_key, clock, windowers[query](), begin, fold, merge)
    return op.map("plain", made.down, lambda pair: plain(query, int(pair[0]), *pair[1]))


def plain(query: str, key: int, window: int, folded: Any) -> tuple[int, int, int, int]:
    """Return start, end, key and value; windows on a grid follow from their number."""
    if query == "session":
        total, first, last = folded
        return micros(first), micros(last) + GAP_US, key, total
    size, every = GRIDS[query]
    return window * every, window * every + size, key, folded


Session = tuple[int, datetime, datetime]
"""A sum, and the first and last time."""


def extended(session: Session, row: Row) -> Session:
    """Add a row to a session; rows come in order of time."""
    return session[0] + row.val, min(session[1], row.ts), row.ts


def merged(left: Session, right: Session) -> Session:
    """Join two sessions."""
    return left[0] + right[0], min(left[1], right[1]), max(left[2], right[2])


FOLDS: Mapping[str, tuple[Callable[[], Any], Callable[[Any, Row], Any], Callable[[Any, Any], Any]]] = {
    "tumbling": (int, lambda total, row: total + row.val, lambda left, right: left + right),
    "sliding": (lambda: MOST, lambda least, row: min(least, row.val), min),
    "session": (lambda: (0, FAR, EPOCH), extended, merged),
}
"""How a window begins, takes a row, and joins another."""


def micros(moment: datetime) -> int:
    """Return microseconds from the first row of the feed."""
    return (moment - EPOCH) // timedelta(microseconds=1) - START_US


def waits_of(query: str, feed: Feed, table: pa.Table, moments: np.ndarray, rate: float) -> np.ndarray:
    """Return how long each result came after the batch that completes it was due."""
    asked, arrivals = QUERIES[query], Arrivals.of(rows_of(feed))
    end = pa.array(table["end"].to_numpy() + START_US).view(pa.timestamp("us"))
    numbers = completing_rows(asked, pa.record_batch({asked.complete or "ts": end}), arrivals, 0) // BATCH
    counted = (numbers >= WARM * feed.rows / BATCH) & (numbers < feed.rows // BATCH)
    waits: np.ndarray = moments[counted] - (numbers[counted] + 1) * BATCH / rate
    return waits
