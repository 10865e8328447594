"""Key tables of queries that run for ever: dense ranges outlive their windows, keys that no one sees again do not."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import penstock as pk
from penstock.algorithms.hash_table.keys import DenseKeys, HashKeys
from penstock.api.live import Live
from penstock.operators.pane_aggregate.stage import WindowStage
from penstock.operators.pane_aggregate.worker import COMPACT, Worker

STREAM = pk.stream("rows", {"t": "int64", "k": "int64", "v": "int64"}, time="t")
TUMBLING = STREAM.window(10, by="k").agg(x=pk.sum("v"))
SLIDING = STREAM.window(40, every=10, by="k").agg(x=pk.min("v"))
MANY = 5 * COMPACT


def worker_of(live: Live) -> Worker:
    (stage,) = (stage for stage in live._session._stages.values() if isinstance(stage, WindowStage))
    return stage.workers[0]


def push(live: Live, time: int, keys: np.ndarray) -> dict[tuple[int, int], int]:
    """Push a row for each key; return the results, by window and key."""
    batch = pa.record_batch({"t": np.full(len(keys), time), "k": keys, "v": keys % 7})
    made = pa.Table.from_batches(live.push(batch), TUMBLING.schema)
    return {(row["window_start"], row["k"]): row["x"] for row in made.to_pylist()}


@pytest.mark.parametrize("query", [TUMBLING, SLIDING], ids=["tumbling", "sliding"])
def test_twenty_windows_later_the_table_is_still_dense(query: pk.Stream) -> None:
    keys = np.arange(MANY)
    with query.open(engine=pk.Engine(threads=1)) as live:
        push(live, 1, keys)
        first = worker_of(live).table
        assert first is not None
        for window in range(1, 21):
            push(live, 10 * window, keys[:1])  # right after a window has closed, one key is there
            push(live, 10 * window + 1, keys)
            table = worker_of(live).table
            assert table is not None and table.keys == first.keys


@pytest.mark.parametrize("query", [TUMBLING, SLIDING], ids=["tumbling", "sliding"])
def test_a_dense_range_outlives_a_time_without_rows(query: pk.Stream) -> None:
    keys = 3 * np.arange(MANY)
    with query.open(engine=pk.Engine(threads=1)) as live:
        push(live, 1, keys)
        live.advance(1_000)
        assert worker_of(live).table is None
        push(live, 1_001, keys[:1])
        table = worker_of(live).table
        assert table is not None and isinstance(table.keys, DenseKeys) and table.keys.columns > 2 * MANY


def test_keys_that_drift_for_ever_do_not_grow_a_dense_table() -> None:
    largest = 0
    with TUMBLING.open(engine=pk.Engine(threads=1)) as live:
        for window in range(200):
            keys = np.arange(window * 1_000, window * 1_000 + 2_000)
            made = push(live, 10 * window, keys)
            if window:
                gone = keys - 1_000
                assert made == {(10 * window - 10, key): key % 7 for key in gone.tolist()}
            table = worker_of(live).table
            assert table is not None and isinstance(table.keys, DenseKeys)
            largest = max(largest, table.keys.columns)
    assert largest <= 10 * COMPACT


def test_keys_far_apart_leave_a_dense_table() -> None:
    """A range of which hardly a column is used costs memory and time for every pane."""
    with TUMBLING.open(engine=pk.Engine(threads=1)) as live:
        push(live, 1, np.arange(MANY))
        for window in range(1, 6):
            keys = np.array([0, MANY - 1])
            push(live, 10 * window, keys)
        table = worker_of(live).table
        assert table is not None and isinstance(table.keys, HashKeys) and table.keys.columns < COMPACT


def test_a_hash_table_forgets_keys_that_are_not_seen_again() -> None:
    with TUMBLING.open(engine=pk.Engine(threads=1)) as live:
        for window in range(100):
            keys = (np.arange(window * 1_000, window * 1_000 + 2_000) * 1_000_003) << 20
            made = push(live, 10 * window, keys)
            assert len(made) == (2_000 if window else 0)
            table = worker_of(live).table
            assert table is not None and isinstance(table.keys, HashKeys)
            assert table.keys.count <= 4 * COMPACT
