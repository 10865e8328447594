"""Rows of a DataFrame have no position: those of one time are ordered by what the query looks at, everywhere alike."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import penstock as pk

# By `other` the first `v` would be 2; who looks at `v` alone finds 1.
TABLE = pa.table({"t": [1, 1, 1, 5], "other": [3, 1, 2, 0], "v": [1, 2, 3, 4]})
EVENTS = pk.stream("s", TABLE.schema, time="t")
ENDS = EVENTS.window(10).agg(first=pk.first("v"), last=pk.last("v"))
WINDOW = {"window_start": 0, "window_end": 10}


def test_ties_are_broken_alike_in_collect_in_run_and_on_spark(spark: Any) -> None:
    frame = spark.createDataFrame(TABLE)
    query = pk.from_spark(frame, time="t", name="s").window(10).agg(first=pk.first("v"), last=pk.last("v"))
    expected = [WINDOW | {"first": 1, "last": 4}]
    assert query.collect().to_pylist() == expected
    assert [row for batch in query.run() for row in batch.to_pylist()] == expected
    assert query.to_spark(spark).toArrow().to_pylist() == expected
    assert ENDS.collect(s=frame).to_pylist() == expected
    assert [row for batch in ENDS.run(frame) for row in batch.to_pylist()] == expected


@pytest.mark.parametrize(
    ("aggregate", "sequence", "ties"),
    [(pk.first("v"), None, 2), (pk.sum("v"), None, 0), (pk.first("v"), "other", 0)],
    ids=["values decide", "nobody sees the order", "a sequence decides"],
)
def test_ties_in_this_process_are_counted(
    spark: Any, aggregate: pk.Expr, sequence: str | None, ties: int
) -> None:
    source = pk.from_spark(spark.createDataFrame(TABLE), time="t", sequence=sequence)
    query = source.window(10).agg(a=aggregate)
    query.collect()
    assert query.metrics.ties == ties
    run = query.run()
    assert list(run)
    assert run.metrics.ties == ties


def test_a_dataframe_is_a_table_and_no_arrow_data(spark: Any) -> None:
    frame = spark.createDataFrame(pa.table({"v": [1], "name": ["one"]}))
    named = pk.from_arrow(TABLE, time="t").join(pk.table(frame), on="v")
    assert named.collect()["name"].to_pylist() == ["one"]
    with pytest.raises(pk.SourceError, match="from_spark"):
        pk.from_arrow(frame, time="v")


def test_only_a_session_of_spark_runs_a_query_on_spark() -> None:
    with pytest.raises(pk.EngineError, match="SparkSession"):
        ENDS.to_spark(42, TABLE)
