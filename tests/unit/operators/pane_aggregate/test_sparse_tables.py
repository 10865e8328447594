"""A grid that is mostly empty becomes a table of (pane, key) pairs, and no answer changes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

import penstock as pk
from penstock.operators.pane_aggregate import table as tables
from penstock.operators.pane_aggregate.table import PaneTable
from penstock.operators.pane_aggregate.worker import Worker

ROWS = 3_000

QUERIES: dict[str, Callable[[pk.Stream], pk.Stream]] = {
    "tumbling by an integer": lambda s: s.window(100, by="k").agg(total=pk.sum("v"), n=pk.count()),
    "tumbling by text and integer": lambda s: s.window(100, by=["name", "k"]).agg(hi=pk.max("v")),
    "filtered": lambda s: s.filter(pk.col("v") > 0).window(100, by="k").agg(total=pk.sum("v")),
    "sliding": lambda s: s.window(100, every=30, by="k").agg(total=pk.sum("v"), first=pk.min("name")),
    "much overlap": lambda s: s.window(1000, every=7, by=["name", "k"]).agg(
        total=pk.sum("v"), hi=pk.max("v")
    ),
    "much overlap, no keys": lambda s: s.window(200, every=3).agg(total=pk.sum("v"), last=pk.max("name")),
    "slide longer than size": lambda s: s.window(30, every=100, by="k").agg(n=pk.count()),
    "without keys": lambda s: s.window(1).agg(total=pk.sum("v")),
}


def table() -> pa.Table:
    random = np.random.default_rng(7)
    return pa.table(
        {
            "t": pa.array(random.integers(-50_000, 50_000, ROWS)),
            "k": pa.array(random.integers(0, 10**12, ROWS // 10)[random.integers(0, ROWS // 10, ROWS)]),
            "name": pa.array([None if n == 0 else f"name{n}" for n in random.integers(0, 9, ROWS)]),
            "v": pa.array(random.integers(-5, 5, ROWS)),
        }
    )


def rows_of(result: pa.Table) -> list[str]:
    return sorted(map(repr, result.to_pylist()))


@pytest.fixture
def switches(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Let every grid count as large and empty, and note each time one is given up."""
    seen: list[None] = []
    real = Worker.use_sparse

    def noted(self: Worker) -> None:
        seen.append(None)
        real(self)

    monkeypatch.setattr(tables, "CELLS_AHEAD", 1)
    monkeypatch.setattr(tables, "ZEROS_AHEAD", 1)
    monkeypatch.setattr(PaneTable, "too_empty", property(lambda table: not table.sparse))
    monkeypatch.setattr(Worker, "use_sparse", noted)
    return seen


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("threads", [1, 2])
def test_pairs_give_the_answer_of_a_grid(name: str, threads: int, request: pytest.FixtureRequest) -> None:
    query = QUERIES[name](pk.from_arrow(table(), time="t"))
    expected = query.collect(engine=pk.Engine(threads=1))
    switches = request.getfixturevalue("switches")
    found = query.collect(engine=pk.Engine(threads=threads, task_bytes=8_000))
    assert switches, "no grid was given up: this tests nothing"
    assert rows_of(found) == rows_of(expected)
    ends = found["window_end"].to_pylist()
    assert ends == sorted(ends)


@pytest.mark.parametrize("name", QUERIES)
def test_pairs_are_let_go_as_time_passes(name: str, request: pytest.FixtureRequest) -> None:
    data = table().sort_by("t")
    query = QUERIES[name](pk.from_arrow(data, time="t"))
    expected = query.collect(engine=pk.Engine(threads=1))
    switches = request.getfixturevalue("switches")
    batches = list(query.run(data.to_batches(max_chunksize=500), engine=pk.Engine(threads=1)))
    assert switches, "no grid was given up: this tests nothing"
    assert rows_of(pa.Table.from_batches(batches)) == rows_of(expected)


# -- keys that appear late ---------------------------------------------------------------------------

MANY_PANES = 17_000  # beyond the rows whose key range decides for a dense table


def late_wide_key() -> pa.Table:
    keys = np.arange(MANY_PANES) % 2
    keys[-1] = 60_000
    return pa.table({"t": np.arange(MANY_PANES), "k": keys, "v": np.arange(MANY_PANES)})


def panes_then_keys() -> pa.Table:
    """Threads take neighbouring rows: one has many panes of one key, the other one pane of many keys."""
    zeros, many = np.zeros(MANY_PANES, np.int64), np.arange(MANY_PANES)
    return pa.table(
        {
            "t": np.concatenate([many, zeros]),
            "k": np.concatenate([zeros, many + 1]),
            "v": np.arange(2 * MANY_PANES),
        }
    )


@pytest.mark.parametrize("make", [late_wide_key, panes_then_keys])
@pytest.mark.parametrize("task_bytes", [1 << 16, 1 << 20])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_panes_of_few_keys_are_not_multiplied_by_a_wide_range_of_keys(
    threads: int, task_bytes: int, make: Callable[[], pa.Table]
) -> None:
    table = make()
    query = pk.from_arrow(table, time="t").window(1, by="k").agg(lo=pk.min("v"), hi=pk.max("v"))
    tracemalloc.start()
    try:
        result = query.collect(engine=pk.Engine(threads=threads, task_bytes=task_bytes))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert result.num_rows == table.num_rows
    assert sorted(result["lo"].to_pylist()) == list(range(table.num_rows))
    # A grid of all panes and the whole key range would have 10**9 cells.
    assert peak < 1 << 29
