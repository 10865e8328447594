"""Every run builds its own workers and tables: none knows anything of another, and nothing of it stays."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from weakref import ref

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as pk
from penstock.operators.pane_aggregate.table import PaneTable
from penstock.operators.pane_aggregate.worker import Worker

SCHEMA = {"t": "int64", "k": "int64", "v": "int64"}
EVENTS = pk.stream("events", SCHEMA, time="t")
LARGE = 1 << 62
PLAIN = pk.Engine(threads=1, backend="interpret")

QUERIES: dict[str, pk.Stream] = {
    "sum": EVENTS.window(10, by="k").agg(total=pk.sum("v")),
    "filtered": EVENTS.filter(pk.col("v") > 0).window(10, by="k").agg(low=pk.min("v"), n=pk.count()),
    "sliding": EVENTS.window(10, every=4, by="k").agg(total=pk.sum("v"), mid=pk.mean("v")),
    "without keys": EVENTS.window(10).agg(high=pk.max("v"), total=pk.sum("v")),
}


def rows(times: list[int], keys: list[int | None], values: list[int | None]) -> pa.Table:
    many = min(len(times), len(keys), len(values))
    columns = {"t": times[:many], "k": keys[:many], "v": values[:many]}
    return pa.table({name: pa.array(column, pa.int64()) for name, column in columns.items()})


def answer(query: pk.Stream, table: pa.Table, engine: pk.Engine) -> list[str]:
    try:
        return sorted(map(repr, query.collect(table, engine=engine).to_pylist()))
    except pk.OverflowError:
        return ["overflow"]


tables = st.builds(
    rows,
    st.lists(st.integers(-20, 30), max_size=30),
    st.lists(st.one_of(st.none(), st.integers(0, 5), st.integers(-60, 60)), min_size=30, max_size=30),
    st.lists(st.one_of(st.none(), st.integers(-9, 9), st.just(LARGE)), min_size=30, max_size=30),
)


@pytest.mark.parametrize("name", QUERIES)
@settings(max_examples=10)
@given(
    many=st.lists(tables, min_size=2, max_size=4), order=st.lists(st.integers(0, 3), min_size=4, max_size=8)
)
def test_runs_one_after_the_other_know_nothing_of_each_other(
    name: str, many: list[pa.Table], order: list[int]
) -> None:
    query = QUERIES[name]
    expected = [answer(query, table, PLAIN) for table in many]
    for place, turn in enumerate(order):
        engine = pk.Engine(threads=1 + place % 3, task_bytes=64)
        assert answer(query, many[turn % len(many)], engine) == expected[turn % len(many)]


def large(seed: int = 1, many: int = 300_000) -> pa.Table:
    random = np.random.default_rng(seed)
    return pa.table(
        {
            "t": np.arange(many) // 10_000,
            "k": random.integers(0, 500, many),
            "v": random.integers(1, 9, many),
        }
    )


@pytest.mark.parametrize("kind", [Worker, PaneTable])
@pytest.mark.parametrize("threads", [1, 2])
def test_workers_and_tables_are_let_go_with_their_run(
    threads: int, kind: type[Worker | PaneTable], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[ref[Worker | PaneTable]] = []
    real = kind.__init__

    def noted(self: Any, *given: Any) -> None:
        made.append(ref(self))
        real(self, *given)

    monkeypatch.setattr(kind, "__init__", noted)
    query = pk.from_arrow(large(), time="t").window(10, by="k").agg(total=pk.sum("v"))
    engine = pk.Engine(threads=threads)
    first = query.collect(engine=engine)
    for _ in range(3):
        before = len(made)
        assert query.collect(engine=engine) == first
        assert len(made) > before
    gc.collect()
    assert [function for function in made if function() is not None] == []


def test_rows_that_somebody_writes_to_are_seen_as_they_are_now() -> None:
    columns = {"t": np.arange(30), "k": np.arange(30) % 3, "v": np.ones(30, np.int64)}
    query = pk.from_arrow(pa.table(columns), time="t").window(10, by="k").agg(total=pk.sum("v"))
    assert set(query.collect().column("total").to_pylist()) == {3, 4}
    columns["v"] *= 7
    columns["k"] += 1_000
    again = query.collect()
    assert set(again.column("total").to_pylist()) == {21, 28}
    assert set(again.column("k").to_pylist()) == {1_000, 1_001, 1_002}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("by", ["name", "k"])
def test_what_was_made_for_a_call_is_there_until_it_is_over(by: str, threads: int) -> None:
    """Literals, numbers of texts and bitmaps lie in no column, and somebody has to hold them."""
    many = 600
    table = pa.table(
        {
            "t": range(many),
            "name": pa.array(["ab"[row % 2] for row in range(many)]),
            "k": pa.array([None if row % 7 == 0 else row % 5 for row in range(many)], pa.int64()),
            "kind": pa.array([("view", "click", None)[row % 3] for row in range(many)]),
        }
    )
    events = pk.from_arrow(table, time="t").filter(pk.col("kind") == "view")
    query = events.window(100, by=by).agg(n=pk.count(), first=pk.min("name"), rows=pk.count("k"))
    expected = answer_of(query, PLAIN)
    for size in (1, 10, 100, 1_000) * 3:
        noise = [np.full(size, 255, np.uint8) for _ in range(50)]
        assert answer_of(query, pk.Engine(threads=threads, task_bytes=2_000)) == expected
        del noise


def answer_of(query: pk.Stream, engine: pk.Engine) -> list[str]:
    return sorted(map(repr, query.collect(engine=engine).to_pylist()))


def test_keys_of_the_last_run_are_not_expected_again() -> None:
    near, far = large(), large()
    far = far.set_column(1, "k", pa.array(np.asarray(far["k"]) + 1_000_000_000))
    query = EVENTS.window(10, by="k").agg(total=pk.sum("v"))
    of_near = query.collect(near, engine=pk.Engine(threads=2))
    of_far = query.collect(far, engine=pk.Engine(threads=1))
    assert of_far["total"] == of_near["total"]
    assert of_far["k"].to_pylist() == [key + 1_000_000_000 for key in of_near["k"].to_pylist()]


def test_data_is_let_go() -> None:
    table = large()
    query = EVENTS.window(10, by="k").agg(total=pk.sum("v"))
    query.collect(table)
    batch = ref(table.to_batches()[0])
    del table
    gc.collect()
    assert batch() is None


def test_runs_at_the_same_time_have_workers_of_their_own() -> None:
    query = EVENTS.filter(pk.col("v") > 2).window(10, by="k").agg(total=pk.sum("v"))
    tables = [large(seed) for seed in range(4)]
    expected = [query.collect(table) for table in tables]
    right: list[bool] = []

    def work(place: int) -> None:
        engine = pk.Engine(threads=1 + place % 2)
        right.extend(query.collect(tables[place], engine=engine) == expected[place] for _ in range(10))

    threads = [threading.Thread(target=work, args=(place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert right == [True] * 40


def test_a_table_that_was_left_half_changed_serves_no_other_run(monkeypatch: pytest.MonkeyPatch) -> None:
    query, engine = QUERIES["sum"], pk.Engine(threads=1)
    good, wide = rows([1, 2, 3], [1, 1, 2], [1, 2, 3]), rows([4] * 4, [1] * 4, [LARGE] * 4)
    expected = query.collect(good, engine=engine).to_pylist()
    run = query.open(engine=engine)
    run.push(good)
    with monkeypatch.context() as patched:
        patched.setattr(PaneTable, "_hold", interrupt)  # as Ctrl-C would, when a sum needs more than 64 bits
        with pytest.raises(KeyboardInterrupt):
            run.push(wide)
    with pytest.raises(pk.StateError):
        run.finish()
    for _ in range(2):
        assert query.collect(good, engine=engine).to_pylist() == expected


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_run_that_failed_halfway_gives_and_saves_nothing_more(tmp_path: Path) -> None:
    run = EVENTS.window(10).agg(total=pk.sum(pk.col("v") * 4)).open(engine=pk.Engine(threads=1))
    with pytest.raises(pk.OverflowError):
        run.push(rows([1], [1], [LARGE]))
    calls: list[Callable[[], object]] = [
        lambda: run.push(rows([1], [1], [1])),
        lambda: run.advance(50),
        lambda: run.save(tmp_path / "state"),
        run.finish,
    ]
    for call in calls:
        with pytest.raises(pk.StateError, match="halfway"):
            call()


def test_rows_after_the_end_of_time_are_late() -> None:
    run = QUERIES["sum"].open(engine=pk.Engine(threads=1))
    run.push(rows([1, 2], [1, 1], [1, 1]))
    assert sum(batch.num_rows for batch in run.advance(2**63 - 1)) == 1
    assert run.push(rows([5], [1], [1])) == []
    assert run.metrics.late == 1
    assert run.finish() == []
