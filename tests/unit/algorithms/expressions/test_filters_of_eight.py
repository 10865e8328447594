"""Filters look at eight rows at once: any length, any offset in a bitmap, nulls and NaN give what plain Python gives."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as pk

Row = dict[str, Any]


def _above_zero(value: float | None) -> bool:
    return value is not None and (value > 0 or math.isnan(value))  # NaN is above all numbers


FILTERS: dict[str, tuple[pk.Expr, Callable[[Row], bool]]] = {
    "flag": (pk.col("b"), lambda row: row["b"] is True),
    "no flag": (~pk.col("b"), lambda row: row["b"] is False),
    "float": (pk.col("f") > 0, lambda row: _above_zero(row["f"])),
    "int": (pk.col("i") == 1, lambda row: row["i"] == 1),
    "null": (pk.col("f").is_null() | (pk.col("i") < 0), lambda row: row["f"] is None or (row["i"] or 0) < 0),
    "filled": (pk.col("i").fill_null(2) != 2, lambda row: row["i"] not in (None, 2)),
}


def events(rows: int, offset: int, in_order: bool) -> pa.Table:
    """Rows behind some others, so that no bitmap begins with a byte."""
    random, many = np.random.default_rng(rows + offset), rows + offset
    times = random.integers(-500, 500, many)
    columns = {
        "b": random.random(many) < 0.5,
        "f": random.choice([1.5, -2.0, np.nan, np.inf, 0.0], many),
        "i": random.integers(-3, 3, many).astype(np.int32),
        "k": random.integers(0, 4, many),
    }
    nullable = {name: pa.array(column, mask=random.random(many) < 0.2) for name, column in columns.items()}
    whole = {"t": np.sort(times) if in_order else times, "v": random.integers(0, 100, many)}
    return pa.table({**whole, **nullable}).slice(offset)


@pytest.mark.parametrize(("rows", "offset"), [(1, 3), (15, 1), (16, 7), (17, 8), (1_000, 13), (9_001, 5)])
@pytest.mark.parametrize("in_order", [True, False], ids=["in order", "mixed"])
@pytest.mark.parametrize("name", FILTERS)
def test_a_filter_keeps_the_rows_that_python_keeps(name: str, rows: int, offset: int, in_order: bool) -> None:
    condition, kept = FILTERS[name]
    table = events(rows, offset, in_order)
    passed = [row for row in table.to_pylist() if kept(row)]
    stream = pk.from_arrow(table, time="t").filter(condition)
    assert sorted(stream.select("t", "v").collect()["v"].to_pylist()) == sorted(row["v"] for row in passed)
    sums: dict[tuple[int, int | None], int] = defaultdict(int)
    for row in passed:
        sums[row["t"] // 100 * 100, row["k"]] += row["v"]
    found = stream.window(pk.tumbling(100), by="k").agg(s=pk.sum("v")).collect().to_pylist()
    assert {(row["window_start"], row["k"]): row["s"] for row in found} == dict(sums)
