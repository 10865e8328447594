"""Measure one point: throughput in a closed loop, latency in an open loop, and the answers."""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

import penstock as pk
from benchmarks.answers import agree, normalise
from benchmarks.live.feed import Arrivals, Feed, Ints, buffers_of, rows_of
from benchmarks.live.points import Found, Point
from benchmarks.live.pushing import PUSHERS, Pusher, Results
from benchmarks.live.queries import QUERIES, Query, completing_rows, query_of

WARM = 0.2
"""The part of the buffers that is pushed before time is taken: kernels are compiled, windows are open."""
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
SPIN = 200e-6
"""Seconds before a send time at which waiting turns from sleeping to spinning: a sleep may last longer."""


@lru_cache(maxsize=2)
def table_of(feed: Feed) -> pa.Table:
    """Make the rows of a feed once for all points that ask for them."""
    return rows_of(feed)


def throughput(point: Point) -> Found:
    """Push all buffers one after the other; count those after the warm ones."""
    query, pusher, results = opened(point)
    buffers = buffers_of(table_of(point.feed), point.buffer)
    warm = max(1, int(len(buffers) * WARM)) if len(buffers) > 1 else 0
    prepared = pusher.prepared(buffers)
    try:
        push_all(pusher, prepared[:warm])
        wall, cpu = timed_pushes(pusher, prepared[warm:])
    finally:
        pusher.close()
    rows = sum(buffer.num_rows for buffer in buffers[warm:])
    return Found(rows, wall, cpu, right(point, query, results))


def opened(point: Point) -> tuple[Any, Pusher, Results]:
    """Open the query of a point, its kernels compiled by a run over the first rows."""
    query, results, engine = query_of(point.query, point.feed), Results(), pk.Engine(threads=point.threads)
    return query, PUSHERS[point.way](query, engine, results), results


def push_all(pusher: Pusher, buffers: Sequence[Any]) -> None:
    """Push buffers as fast as they are taken."""
    for buffer in buffers:
        pusher.push(buffer)


def timed_pushes(pusher: Pusher, buffers: Sequence[Any]) -> tuple[float, float]:
    """Push and finish; return seconds by the clock and of processors, with the garbage collector held off."""
    gc.collect()
    gc.disable()
    try:
        begin, begin_cpu = time.perf_counter(), time.process_time()
        push_all(pusher, buffers)
        pusher.finish()
        return time.perf_counter() - begin, time.process_time() - begin_cpu
    finally:
        gc.enable()


def latency(point: Point) -> Found:
    """Push each buffer at its intended send time; take how long after it results are handed over.

    A buffer is due when its last row is. A push that is late does not move the send times of later
    buffers, so waiting behind a slow push counts.
    """
    query, pusher, results = opened(point)
    table = table_of(point.feed)
    buffers = buffers_of(table, point.buffer)
    prepared = pusher.prepared(buffers)
    gc.collect()
    gc.disable()
    try:
        begin, begin_cpu = time.perf_counter(), time.process_time()
        for number, buffer in enumerate(prepared):
            wait_until(begin + due(number, point))
            pusher.push(buffer)
        spent = time.perf_counter() - begin, time.process_time() - begin_cpu
        pusher.finish()
    finally:
        gc.enable()
        pusher.close()
    waits = waits_of(point, results, begin, len(buffers))
    quantiles = {name: float(np.quantile(waits, part)) for name, part in QUANTILES.items() if len(waits)}
    return Found(table.num_rows, *spent, right(point, query, results), quantiles, len(waits))


def due(number: int, point: Point) -> float:
    """Return the intended send time of a buffer, in seconds after the begin."""
    return (number + 1) * point.buffer / point.rate


def wait_until(moment: float) -> None:
    """Sleep, then spin."""
    while (left := moment - time.perf_counter()) > 0:
        if left > SPIN:
            time.sleep(left - SPIN)


def waits_of(point: Point, results: Results, begin: float, buffers: int) -> np.ndarray:
    """Return the seconds each result row was handed over after the send time of the buffer that completes it.

    Results that only the end of input completes, and those of warm buffers, do not count.
    """
    query, arrivals = QUERIES[point.query], Arrivals.of(table_of(point.feed))
    warm = int(buffers * WARM)
    waits = [np.empty(0)]
    for batch, moment in zip(results.batches, results.times, strict=True):
        numbers = completing_rows(query, batch, arrivals, point.feed.disorder_us) // point.buffer
        counted = numbers[(numbers >= warm) & (numbers < point.feed.rows // point.buffer)]
        waits.append(moment - begin - (counted + 1) * point.buffer / point.rate)
    return np.concatenate(waits)


# --- answers ------------------------------------------------------------------------------------------------


def right(point: Point, query: Any, results: Results) -> bool:
    """Compare all results with those of `collect` over the same rows."""
    expected = expected_of(point.query, point.feed)
    found = comparable(QUERIES[point.query], results.table(query.schema))
    return agree(normalise(found), normalise(expected))


@lru_cache(maxsize=2)
def expected_of(name: str, feed: Feed) -> pa.Table:
    """Collect a query over the rows of a feed."""
    return comparable(QUERIES[name], query_of(name, feed).collect(table_of(feed)))


def comparable(query: Query, table: pa.Table) -> pa.Table:
    """Order columns so that sorting by all but the last is a total order; merge the intervals of signals."""
    return merged_intervals(table) if query.signal else table


def merged_intervals(table: pa.Table) -> pa.Table:
    """Merge neighbouring intervals of a key that have the same value, as `collect` does.

    >>> table = pa.table({"start": [0, 5, 9], "end": [5, 9, None], "key": [1, 1, 1], "value": [2.0, 2.0, 3.0]})
    >>> merged_intervals(table).to_pylist()[0]
    {'key': 1, 'start': 0, 'end': 9, 'value': 2.0}
    """
    ordered = table.select(["key", "start", "end", "value"]).sort_by(
        [("key", "ascending"), ("start", "ascending")]
    )
    if not ordered.num_rows:
        return ordered
    key, value = (ordered[name].to_numpy() for name in ("key", "value"))
    start, end = (integers(ordered[name]) for name in ("start", "end"))
    close = np.isclose(value[1:], value[:-1], rtol=1e-12, atol=1e-12)
    first = np.flatnonzero(np.r_[True, ~((key[1:] == key[:-1]) & (start[1:] == end[:-1]) & close)])
    last = np.r_[first[1:], len(key)] - 1
    return ordered.take(first).set_column(2, "end", ordered["end"].take(last))


def integers(column: pa.ChunkedArray) -> Ints:
    """Return times as integers; a null becomes a number that no time has."""
    values = column.combine_chunks()
    plain = values.view(pa.int64()) if pa.types.is_timestamp(values.type) else values
    found: Ints = plain.fill_null(np.iinfo(np.int64).min).to_numpy(zero_copy_only=False)
    return found
