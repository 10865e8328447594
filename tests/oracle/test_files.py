"""A file gives the answer of the table it was written from, whatever its columns and row groups."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import assume, given
from hypothesis import strategies as st

import penstock as pk
from tests.oracle import describe as d
from tests.oracle.build import build_over
from tests.oracle.effort import effort
from tests.oracle.engines import assert_answer, expected_rows
from tests.oracle.queries import Case, any_queries
from tests.oracle.strategies import Dataset


def _write(table: pa.Table, folder: Path, format: str, parts: int) -> Path:
    """Write a table as several files, in the order of their names."""
    edges = [table.num_rows * part // parts for part in range(parts + 1)]
    for number in range(parts):
        piece = table.slice(edges[number], edges[number + 1] - edges[number])
        path = folder / f"{number}.{format}"
        if format == "parquet":
            pq.write_table(piece, path, row_group_size=7, store_schema=True)
            continue
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, piece.schema) as out:
            out.write_table(piece.unify_dictionaries(), max_chunksize=5)
    return folder / f"*.{format}"


def _scan(data: Dataset, folder: str, format: str, parts: int) -> Any:
    path = _write(data.table, Path(folder), format, parts)
    return pk.scan(str(path), time="t", unit=data.time.unit, name=data.name)


def _has_seconds(table: pa.Table) -> bool:
    """Tell whether Parquet would bring timestamps back in another unit: it knows no seconds."""
    return any(pa.types.is_timestamp(field.type) and field.type.unit == "s" for field in table.schema)


@effort(30)
@given(case=any_queries(), format=st.sampled_from(["parquet", "arrow"]), parts=st.integers(1, 3))
def test_files_give_the_answer_of_their_table(case: Case, format: str, parts: int) -> None:
    assume(len(case.datasets) == 1)
    assume(format != "parquet" or not _has_seconds(case.datasets[0].table))
    expected = expected_rows(case)
    assume(expected is not None)
    with tempfile.TemporaryDirectory() as folder:
        source = _scan(case.datasets[0], folder, format, parts)
        result = build_over(case.query, {"events": source}).collect()
    assert_answer(expected or [], result, format, d.promises_order(case.query))
