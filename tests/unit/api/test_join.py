"""Joins as they are written: whose columns conditions name, and what results are called."""

from __future__ import annotations

import pyarrow as pa
import pytest

import penstock as pk

LEFT = pk.from_arrow(pa.table({"t": [1, 5], "v": [1, 2], "left.v": [7, 8]}), time="t", name="l")
RIGHT = pk.from_arrow(pa.table({"t": [3], "v": [2], "z": [1]}), time="t", name="r")


@pytest.mark.parametrize(
    ("condition", "hint"),
    [
        (pk.col("v") < pk.right("v"), r"write pk\.left\('v'\) or pk\.right\('v'\) instead of 'v'"),
        (pk.col("z") == 1, r"write pk\.right\('z'\) instead of 'z'"),
        ("z", r"write pk\.right\('z'\) instead of 'z'"),
        (pk.left("nope") == 1, r"no column 'left\.nope'"),
    ],
)
def test_a_column_without_a_side_is_refused_with_what_to_write(condition: object, hint: str) -> None:
    with pytest.raises(pk.UnknownColumnError, match=hint):
        LEFT.join(RIGHT, window=10, where=condition)


def test_columns_may_be_called_as_sides_are_written() -> None:
    made = LEFT.join(RIGHT, window=10, where=(pk.left("v") == pk.right("v")) & (pk.left("left.v") == 8))
    assert made.collect()["left.v"].to_pylist() == [8]


def test_an_aggregate_over_rows_around_is_called_as_its_column_is() -> None:
    around = LEFT.join_rolling(RIGHT, within=(-9, 9))
    assert around.agg(pk.sum("z"), pk.max("v").alias("most")).collect().to_pydict() == {
        "t": [1, 5], "v": [1, 2], "left.v": [7, 8], "z": [1, 1], "most": [2, 2],
    }  # fmt: skip
    with pytest.raises(pk.SchemaMismatchError, match="more than one column named 'v'"):
        around.agg(pk.sum("v"))
