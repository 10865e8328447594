"""Generate the rows of the live queries, and cut them into buffers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.workloads import EVENT_TYPES, START_US, STEP_US, zipf

MAX_VALUE = 100
SCHEMA = {"ts": "timestamp[us]", "key": "int64", "et": "int32", "val": "int64"}

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Feed:
    """Describe rows three microseconds apart: how many, of how many keys, and in which order they arrive.

    A row arrives up to `disorder_us` after its time; this is also the lateness that the query allows.
    """

    rows: int = 1_000_000
    keys: int = 1_000
    zipf: bool = False
    disorder_us: int = 0
    seed: int = 1


def rows_of(feed: Feed) -> pa.Table:
    """Build `ts, key, et, val` in the order of arrival.

    >>> table = rows_of(Feed(rows=4, keys=2))
    >>> table.schema.names, table.num_rows
    (['ts', 'key', 'et', 'val'], 4)
    """
    random = np.random.default_rng(feed.seed)
    times = START_US + STEP_US * np.arange(feed.rows, dtype=np.int64)
    columns = {
        "ts": pa.array(times).cast(pa.timestamp("us")),
        "key": pa.array(_keys(random, feed)),
        "et": pa.array(random.integers(0, len(EVENT_TYPES), feed.rows, dtype=np.int32)),
        "val": pa.array(random.integers(0, MAX_VALUE, feed.rows, dtype=np.int64)),
    }
    table = pa.table(columns)
    return table.take(pa.array(_arrival(random, times, feed.disorder_us))) if feed.disorder_us else table


def _keys(random: np.random.Generator, feed: Feed) -> Ints:
    if not feed.zipf:
        return random.integers(0, feed.keys, feed.rows, dtype=np.int64)
    return zipf(random, feed.rows, feed.keys)


def _arrival(random: np.random.Generator, times: Ints, most: int) -> Ints:
    """Order rows by their time plus a delay of less than `most`."""
    return np.argsort(times + random.integers(0, most, len(times)), kind="stable").astype(np.int64)


def buffers_of(table: pa.Table, size: int) -> list[pa.RecordBatch]:
    """Cut rows into buffers of `size`; they share the table's memory."""
    buffers: list[pa.RecordBatch] = table.combine_chunks().to_batches(max_chunksize=size)
    return buffers


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The times of rows in the order of arrival, in microseconds."""

    times: Ints

    @staticmethod
    def of(table: pa.Table) -> Arrivals:
        return Arrivals(table["ts"].combine_chunks().view(pa.int64()).to_numpy())

    def reaching(self, times: Ints, lateness: int) -> Ints:
        """Return the position of the first row whose arrival moves the watermark to each of the times."""
        largest = np.maximum.accumulate(self.times) - lateness
        return np.searchsorted(largest, times, side="left").astype(np.int64)

    def of_times(self, times: Ints) -> Ints:
        """Return the position of the row of each time; every time occurs once."""
        order = np.argsort(self.times, kind="stable")
        return np.asarray(order[np.searchsorted(self.times[order], times)], np.int64)
