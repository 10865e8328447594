"""Random queries over thousands of rows: what small tables cannot reach (growth, tasks, late nulls)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
from hypothesis import assume, given
from hypothesis import strategies as st

import penstock as pk
from tests.oracle import describe as d
from tests.oracle.data import plain_column
from tests.oracle.effort import effort
from tests.oracle.engines import assert_answer, collected, expected_rows, streamed
from tests.oracle.queries import Case, any_queries
from tests.oracle.strategies import Dataset, to_array

ROWS = 1_500


def _grown(data: Dataset, seed: int, ordered: bool, nulls_late: bool) -> Dataset:
    """Repeat a table's rows at random, at other times; with `nulls_late` the first third has no nulls."""
    rng = np.random.default_rng(seed)
    table = data.table.combine_chunks()
    whole = np.arange(table.num_rows)
    clean = np.flatnonzero(_complete(table)) if nulls_late else whole
    if len(clean) == 0:
        clean = whole
    picks = np.concatenate([rng.choice(clean, ROWS // 3), rng.choice(whole, ROWS - ROWS // 3)])
    grown = table.take(pa.array(picks))
    base = min((t for t in plain_column(table["t"]).to_pylist() if t is not None), default=2_000)
    ticks = base + rng.integers(0, 300, ROWS)
    times: list[object] = [int(tick) for tick in (np.sort(ticks) if ordered else ticks)]
    return replace(data, table=grown.set_column(0, "t", to_array(times, data.time.type)))


def _complete(table: pa.Table) -> np.ndarray:
    """Tell which rows have no null."""
    valid = [column.is_valid().to_numpy() for column in table.columns]
    return np.logical_and.reduce(valid)


def _grown_case(case: Case, seed: int, ordered: bool, nulls_late: bool) -> Case:
    assume(all(dataset.table.num_rows for dataset in case.datasets))
    return replace(
        case, datasets=tuple(_grown(dataset, seed, ordered, nulls_late) for dataset in case.datasets)
    )


@effort(15)
@given(
    small=any_queries(),
    seed=st.integers(0, 2**32),
    ordered=st.booleans(),
    nulls_late=st.booleans(),
    threads=st.sampled_from([1, 2, 3]),
)
def test_random_queries_over_many_rows_equal_plain_python(
    small: Case, seed: int, ordered: bool, nulls_late: bool, threads: int
) -> None:
    case = _grown_case(small, seed, ordered, nulls_late)
    expected = expected_rows(case)
    assume(expected is not None)
    engine = pk.Engine(threads=threads, task_bytes=2_048)
    assert_answer(expected or [], collected(case, engine=engine), "many rows", d.promises_order(case.query))


@effort(12)
@given(
    small=any_queries(),
    seed=st.integers(0, 2**32),
    nulls_late=st.booleans(),
    step=st.sampled_from([50, 333]),
    engine=st.sampled_from([None, pk.Engine(threads=3, task_bytes=512), pk.Engine(adaptive=False)]),
)
def test_random_queries_over_many_batches_equal_plain_python(
    small: Case, seed: int, nulls_late: bool, step: int, engine: pk.Engine | None
) -> None:
    case = _grown_case(small, seed, ordered=True, nulls_late=nulls_late)
    expected = expected_rows(case)
    assume(expected is not None)
    batches = {
        dataset.name: dataset.table.combine_chunks().to_batches(max_chunksize=step)
        for dataset in case.datasets
    }
    assert_answer(
        expected or [], streamed(case, batches, engine), "many batches", d.promises_order(case.query)
    )
