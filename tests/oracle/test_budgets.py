"""Runs whose rows exceed their memory give the same answer, whatever was spilled."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from penstock.runtime.memory.budget import Budget, SortedRuns
from penstock.runtime.memory.budgeted_session import BudgetedSession
from penstock.runtime.stage import END_OF_TIME
from tests.oracle import describe as d
from tests.oracle import join_cases, signal_cases
from tests.oracle.effort import effort
from tests.oracle.engines import assert_answer, collected, expected_rows
from tests.oracle.queries import Case, any_queries
from tests.oracle.strategies import batches_of
from tests.oracle.test_joins import expected as joined_rows
from tests.oracle.test_joins import shown, streams_of
from tests.oracle.test_signals import assert_same, interpreted


class Tight(pk.Engine):
    """An engine with less memory than the constructor admits: any row exceeds it."""

    @property
    def budget(self) -> Budget:
        return Budget(128, strict=False)


@effort(60)
@given(case=any_queries(), data=st.data())
def test_any_query_within_any_memory_gives_the_same_answer(case: Case, data: st.DataObject) -> None:
    rows = expected_rows(case)
    if rows is None:
        return
    tables = {
        dataset.name: pa.Table.from_batches(data.draw(batches_of(dataset.table)), dataset.table.schema)
        for dataset in case.datasets
    }
    split = replace(
        case, datasets=tuple(replace(dataset, table=tables[dataset.name]) for dataset in case.datasets)
    )
    assert_answer(rows, collected(split, engine=Tight()), "within memory", d.promises_order(case.query))


@effort(40)
@given(data=st.data())
def test_any_join_within_any_memory_gives_the_same_answer(data: st.DataObject) -> None:
    case = data.draw(join_cases.cases(list(join_cases.QUERIES)))
    query = case.query()
    tables = {
        name: pa.Table.from_batches(table.to_batches(max_chunksize=3), table.schema)
        for name, table in streams_of(case, query).items()
    }
    assert shown(case, query.collect(tables, engine=Tight())) == shown(case, joined_rows(case))


@effort(40)
@given(case=signal_cases.cases() | signal_cases.regular_cases())
def test_any_signal_within_any_memory_gives_the_same_answer(case: signal_cases.Case) -> None:
    found = case.signal.collect(case.tables, engine=Tight())
    assert_same(found, interpreted(case))
    assert found.num_rows == case.signal.collect(case.tables).num_rows


# --- the sort ---------------------------------------------------------------------------------------------

SCHEMA = pa.schema({"t": pa.int64(), "n": pa.int64()})
TIMES = st.integers(-3, 12) | st.sampled_from([-(1 << 63), (1 << 63) - 2])


def _batch(times: Sequence[int], first: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array(times, pa.int64()), pa.array(range(first, first + len(times)), pa.int64())], schema=SCHEMA
    )


@effort(80)
@given(
    batches=st.lists(st.lists(TIMES, max_size=90), max_size=60),
    share=st.integers(0, 4_000),
    cuts=st.lists(TIMES, max_size=4),
)
def test_runs_come_out_by_time_and_then_by_arrival(
    batches: list[list[int]], share: int, cuts: list[int]
) -> None:
    runs = SortedRuns(SCHEMA, lambda batch: batch.column("t").to_numpy(), Budget(1), share)
    rows: list[tuple[int, int]] = []
    found: list[tuple[int, int]] = []
    for times in batches:
        made = _batch(times, len(rows))
        rows += zip(times, range(len(rows), len(rows) + len(times)), strict=True)
        runs.add(made)
    for before in [*sorted(cuts), END_OF_TIME]:
        chunks = [chunk.to_pydict() for chunk in runs.take(before)]
        times_of = [set(chunk["t"]) for chunk in chunks]
        assert all(not one & other for place, one in enumerate(times_of) for other in times_of[:place])
        found += [pair for chunk in chunks for pair in zip(chunk["t"], chunk["n"], strict=True)]
        assert all(time < before for time, _ in found)
        assert len(found) == sum(time < before for time, _ in rows)
    assert found == sorted(rows)


# --- by hand ----------------------------------------------------------------------------------------------


def _events(rows: int) -> pa.Table:
    random = np.random.default_rng(3)
    keys = np.where(random.random(rows) < 0.9, 0, random.integers(1, 50, rows))
    return pa.table({"t": random.permutation(rows), "k": keys, "v": random.integers(0, 100, rows)})


def test_rows_beyond_the_memory_are_spilled_and_nothing_remains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_SPILL_DIR", str(tmp_path))
    events = pk.from_arrow(_events(60_000), time="t", name="events")
    query = events.rolling(pk.rows(10), by="k").agg(s=pk.sum("v"))
    metrics, free = pk.Metrics(), pk.Metrics()
    order = [("t", "ascending"), ("k", "ascending")]
    found = query.collect(engine=pk.Engine(memory="1MiB"), metrics=metrics).sort_by(order)
    assert found.equals(query.collect(metrics=free).sort_by(order))
    assert metrics.spilled_bytes > 1 << 20 and free.spilled_bytes == 0
    assert metrics.counts == {**free.counts, "batches": metrics.batches}
    assert not list(tmp_path.iterdir())


def test_files_of_spilled_rows_are_their_owners_alone(tmp_path: Path) -> None:
    with Budget(1, folder=str(tmp_path)).file() as file:
        assert os.fstat(file.fileno()).st_mode & 0o777 == 0o600
        assert not list(tmp_path.iterdir())


def test_a_folder_that_takes_no_rows_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_SPILL_DIR", str(tmp_path / "missing"))
    query = pk.from_arrow(_events(60_000), time="t").window(pk.session(1), by="k").agg(n=pk.count())
    with pytest.raises(pk.MemoryLimitError, match="PENSTOCK_SPILL_DIR"):
        query.collect(engine=pk.Engine(memory="1MiB"))


@pytest.mark.parametrize(
    ("query", "operator"),
    [
        (lambda s: s.window(pk.unbounded(), by="k").agg(m=pk.median("v")), "windows over sorted rows"),
        (lambda s: s.window(1, by="k").agg(n=pk.count()), "window aggregation"),
        (lambda s: s.join(s, on="k", within=(-(1 << 40), 0), how="semi"), "join"),
    ],
)
def test_an_operator_that_cannot_spill_is_refused_by_name(query: object, operator: str) -> None:
    events = pk.from_arrow(_events(150_000), time="t", name="events")
    with pytest.raises(
        pk.MemoryLimitError, match=f"the {operator}.* needs about .* memory=1.0 MB: give more"
    ):
        query(events).collect(engine=pk.Engine(memory="1MiB"))  # type: ignore[operator]


def test_rows_without_a_time_are_counted_or_refused_within_a_budget() -> None:
    table = _events(100)
    times = pa.array([None if place % 7 == 0 else place for place in range(100)], pa.int64())
    holes = pa.Table.from_batches(table.set_column(0, "t", times).to_batches(max_chunksize=9))
    stream, metrics = pk.from_arrow(holes, time="t", on_bad="drop"), pk.Metrics()
    query = stream.rolling(5, by="k").agg(n=pk.count())
    found = query.collect(engine=Tight(), metrics=metrics)
    assert found.num_rows == 85 and metrics.malformed == 15 and metrics.balanced
    with pytest.raises(pk.SourceError, match="no time"):
        pk.from_arrow(holes, time="t", on_bad="fail").rolling(5).agg(n=pk.count()).collect(engine=Tight())


def test_few_rows_are_not_spilled() -> None:
    events = pk.from_arrow(_events(500), time="t", name="events")
    session = _opened(events.rolling(5).agg(n=pk.count()), Budget(1 << 20))
    made = session.push("events", *_events(500).select(["t"]).to_batches()) + session.finish()
    assert not session.ordered and sum(batch.num_rows for batch in made) == 500


def _opened(query: pk.Stream, budget: Budget) -> BudgetedSession:
    return query.compiled().open_within(pk.Engine(threads=1), budget)


@pytest.mark.parametrize("memory", ["4 apples", 0, -1, "1kB", True, 2.5, "", None])
def test_a_memory_that_is_none_is_refused(memory: object) -> None:
    if memory is None:
        assert pk.Engine(memory=None).budget is None
        return
    with pytest.raises(pk.EngineError, match="memory"):
        pk.Engine(memory=memory)  # type: ignore[arg-type]


def test_rows_that_no_watermark_passes_are_spilled_however_often_it_moves() -> None:
    """Each watermark sorts what is in memory: that counts towards the share too."""
    schema = pa.schema({"t": pa.int64()})
    budget = Budget(1 << 20, strict=False)
    runs = SortedRuns(schema, lambda rows: rows.column("t").to_numpy(), budget, share=8_000)
    for number in range(100):
        runs.add(pa.record_batch({"t": np.arange(100) * 100 + number + 1}))
        assert list(runs.take(1)) == []  # the watermark of a file whose next piece begins as early
        assert list(runs.take(2)) == [] or number == 0
    assert budget.spilled > 50_000
    taken = pa.Table.from_batches(list(runs.take(END_OF_TIME)), schema)["t"].to_numpy()
    assert len(taken) == 9_999 and (np.diff(taken) > 0).all()
