"""The seven live queries, and the time at which each of their results is complete."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pyarrow as pa

import penstock as pk
from benchmarks.live.feed import SCHEMA, Arrivals, Feed, Ints

TICK = 1
NEVER = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Query:
    """A query over the rows of a feed.

    A result is complete when the watermark reaches the time in its column `complete`, plus `after`
    microseconds. An empty `complete` means that a result is complete as soon as its row is there.
    `signal` results are intervals, of which only `collect` merges equal neighbours.
    """

    name: str
    make: Callable[[Any], Any]
    complete: str
    after: int = 0
    signal: bool = False


def _tumbling(rows: Any) -> Any:
    return rows.filter(pk.col("et") == 1).window(pk.tumbling("100ms"), by="key").agg(total=pk.sum("val"))


def _sliding(rows: Any) -> Any:
    windows = rows.filter(pk.col("et") == 1).window(pk.sliding("1s", "10ms"), by="key")
    return windows.agg(least=pk.min("val"))


def _session(rows: Any) -> Any:
    return rows.window(pk.session("5ms"), by="key").agg(total=pk.sum("val"))


def _count(rows: Any) -> Any:
    return rows.window(pk.rows(100), by="key").agg(total=pk.sum("val"))


def _rolling(rows: Any) -> Any:
    return rows.rolling("100ms", by="key").agg(mean=pk.mean("val"))


def _signal(rows: Any) -> Any:
    return rows.signal("val", by="key").rolling("1ms").mean()


def _filter(rows: Any) -> Any:
    return rows.filter(pk.col("et") == 1).select(key=pk.col("key"), twice=pk.col("val") * 2)


QUERIES: Mapping[str, Query] = MappingProxyType(
    {
        query.name: query
        for query in (
            Query("tumbling", _tumbling, "window_end"),
            Query("sliding", _sliding, "window_end"),
            # A row at exactly the end of a session still belongs to it.
            Query("session", _session, "window_end", after=TICK),
            Query("count", _count, "window_end"),
            Query("rolling", _rolling, "ts", after=TICK),
            Query("signal", _signal, "end", after=TICK, signal=True),
            Query("filter", _filter, ""),
        )
    }
)


def query_of(name: str, feed: Feed) -> Any:
    """Build a query over a stream that is not bound to data yet."""
    lateness = f"{feed.disorder_us}us" if feed.disorder_us else None
    return QUERIES[name].make(pk.stream("rows", SCHEMA, time="ts", lateness=lateness))


def completing_rows(query: Query, result: pa.RecordBatch, arrivals: Arrivals, lateness: int) -> Ints:
    """Return, for each result row, the position of the input row that completes it.

    This is the first row whose arrival moves the watermark (the largest time less the lateness) to the
    time of completion; the number of rows if no row does and the end of input completes it.
    """
    times = result.column(query.complete or "ts").cast(pa.timestamp("us")).view(pa.int64())
    known = times.fill_null(NEVER - query.after).to_numpy(zero_copy_only=False)
    return arrivals.reaching(known + query.after, lateness) if query.complete else arrivals.of_times(known)
