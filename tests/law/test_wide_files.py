"""Files of thousands of columns, of which a query reads a few: no Python function is called for the others."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as pk

FEW, MANY = 300, 3_000
SOURCE = str(Path(pk.__file__).parent)


def written(folder: Path, columns: int, evolving: bool) -> str:
    """Two files; the second one has another order of columns, and one more, if they evolve."""
    folder.mkdir()
    table = pa.table({"t": [1, 2, 3, 4], **{f"c{place}": [1, 2, 3, 4] for place in range(columns)}})
    pq.write_table(table, folder / "a.parquet", row_group_size=2)
    names = [*reversed(table.column_names)] if evolving else table.column_names
    pq.write_table(table.select(names), folder / "b.parquet", row_group_size=2)
    return str(folder)


def query(folder: str) -> Any:
    rows = pk.scan(folder, time="t")
    return rows.filter(pk.col("c5") > 1).window(10).agg(total=pk.sum("c7"))


def calls(work: Any) -> int:
    """Count the calls of Penstock's Python functions, in all threads that begin meanwhile."""
    count = 0

    def called(frame: Any, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call" and frame.f_code.co_filename.startswith(SOURCE)

    threading.setprofile(called)
    sys.setprofile(called)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return count


@pytest.mark.parametrize("evolving", [False, True])
def test_columns_that_are_not_read_cost_no_python_call(tmp_path: Path, evolving: bool) -> None:
    costs = []
    for columns in (FEW, MANY):
        folder = written(tmp_path / str(columns), columns, evolving)
        assert query(folder).collect()["total"].to_pylist() == [18]  # footers are checked once
        costs.append(min(calls(lambda: query(folder).collect()) for _ in range(3)))  # noqa: B023 - called at once
    assert costs[1] - costs[0] < MANY // 100
