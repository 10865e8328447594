"""A table of this process handed to Spark: rows keep their time and their place, so that answers stay the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import penstock as pk
from tests.spark.agree import assert_same

# Of the rows at 1 the values fall as the places rise: who sorts by values finds another last one.
TABLE = pa.table(
    {"t": [0, 1, 1, 1, 5], "seq": [0, 2, 2, None, 0], "k": ["a", "b", "a", "a", "b"], "v": [5, 4, 3, 2, 1]}
)
REGULAR = pa.table({"v": [5, 4, 3, 2, 1]})

QUERIES: dict[str, Callable[[pk.Stream], pk.Stream | pk.Signal]] = {
    "ends of windows": lambda s: s.window(3).agg(first=pk.first("v"), last=pk.last("v")),
    "counted rows": lambda s: s.rolling(pk.rows(2)).agg(m=pk.sum("v")),
    "distinct": lambda s: s.select("v").distinct("v"),
    "signal": lambda s: s.signal("v"),
    "as of": lambda s: s.select("v").join_asof(s.select("v")),
    "rows themselves": lambda s: s,
}


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("sequence", [None, "seq"])
def test_rows_of_one_time_keep_their_order(spark: Any, name: str, sequence: str | None) -> None:
    query = QUERIES[name](pk.from_arrow(TABLE, time="t", sequence=sequence))
    assert_same(query.collect(), query.to_spark(spark).toArrow(), name)


@pytest.mark.parametrize("name", QUERIES)
def test_regular_times_are_implied_there_too(spark: Any, name: str) -> None:
    query = QUERIES[name](pk.from_arrow(REGULAR, time=pk.every(2)))
    assert_same(query.collect(), query.to_spark(spark).toArrow(), name)


@pytest.mark.parametrize("by", [None, "k"])
def test_intervals_of_zeros_have_the_one_they_begin_with(spark: Any, by: str | None) -> None:
    table = pa.table({"t": [0, 1, 2, 3], "k": ["a"] * 4, "v": [-0.0, 0.0, 1.0, 0.0]})
    found = pk.from_arrow(table, time="t").signal("v", by=by).to_spark(spark).toArrow().sort_by("start")
    assert found["start"].to_pylist() == [0, 2, 3]
    assert str(found["value"].to_pylist()) == "[-0.0, 1.0, 0.0]"


def test_a_table_without_rows_has_types_that_spark_takes(spark: Any) -> None:
    nothing = pa.table({"t": pa.array([], pa.timestamp("us")), "v": pa.array([], pa.uint64())})
    query = pk.from_arrow(nothing, time="t").window("1s").agg(n=pk.count())
    assert query.to_spark(spark).count() == 0


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("bound", [True, False])
def test_how_a_query_would_run_is_told_whatever_its_data(*, name: str, bound: bool) -> None:
    declared = pk.stream("s", TABLE.schema, time="t")
    query = QUERIES[name](pk.from_arrow(TABLE, time="t", name="s") if bound else declared)
    assert "stream 's': a DataFrame" in query.explain("spark")
