"""Decimals, and files whose schemas differ, through Spark: the answers are those of this process."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import penstock as pk
from tests.spark.agree import assert_same

SCHEMA = {"ts": "int64", "k": "string", "price": "decimal(12, 2)", "fee": "decimal(30, 4)", "n": "int64"}
PRICE, FEE = pk.col("price"), pk.col("fee")
QUERIES: dict[str, Any] = {
    "rows": lambda s: s.filter(Decimal("1.50") < PRICE).select("k", x=PRICE * 2 - FEE, q=PRICE / 3),
    "tumbling": lambda s: s.window(50, by="k").agg(t=pk.sum("price"), m=pk.mean("fee"), hi=pk.max("fee"), n=pk.count("n")),
    "session by a wide decimal": lambda s: s.window(pk.session(20), by="fee").agg(t=pk.sum("price"), n=pk.count()),
    "rolling": lambda s: s.rolling(30, by="k").agg(t=pk.sum("price"), lo=pk.min("fee")),
}  # fmt: skip


def written(folder: Path, rows: int = 600) -> str:
    """Three files: an old one without `fee` and `n`, one with narrower types, and one as declared."""
    kinds = [
        pa.schema({"k": pa.string(), "price": pa.decimal128(9, 1), "ts": pa.int32()}),
        pa.schema({"n": pa.int32(), "ts": pa.int64(), "price": pa.decimal128(10, 2), "fee": pa.decimal128(9, 2), "k": pa.string()}),
        pa.schema({"ts": pa.int64(), "k": pa.string(), "price": pa.decimal128(12, 2), "fee": pa.decimal128(30, 4), "n": pa.int64()}),
    ]  # fmt: skip
    folder.mkdir()
    for number, schema in enumerate(kinds):
        cells = [
            {
                "ts": number * rows + place,
                "k": "abc"[place % 3],
                "price": Decimal(place % 40) / 10,
                "fee": None if place % 7 == 0 else Decimal(place % 5) / 4,
                "n": place,
            }
            for place in range(rows)
        ]
        table = pa.Table.from_pylist([{name: row[name] for name in schema.names} for row in cells], schema)
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=150)
    return str(folder)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> str:
    return written(tmp_path_factory.mktemp("lake") / "rows")


@pytest.mark.parametrize("name", QUERIES)
def test_evolving_files_give_the_same_through_spark(spark: Any, files: str, name: str) -> None:
    query = QUERIES[name](pk.scan(files, time="ts", schema=SCHEMA))
    assert_same(query.collect(), query.to_spark(spark).toArrow(), name)


@pytest.mark.parametrize("name", ["rows", "tumbling", "session by a wide decimal"])
def test_decimals_of_a_data_frame_are_those_of_spark(spark: Any, files: str, name: str) -> None:
    rows = pk.scan(files, time="ts", schema=SCHEMA)
    table = rows.collect()
    frame = spark.createDataFrame(table)
    assert frame.schema["fee"].dataType.simpleString() == "decimal(30,4)"
    query = QUERIES[name](pk.from_spark(frame, time="ts"))
    assert_same(QUERIES[name](rows).collect(), query.to_spark(spark).toArrow(), name)


def test_types_and_values_are_those_of_spark_sql(spark: Any, files: str) -> None:
    table = pk.scan(files, time="ts", schema=SCHEMA).collect()
    frame = spark.createDataFrame(table)
    expressions = {
        "a": "price + fee",
        "b": "price - 1.5",
        "c": "price * price",
        "d": "price / 3.7",
        "e": "-price",
        "f": "price % 1.1",
    }
    ours = pk.sql(
        "select ts, " + ", ".join(f"{text} as {name}" for name, text in expressions.items()) + " from rows",
        rows=pk.from_arrow(table, time="ts", name="rows"),
    )
    theirs = frame.selectExpr("ts", *(f"{text} as {name}" for name, text in expressions.items()))
    found, expected = ours.collect(), theirs.toArrow()
    for name in expressions:
        assert found.schema.field(name).type == expected.schema.field(name).type, name
        assert found[name].to_pylist() == expected[name].to_pylist(), name
    means = frame.groupBy().agg({"price": "avg", "fee": "sum"}).toArrow()
    own = (
        pk.from_arrow(table, time="ts")
        .window(pk.unbounded())
        .agg(m=pk.mean("price"), s=pk.sum("fee"))
        .collect()
    )
    assert {means["avg(price)"][0].as_py(), means["sum(fee)"][0].as_py()} == {
        own["m"][0].as_py(),
        own["s"][0].as_py(),
    }
    assert {means.schema.field("avg(price)").type, means.schema.field("sum(fee)").type} == {
        own.schema.field("m").type,
        own.schema.field("s").type,
    }


def test_files_that_arrive_in_spark_may_lack_columns(spark: Any, files: str, tmp_path: Path) -> None:
    stream = pk.scan_stream(files, time="ts", schema=SCHEMA, format="parquet")
    query = QUERIES["tumbling"](stream)
    frame = query.to_spark(spark)
    running = (
        frame.writeStream.format("memory")
        .queryName("evolving")
        .option("checkpointLocation", str(tmp_path))
        .outputMode("append")
        .trigger(availableNow=True)
        .start()
    )
    running.awaitTermination(120)
    found = spark.table("evolving").toArrow()
    expected = QUERIES["tumbling"](pk.scan(files, time="ts", schema=SCHEMA)).collect()
    closed = max(found["window_end"].to_pylist())
    assert closed >= 1700
    assert_same(expected.filter(pc.less_equal(expected["window_end"], closed)), found, "stream")
