"""Nulls that have no type: literals, and columns that hold nothing else."""

from __future__ import annotations

import pyarrow as pa
import pytest

import penstock as pk

TABLE = pa.table({"t": [1, 2, 11], "v": [1, 2, 3], "nothing": pa.nulls(3)})
EVENTS = pk.from_arrow(TABLE, time="t")
NULLS = {"a literal": pk.lit(None), "a column": pk.col("nothing")}


@pytest.mark.parametrize("null", NULLS)
def test_no_row_counts_where_null(null: str) -> None:
    found = EVENTS.window(10).agg(
        n=pk.count(where=NULLS[null]),
        total=pk.sum("v", where=NULLS[null]),
        middle=pk.median("v", where=NULLS[null]),
    )
    assert (
        found.collect().select(["n", "total", "middle"]).to_pylist()
        == [{"n": 0, "total": None, "middle": None}] * 2
    )


@pytest.mark.parametrize("null", NULLS)
def test_a_look_back_leaves_out_rows_where_null(null: str) -> None:
    assert EVENTS.rolling(10).agg(n=pk.count(where=NULLS[null])).collect()["n"].to_pylist() == [0, 0, 0]


@pytest.mark.parametrize("null", NULLS)
def test_counting_nulls_gives_zero(null: str) -> None:
    assert EVENTS.window(10).agg(n=pk.count(NULLS[null])).collect()["n"].to_pylist() == [0, 0]


def test_an_alias_is_a_text() -> None:
    with pytest.raises(pk.ExpressionTypeError, match="alias takes a name"):
        pk.col("v").alias(3)  # type: ignore[arg-type]
