"""Native threads fold the parts of a batch: the same answer as one thread that interprets, also where kernels need help."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as pk
from penstock.codegen.morsel_scheduler import HAS_THREADS, ArgumentFrame
from penstock.codegen.tiers import TieredKernel
from penstock.loop.numbers import Morsels, Progress
from penstock.operators.pane_aggregate import parallel_fold, tasks
from penstock.runtime.stage import TimedBatch

SEEN: list[list[Progress]] = []
PLAIN = pk.Engine(threads=1, backend="interpret")


@pytest.fixture(autouse=True, scope="module")
def from_the_first_call() -> Iterator[None]:
    """Let kernels go together though better code may come: queries of tests are over before that."""

    def together(
        self: TieredKernel, frames: Sequence[ArgumentFrame], shares: Sequence[Morsels]
    ) -> list[Progress] | None:
        found = self._code().through(frames, shares) if HAS_THREADS else None
        SEEN.append(found or [])
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TieredKernel, "together", together)
        yield


def engine(threads: int) -> pk.Engine:
    return pk.Engine(threads=threads, task_bytes=256)


def rows(times: Sequence[int], keys: Sequence[int | None], values: Sequence[int | None]) -> pa.Table:
    many = min(map(len, (times, keys, values)))
    return pa.table(
        {
            "t": pa.array(times[:many], pa.timestamp("us")),
            "k": pa.array(keys[:many], pa.int64()),
            "v": pa.array(values[:many], pa.int64()),
        }
    )


def query(table: pa.Table, every: str = "10s") -> Any:
    events = pk.from_arrow(table, time="t", name="e")
    windows = events.filter(pk.col("v") != 3).window("10s", every=every, by="k")
    return windows.agg(n=pk.count(), total=pk.sum("v"), high=pk.max("v"), mid=pk.mean("v"))


def answer(made: Any, engine: pk.Engine) -> tuple[pa.Table | None, tuple[int, ...]]:
    """Give rows in order, or None where a sum does not fit, and what became of all rows."""
    metrics = pk.Metrics()
    try:
        found = made.collect(engine=engine, metrics=metrics)
    except pk.OverflowError:
        return None, ()
    order = [("window_start", "ascending"), ("k", "ascending")]
    return found.sort_by(order), (metrics.read, metrics.accepted, metrics.filtered)


def same(made: Any, threads: int) -> list[Progress]:
    """Compare, and give what threads said of how far they came."""
    SEEN.clear()
    assert answer(made, engine(threads)) == answer(made, PLAIN)
    return [progress for value in SEEN for progress in value]


SECOND = 1_000_000
LARGE = 1 << 62


@settings(max_examples=15)  # each is interpreted too
@given(
    times=st.lists(st.integers(-40 * SECOND, 60 * SECOND), min_size=1, max_size=50),
    keys=st.lists(
        st.one_of(st.none(), st.integers(0, 9), st.integers(-(1 << 40), 1 << 40)), min_size=50, max_size=50
    ),
    values=st.lists(st.one_of(st.none(), st.integers(0, 9), st.just(-LARGE)), min_size=50, max_size=50),
    threads=st.integers(2, 5),
    every=st.sampled_from(["10s", "3s"]),
)
def test_any_rows(
    times: list[int], keys: list[int | None], values: list[int | None], threads: int, every: str
) -> None:
    same(query(rows(times, keys, values), every), threads)


def test_rows_in_order_are_folded_by_all_threads_alone() -> None:
    many = 1_200
    table = rows([row * 33_000 for row in range(many)], [row % 7 for row in range(many)], list(range(many)))
    found = same(query(table), 3)
    assert len(found) == 3
    assert sum(progress.rows for progress in found) == many
    assert all(progress.stop is None for progress in found)


def test_who_stops_is_helped_and_others_do_not_go_on_for_ever() -> None:
    many = 1_200
    keys = [row // 4 * 1_000 for row in range(many)]
    values = [LARGE if row % 4 < 2 else -LARGE for row in range(many)]
    found = same(query(rows([row * 33_000 for row in range(many)], keys, values)), 3)
    assert any(progress.stop is not None for progress in found)
    assert sum(progress.rows for progress in found) < many


@settings(max_examples=20)
@given(
    rows=st.lists(
        st.tuples(st.sampled_from(["a1", "b22", "", None]), st.one_of(st.integers(-9, 9), st.none())),
        min_size=1,
        max_size=60,
    ),
    threads=st.integers(1, 4),
)
def test_columns_that_arrow_computes_are_computed_by_ranges(
    rows: list[tuple[str | None, int | None]], threads: int
) -> None:
    names, values = zip(*rows, strict=True)
    table = pa.table(
        {
            "t": pa.array(range(len(rows)), pa.int64()),
            "name": pa.array(names, pa.string()),
            "v": pa.array(values, pa.int64()),
        }
    )
    events = pk.from_arrow(table, time="t").filter(~pk.col("name").str.contains("b+2"))
    query = events.window(10, by="name").agg(s=pk.sum("v"), n=pk.count())
    ranges: list[tuple[int, int]] = []

    def part_of(timed_batch: TimedBatch, begin: int, end: int) -> TimedBatch:
        ranges.append((begin, end))
        return tasks.part_of(timed_batch, begin, end)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parallel_fold, "PREPARED_ROWS", 8)
        patch.setattr(parallel_fold, "part_of", part_of)
        found = query.collect(engine=pk.Engine(threads=threads))
    assert sorted(map(str, found.to_pylist())) == sorted(map(str, query.collect(engine=PLAIN).to_pylist()))
    parts = min(threads, max(len(rows) // 8, 1))
    assert len(ranges) == (parts if parts > 1 else 0)
    assert [row for begin, end in ranges for row in range(begin, end)] == (
        list(range(len(rows))) if ranges else []
    )
