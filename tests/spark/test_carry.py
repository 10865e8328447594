"""As-of joins cut into slices of time: rows from before a slice are found, however far back and at whatever border."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from penstock.spark import asof_carry_in
from penstock.spark.planning import planned
from tests.oracle.effort import effort
from tests.spark.agree import assert_same
from tests.spark.local import run_locally

KEYS = st.sampled_from(["a", "b", "c", "", None])


@st.composite
def ordered_tables(draw: st.DrawFn, value: str) -> pa.Table:
    """Rows in order of time, many of them at one time, of keys that come and go."""
    steps = draw(st.lists(st.sampled_from([0, 0, 0, 1, 1, 2, 7, 40]), max_size=30))
    times = np.cumsum([draw(st.integers(-40, 40)), *steps])
    some = draw(st.lists(KEYS, min_size=len(times), max_size=len(times)))
    other = draw(st.lists(st.integers(0, 1), min_size=len(times), max_size=len(times)))
    return pa.table({"t": times, "k": pa.array(some, pa.string()), "j": other, value: np.arange(len(times))})


def written(table: pa.Table, folder: Path, files: int, group: int) -> str:
    folder.mkdir()
    edges = [table.num_rows * part // files for part in range(files + 1)]
    for number in range(files):
        piece = table.slice(edges[number], edges[number + 1] - edges[number])
        pq.write_table(piece, folder / f"{number}.parquet", row_group_size=group)
    return str(folder)


def queries(left: Any, right: Any) -> dict[str, Any]:
    odd = right.filter(pk.col("y") % 3 != 1)
    return {
        "one key": left.join_asof(right, by="k"),
        "two keys": left.join_asof(right, by=["k", "j"]),
        "no keys": left.join_asof(right),
        "no keys, some rows": left.join_asof(odd, allow_exact_matches=False),
        "not at the same time": left.join_asof(right, by="k", allow_exact_matches=False),
        "of some rows": left.filter(pk.col("x") % 2 == 0).join_asof(odd.select("k", z=pk.col("y") + 1), by="k"),
        "then windows": left.join_asof(right, by="k").window(10, by="k").agg(n=pk.count(), s=pk.sum("y")),
        "then look-backs": left.join_asof(odd, by="k").rolling(9).agg(s=pk.sum("y")),
        "with itself": left.join_asof(left.filter(pk.col("x") % 2 == 1), by="k", allow_exact_matches=False),
    }  # fmt: skip


@effort(25)
@given(ordered_tables("x"), ordered_tables("y"), st.integers(1, 3), st.integers(1, 7), st.integers(1, 5))
def test_slices_give_the_one_answer(
    left: pa.Table, right: pa.Table, files: int, group: int, tasks: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        paths = [
            written(value, Path(folder, name), files, group) for name, value in (("a", left), ("b", right))
        ]
        streams = (pk.scan(path, time="t", name=name) for path, name in zip(paths, "ab", strict=True))
        for name, query in queries(*streams).items():
            assert_same(query.collect(), run_locally(query, "slices", tasks), name)


def lakes(folder: Path, keys: int = 10) -> tuple[Any, Any]:
    """Two thousand rows a side, the keys of the right ones in turn."""
    rows = np.arange(2_000)
    for name, shift in (("a", 1), ("b", 0)):
        table = pa.table({"t": 2 * rows + shift, "k": rows % keys, name + "v": rows})
        written(table, folder / name, 4, 100)
    left, right = (pk.scan(folder / name, time="t", name=name) for name in "ab")
    return left, right


def test_a_task_reads_back_only_as_far_as_its_keys_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, right = lakes(tmp_path)
    read: list[int] = []
    one = asof_carry_in.rows_of_piece

    def counted(*given: Any) -> Any:
        for rows in one(*given):
            read.append(sum(batch.num_rows for batch in rows.batches))
            yield rows

    monkeypatch.setattr("penstock.spark.asof_carry_in.rows_of_piece", counted)
    query = left.join_asof(right, by="k")
    assert_same(query.collect(), run_locally(query, "slices", 4), "ten keys")
    assert read == [100, 100, 100]  # the row group before each slice but the first


def test_unordered_files_are_not_sliced(tmp_path: Path) -> None:
    left, _ = lakes(tmp_path)
    mixed = pa.table({"t": [5, 6, 1, 2], "k": [1, 1, 1, 1], "v": [1, 2, 3, 4]})
    written(mixed, tmp_path / "c", 2, 2)
    query = left.join_asof(pk.scan(tmp_path / "c", time="t", name="c"), by="k")
    with pytest.raises(pk.EngineError, match="not in the required order"):
        planned(query.compiled(), query.data, "slices", 2)


def test_floats_and_computed_keys_are_shuffled(tmp_path: Path) -> None:
    left, right = lakes(tmp_path)
    halves = (value.with_columns(h=pk.col("k") / 2) for value in (left, right))
    query = next(halves).join_asof(next(halves), by="h")
    with pytest.raises(pk.EngineError, match="however long ago"):
        planned(query.compiled(), query.data, "slices", 2)


def test_spark_reads_back(spark: Any, tmp_path: Path) -> None:
    left, right = lakes(tmp_path)
    query = left.join_asof(right, by="k")
    assert_same(query.collect(), query.to_spark(spark, strategy="slices", tasks=3).toArrow(), "on Spark")
