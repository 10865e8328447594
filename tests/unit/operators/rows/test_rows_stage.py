"""Filters and projections: bound to a layout, or in parts on several threads, they give the same rows in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as pk
from penstock.operators.rows import stage as stages

SCHEMA = {
    "t": "timestamp[us]",
    "k": "int32",
    "x": "float64",
    "flag": "bool",
    "day": "date32",
    "name": "string",
}
STREAM = pk.stream("rows", SCHEMA, time="t")
QUERIES = {
    "numbers": STREAM.filter(pk.col("k") > 2).select("t", "k", double=pk.col("x") * 2),
    "every type": STREAM.filter(pk.col("k") > 2),
    "no filter": STREAM.with_columns(double=pk.col("x") * 2),
    "nothing passes": STREAM.filter(pk.col("k") > 99).select("t", "k"),
    "host expression": STREAM.filter(pk.col("k") > 2).select("t", upper=pk.col("name").str.to_uppercase()),
    "tests for nulls": STREAM.filter(pk.col("x").is_null() | pk.col("name").is_null()).select("t", "k"),
    "may be null": STREAM.filter(pk.col("k") > 2).select("t", half=pk.col("k") / pk.col("k")),
}


def batch(rows: int, nulls: bool, first: int = 0) -> pa.RecordBatch:
    numbers = np.arange(first, first + rows)
    keys = [None if nulls and n % 5 == 0 else n % 7 for n in numbers.tolist()]
    return pa.record_batch(
        {
            "t": pa.array(numbers).cast(pa.timestamp("us")),
            "k": pa.array(keys, pa.int32()),
            "x": pa.array([None if nulls and n % 3 == 0 else n / 4 for n in numbers.tolist()], pa.float64()),
            "flag": pa.array([n % 2 == 0 for n in numbers.tolist()]),
            "day": pa.array((numbers % 9).astype("i4")).cast(pa.date32()),
            "name": pa.array(
                [None if nulls and n % 4 == 0 else f"name {n}" for n in numbers.tolist()], pa.string()
            ),
        }
    )


def pushed(query: Any, batches: list[pa.RecordBatch], engine: pk.Engine) -> pa.Table:
    with query.open(engine=engine) as live:
        made = [value for given in batches for value in live.push(given)] + live.finish()
        assert live.metrics.balanced
    return pa.Table.from_batches(made, query.schema)


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_small_pushes_with_and_without_nulls_equal_interpreted_kernels(query: Any) -> None:
    whole = batch(60, nulls=False)
    batches = [
        whole.slice(0, 9),
        whole.slice(9, 1),
        whole.slice(10, 0),
        whole.slice(10, 20),
        batch(8, True, 30),
    ]
    batches += [batch(11, False, 38).slice(3), batch(5, False, 49)]
    found = pushed(query, batches, pk.Engine(threads=1))
    assert found.equals(pushed(query, batches, pk.Engine(threads=1, backend="interpret")))


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
@pytest.mark.parametrize("nulls", [False, True])
def test_parts_on_several_threads_are_the_rows_in_order(
    query: Any, nulls: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = [batch(100, nulls), batch(3, nulls, 100)]
    expected = pushed(query, given, pk.Engine(threads=1))
    monkeypatch.setattr(stages, "FILTERED_ROWS_PER_THREAD", 10)
    found = pushed(query, given, pk.Engine(threads=3))
    assert found.combine_chunks().equals(expected.combine_chunks())
    assert query.collect(pa.Table.from_batches(given), engine=pk.Engine(threads=3)).equals(expected)


def test_a_failure_on_a_thread_reaches_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "FILTERED_ROWS_PER_THREAD", 10)
    query = pk.stream("big", {"t": "int64", "v": "int64"}, time="t").select("t", w=pk.col("v") * 2)
    rows = pa.record_batch({"t": np.arange(40), "v": np.where(np.arange(40) == 33, 1 << 62, 1)})
    with pytest.raises(pk.PenstockError, match="w"), query.open(engine=pk.Engine(threads=4)) as live:
        live.push(rows)


K = pk.col("k")
# Kernels for columns without nulls do not read `k` here.
ABOUT_NULLS = {
    "filter": STREAM.filter(K.is_null()).select("t", "x"),
    "filter, held rows": STREAM.filter(K.is_not_null()).rolling("9us").agg(n=pk.count()),
    "filter, text": STREAM.filter(pk.col("name").is_null()).select("t", "x"),
    "computed": STREAM.select("t", none=K.is_null()),
    "choice": STREAM.select("t", none=pk.when(K.is_null()).then(1).otherwise(0)),
    "count": STREAM.window("50us").agg(n=pk.count("k")),
    "count of texts": STREAM.window("50us").agg(n=pk.count("name")),
    "sliding count": STREAM.window("50us", every="10us").agg(n=pk.count("k")),
    "count where": STREAM.window("50us").agg(n=pk.count(where=K.is_null())),
    "filter, window": STREAM.filter(K.is_null()).window("50us").agg(n=pk.count()),
}


@pytest.mark.parametrize("query", ABOUT_NULLS.values(), ids=ABOUT_NULLS)
@pytest.mark.parametrize("without", [0, 20])
def test_nulls_of_columns_that_are_only_tested_for_nulls_are_seen(query: Any, without: int) -> None:
    """The first pushes may hold no nulls; the others hold some."""
    batches = [batch(1, nulls=row >= without, first=row) for row in range(60)]
    found = pushed(query, batches, pk.Engine(threads=1))
    expected = query.collect(rows=pa.Table.from_batches(batches), engine=pk.Engine(threads=1))
    assert found.to_pylist() == expected.to_pylist()
