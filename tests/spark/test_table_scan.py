"""Tables of the catalog: Parquet files are read by our tasks, everything else through Spark, with the same answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import penstock as pk
from penstock.sources.lake.table import LakeTable
from penstock.spark.bound import BoundDataFrame
from tests.spark.agree import assert_same

ROWS = pa.table(
    {
        "t": pa.array([1, 2, 3, 11_000_000, 12_000_000], pa.timestamp("us", "UTC")),
        "k": ["a b", "c/d", "a b", "é%=", None],
        "v": [1, 2, 3, 4, 5],
    }
)
MAKE = {
    "plain": ("parquet", "", "LakeTable"),
    "partitioned": ("parquet", "partitioned by (k)", "LakeTable"),
    "of orc": ("orc", "", "Frame"),
}


@pytest.fixture
def events(spark: Any) -> Iterator[str]:
    spark.createDataFrame(ROWS).createOrReplaceTempView("rows_of_test")
    yield "rows_of_test"
    spark.catalog.dropTempView("rows_of_test")


def counts(stream: pk.Stream) -> pk.Stream:
    return stream.window("10s", by="k").agg(n=pk.count(), total=pk.sum("v"))


@pytest.mark.parametrize(("provider", "clause", "kind"), MAKE.values(), ids=MAKE.keys())
def test_a_table_gives_the_rows_that_spark_reads(
    spark: Any, events: str, provider: str, clause: str, kind: str
) -> None:
    spark.sql("drop table if exists scanned")
    spark.sql(f"create table scanned using {provider} {clause} as select * from {events}")
    stream = pk.table_scan("spark_catalog.default.scanned", time="t", spark=spark)
    assert type(next(iter(stream.data.values()))) is {"LakeTable": LakeTable, "Frame": BoundDataFrame}[kind]
    expected = counts(pk.from_arrow(ROWS, time="t")).collect()
    assert_same(expected, counts(stream).collect().select(expected.column_names), "collected")
    on_spark = counts(stream).to_spark(spark, tasks=2).toArrow()
    assert_same(expected, on_spark.cast(expected.schema), "on Spark")
    spark.sql("drop table scanned")


def test_a_partition_that_left_the_catalog_and_a_column_that_came_later_are_as_spark_sees_them(
    spark: Any, events: str, tmp_path: Any
) -> None:
    spark.sql("drop table if exists scanned")
    spark.sql(
        f"create table scanned using parquet partitioned by (k) location '{tmp_path}/with space' as select * from {events}"
    )
    spark.sql("alter table scanned drop partition (k = 'c/d')")
    spark.sql("alter table scanned add columns (w bigint)")
    stream = pk.table_scan("scanned", time="t")
    assert (tmp_path / "with space" / "k=c%2Fd").is_dir()
    expected = sorted(map(repr, spark.table("scanned").toArrow().select(["k", "v", "w"]).to_pylist()))
    assert sorted(map(repr, stream.collect().select(["k", "v", "w"]).to_pylist())) == expected
    spark.sql("drop table scanned")


def test_a_partition_elsewhere_is_read_through_spark(spark: Any, events: str, tmp_path: Any) -> None:
    spark.sql("drop table if exists scanned")
    spark.sql("create table scanned (t timestamp, v bigint, k string) using parquet partitioned by (k)")
    spark.sql(f"alter table scanned add partition (k = 'x') location '{tmp_path}/elsewhere'")
    spark.sql("insert into scanned values (timestamp '2026-01-01 00:00:00', 7, 'x')")
    stream = pk.table_scan("scanned", time="t", spark=spark)
    assert isinstance(next(iter(stream.data.values())), BoundDataFrame)
    assert stream.collect()["v"].to_pylist() == [7]
    spark.sql("drop table scanned")


def test_a_view_is_read_through_spark_and_a_missing_table_is_named(spark: Any, events: str) -> None:
    stream = pk.table_scan(events, time="t", spark=spark)
    assert stream.collect()["v"].to_pylist() == [1, 2, 3, 4, 5]
    with pytest.raises(pk.SourceError, match=r"the table 'no\.such' cannot be found"):
        pk.table_scan("no.such", time="t", spark=spark)
    with pytest.raises(pk.SourceError, match="takes the name of a table"):
        pk.table_scan(3, time="t", spark=spark)
    with pytest.raises(pk.SourceError, match="cannot be found"):
        pk.table_scan("a; drop table scanned", time="t", spark=spark)
