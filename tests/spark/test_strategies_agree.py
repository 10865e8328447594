"""Every strategy gives the one answer, for any query, however files and tasks are cut."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import assume, given
from hypothesis import strategies as st

import penstock as pk
from penstock.spark.task_memory import UNBOUNDED, TaskMemory
from tests.oracle.build import build_over
from tests.oracle.effort import effort
from tests.oracle.engines import assert_answer, expected_rows
from tests.oracle.queries import Case, any_queries
from tests.oracle.strategies import Dataset
from tests.spark.local import every_strategy


def written(data: Dataset, folder: Path, files: int, rows: int) -> Any:
    """Write a table as several files of small row groups, and scan them."""
    folder.mkdir()
    table, edges = data.table, [data.table.num_rows * part // files for part in range(files + 1)]
    for number in range(files):
        piece = table.slice(edges[number], edges[number + 1] - edges[number])
        pq.write_table(piece, folder / f"{number}.parquet", row_group_size=rows, store_schema=True)
    return pk.scan(str(folder), time="t", unit=data.time.unit, name=data.name)


def has_seconds(table: pa.Table) -> bool:
    """Tell whether Parquet would bring timestamps back in another unit: it knows no seconds."""
    return any(pa.types.is_timestamp(field.type) and field.type.unit == "s" for field in table.schema)


@effort(40)
@given(
    case=any_queries(),
    files=st.integers(1, 3),
    rows=st.integers(1, 7),
    tasks=st.integers(1, 4),
    seed=st.integers(0, 99),
    limit=st.sampled_from([UNBOUNDED.limit, 100]),
)
def test_generated_queries_have_one_answer_in_every_strategy(
    case: Case, files: int, rows: int, tasks: int, seed: int, limit: int
) -> None:
    assume(not any(has_seconds(dataset.table) for dataset in case.datasets))
    expected = expected_rows(case)
    assume(expected is not None)
    with tempfile.TemporaryDirectory() as folder:
        made = {
            dataset.name: written(dataset, Path(folder, dataset.name), files, rows)
            for dataset in case.datasets
        }
        results = every_strategy(build_over(case.query, made), tasks, seed, TaskMemory(limit))
    assert "one" in results
    for strategy, result in results.items():
        assert_answer(expected or [], result, strategy, ordered=False)
