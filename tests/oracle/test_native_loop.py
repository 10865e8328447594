"""Rows folded by the native loop of a background run give the answers, counts and states of direct pushes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch
from weakref import ref

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from penstock.api.background import Background
from penstock.runtime.ring import DONE, OPEN, PUBLISHED, SLOT_COUNT
from tests.oracle.effort import effort
from tests.unit.runtime.queries import reported

pytestmark = pytest.mark.filterwarnings("ignore::penstock.LateRowsWarning")
SCHEMA = pa.schema({"t": pa.int64(), "k": pa.int64(), "v": pa.int64(), "x": pa.float64()})
ROWS = pk.stream("rows", {"t": "int64", "k": "int64", "v": "int64", "x": "float64"}, time="t")
LATENESS = pk.stream(
    "rows", {"t": "int64", "k": "int64", "v": "int64", "x": "float64"}, time="t", lateness=15
)
ONE = pk.Engine(threads=1)
TICKS = st.integers(0, 12)

QUERIES: dict[str, Any] = {
    "tumbling": ROWS.filter(pk.col("v") > 1).window(10, by="k").agg(s=pk.sum("v"), n=pk.count()),
    "sliding": LATENESS.window(12, every=4, by="k").agg(low=pk.min("v"), m=pk.mean("x")),
    "no key": LATENESS.window(7).agg(s=pk.sum("x"), h=pk.max("k")),
    "filter": ROWS.filter(pk.col("v") % 3 != 0).select("k", twice=pk.col("v") * 2, y=pk.col("x") + 1),
    "select": LATENESS.select(double=pk.col("v") * 2, big=pk.col("x") > 2.0),
    "passes": ROWS.filter(pk.col("v") > 2),
    "windows of windows": ROWS.window(5, by="k").agg(s=pk.sum("v")).window(20).agg(top=pk.max("s")),
    "having": ROWS.window(8, by="k").agg(s=pk.sum("v")).filter(pk.col("s") > 5),
}

Row = tuple[int, int, int | None, float]
VALUES = st.tuples(
    st.integers(-3, 12),
    st.one_of(st.integers(0, 3), st.integers(-(2**62), 2**62)),
    st.one_of(st.integers(0, 9), st.integers(0, 9), st.none()),
    st.sampled_from([0.0, -0.0, 1.5, 2.5, float("inf"), float("nan"), -1e300]),
)
# Steps in time, so that windows pass; rows lie around the time reached, some of them behind the watermark.
BATCH = st.tuples(st.just("push"), TICKS, st.lists(VALUES, min_size=1, max_size=6))
PLAIN = st.lists(
    VALUES.map(lambda row: (abs(row[0]), row[1] % 4, row[2] or 0, row[3])), min_size=1, max_size=6
)
STEPS = st.lists(
    st.one_of(
        BATCH,
        st.tuples(st.just("push"), TICKS, PLAIN),
        st.tuples(st.just("push"), TICKS, PLAIN),
        st.tuples(st.just("commit"), TICKS, PLAIN),
        st.tuples(st.just("wide"), TICKS, PLAIN),
        st.tuples(st.sampled_from(["advance", "flush", "restart", "held", "dict"]), TICKS, PLAIN),
    ),
    min_size=3,
    max_size=25,
)
Step = tuple[str, int, Sequence[Row]]


def batch_of(begin: int, rows: Sequence[Row]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True))
    columns[0] = tuple(begin + time for time in columns[0])
    return pa.RecordBatch.from_arrays(
        [pa.array(values, column.type) for values, column in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


def directly(query: Any, steps: Sequence[Step]) -> tuple[list[str], dict[str, int]]:
    live, made, begin = query.open(engine=ONE), [], 0
    for step, ticks, rows in steps:
        begin += ticks
        if step == "advance":
            made += live.advance(begin)
        elif step in ("push", "commit", "wide", "dict"):
            made += live.push(batch_of(begin, rows))
    made += live.finish()
    return sorted(reported(made)), {**live.metrics.counts, "batches": 0}


def natively(query: Any, steps: Sequence[Step]) -> tuple[list[str], dict[str, int]]:
    made: list[pa.RecordBatch] = []
    live, begin = query.open(engine=ONE, background=True, max_delay="0s", on_result=made.append), 0
    writer = live.writer(capacity=6)
    for step, ticks, rows in steps:
        begin += ticks
        match step:
            case "advance":
                live.advance(begin)
            case "flush":
                live.flush()
            case "held":
                assert all(size.rows >= 0 for size in live.metrics.held.values())
            case "restart":
                live.flush()
                state = live.state()
                live.close()
                live = query.open(
                    state=state, engine=ONE, background=True, max_delay="0s", on_result=made.append
                )
                writer = live.writer(capacity=6)
            case "commit":
                batch = batch_of(begin, rows)
                for name, target in writer.items():
                    target[: len(rows)] = batch[name].to_numpy()
                writer.commit(len(rows))
            case "wide":
                live.push(batch_of(begin, rows).append_column("more", pa.array(["x"] * len(rows))))
            case "dict":
                live.push(batch_of(begin, rows).to_pylist())
            case _:
                live.push(batch_of(begin, rows))
        if ticks % 2 == 0:  # the ring opens once the queue is empty
            live.flush()
    live.finish()
    return sorted(reported(made)), {**live.metrics.counts, "batches": 0}


@pytest.mark.parametrize("name", QUERIES)
@effort(25)
@given(steps=STEPS)
def test_the_native_loop_gives_the_answer_of_direct_pushes(name: str, steps: list[Step]) -> None:
    assert natively(QUERIES[name], steps) == directly(QUERIES[name], steps)


def ring_of(live: Background) -> Any:
    native = live._native
    assert native is not None
    return native.words


@pytest.mark.parametrize("name", ["tumbling", "sliding", "filter", "having"])
def test_batches_behind_the_first_are_processed_by_the_native_loop(name: str) -> None:
    query = QUERIES[name]
    steps = [("push", 3, [(0, 1, 4, 1.0), (1, 2, 5, 2.5)])] * (2 * SLOT_COUNT)
    taken: list[pa.RecordBatch] = []
    with query.open(engine=ONE, background=True, on_result=taken.append) as live:
        live.push(batch_of(0, steps[0][2]))
        live.flush()
        words, begin = ring_of(live), 0
        assert words[OPEN]
        for _, ticks, rows in steps:
            begin += ticks
            live.push(batch_of(begin, rows))
        live.flush()
        assert words[PUBLISHED] == words[DONE] >= 2 * SLOT_COUNT
        live.finish()
    expected, counts = directly(query, [("push", 0, steps[0][2]), *steps])
    assert sorted(reported(taken)) == expected
    assert {**live.metrics.counts, "batches": 0} == counts


def test_a_batch_with_nulls_goes_another_way_and_rows_stay_in_order() -> None:
    query = QUERIES["tumbling"]
    steps: list[Step] = [("push", 1, [(0, 1, number % 5 or None, 0.5)]) for number in range(200)]
    assert natively(query, steps) == directly(query, steps)


def test_a_filtered_row_may_complete_the_last_window_that_holds_rows() -> None:
    steps: list[Step] = [("push", 2, [(0, 1, 4, 0.0)]), ("flush", 0, [(0, 1, 4, 0.0)])]
    steps += [("push", 10, [(0, 2, 5, 0.0), (12, 2, 0, 0.0)]), ("flush", 0, [(0, 1, 4, 0.0)])]
    assert natively(QUERIES["tumbling"], steps * 3) == directly(QUERIES["tumbling"], steps * 3)


def test_a_sum_that_overflows_in_the_native_loop_names_what_to_do() -> None:
    query = ROWS.window(1_000, by="k").agg(s=pk.sum("v"))
    rows = [(0, 1, 2**62, 0.0), (1, 1, 2**62, 0.0)]
    with pytest.raises(pk.PenstockError, match="sum"):
        natively(query, [("push", 10, rows)] * 300)


def test_keys_far_apart_and_many_are_found_by_the_native_loop() -> None:
    query = QUERIES["tumbling"]
    steps: list[Step] = [
        ("push", 0 if number % 50 else 7, [(0, number * number * 7_919, 5, 1.0), (0, number, 3, 1.0)])
        for number in range(3_000)
    ]
    assert natively(query, steps) == directly(query, steps)


@contextmanager
def paused(live: Background) -> Iterator[None]:
    """Let rows wait, in a run that has processed all others."""
    worker = live._worker
    with worker.lock:
        worker._pause(1)
    try:
        yield
    finally:
        with worker.lock:
            worker._pause(-1)
            worker.work.notify()


def opened_with_writer(taken: list[pa.RecordBatch]) -> tuple[Background, Any]:
    """A run whose ring takes the rows of a writer; one row is processed."""
    query = ROWS.window(10).agg(s=pk.sum("v"))
    live = query.open(engine=ONE, background=True, max_delay="0s", on_result=taken.append)
    writer = live.writer(capacity=4)
    writer["t"][:], writer["v"][:] = range(4), 7
    writer.commit(1)
    live.flush()
    assert ring_of(live)[OPEN]
    return live, writer


def test_rows_that_wait_outlive_their_writer() -> None:
    taken: list[pa.RecordBatch] = []
    live, writer = opened_with_writer(taken)
    with paused(live):
        writer.commit(3)
        assert live._native is not None and live._native.waiting
        block = ref(writer._direct.__self__._block[0])
        del writer
        assert block() is not None
    live.flush()
    assert block() is None
    live.finish()
    assert [row["s"] for batch in taken for row in batch.to_pylist()] == [28]


def test_a_batch_is_kept_though_a_writer_commits_before_it() -> None:
    """Writers commit without the lock of the run: also while another thread puts a batch into the ring."""
    taken: list[pa.RecordBatch] = []
    live, writer = opened_with_writer(taken)
    assert live._native is not None
    ring = live._native.ring
    batch = pa.record_batch({"t": [2, 3], "v": [1, 1]}, schema=writer.schema)
    put = ring.put

    def late(exported: int) -> bool:
        writer.commit(1)
        return put(exported)

    with paused(live), patch.object(ring, "put", late):
        live.push(batch)
        assert ring.rows == 3
        assert ring.held[(ring.words[PUBLISHED] - 1) & (SLOT_COUNT - 1)] is not None
    live.finish()
    assert [row["s"] for batch in taken for row in batch.to_pylist()] == [16]


def test_a_batch_is_kept_though_writers_went_round_the_ring_before_it() -> None:
    live, _ = opened_with_writer([])
    assert live._native is not None
    ring = live._native.ring
    with paused(live):
        saved = ring.words[PUBLISHED], ring.words[DONE]
        ring.words[PUBLISHED] = ring.words[DONE] = saved[0] + SLOT_COUNT + 5
        owners = [object() for _ in range(20)]
        for owner in owners:
            ring.keep(owner)
            ring.words[PUBLISHED] += 1
        assert all(owner in ring.held for owner in owners)
        ring.words[PUBLISHED], ring.words[DONE] = saved
    live.finish()
