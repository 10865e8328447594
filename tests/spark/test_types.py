"""Types on their way to Spark and back: nothing is lost in silence."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import penstock as pk
from penstock.spark.types import arrow_schema, delivered_type, deliverer, spark_schema

MOMENT = datetime(2024, 3, 31, 1, 30, tzinfo=UTC)
COLUMNS = {
    "bool": pa.array([True, None]),
    "i8": pa.array([-128, None], pa.int8()),
    "i64": pa.array([2**63 - 1, None], pa.int64()),
    "u8": pa.array([255, None], pa.uint8()),
    "u32": pa.array([2**32 - 1, None], pa.uint32()),
    "u64": pa.array([2**64 - 1, None], pa.uint64()),
    "f32": pa.array([0.5, None], pa.float32()),
    "f64": pa.array([float("-inf"), None], pa.float64()),
    "text": pa.array(["é", None]),
    "long text": pa.array(["é", None], pa.large_string()),
    "dictionary": pa.array(["a", None]).dictionary_encode(),
    "bytes": pa.array([b"\0a", None]),
    "sixteen": pa.array([b"0123456789abcdef", None], pa.binary(16)),
    "date": pa.array([date(1969, 7, 20), None]),
    "instant": pa.array([MOMENT, None], pa.timestamp("us", "Asia/Tokyo")),
    "milliseconds": pa.array([MOMENT, None], pa.timestamp("ms", "UTC")),
    "local": pa.array([MOMENT.replace(tzinfo=None), None], pa.timestamp("ns")),
    "length": pa.array([timedelta(microseconds=-5), None], pa.duration("us")),
    "price": pa.array([Decimal("1.25"), None], pa.decimal128(10, 2)),
    "list": pa.array([[1, None], None], pa.list_(pa.int64())),
    "record": pa.array([{"a": 1, "b": None}, None], pa.struct({"a": pa.int32(), "b": pa.string()})),
}
TABLE = pa.table({"t": pa.array([1, 2]), **COLUMNS})


def test_columns_of_every_type_arrive_in_spark_as_they_were(spark: Any) -> None:
    result = pk.from_arrow(TABLE, time="t").filter(pk.col("t") > 0).to_spark(spark).orderBy("t").toArrow()
    for name, column in COLUMNS.items():
        assert result[name].to_pylist() == column.to_pylist(), name


@pytest.mark.parametrize(
    ("given", "simple"),
    [
        (pa.timestamp("ns"), "timestamp_ntz"),
        (pa.timestamp("s", "Europe/Berlin"), "timestamp"),
        (pa.uint64(), "decimal(20,0)"),
        (pa.uint16(), "int"),
        (pa.duration("ms"), "interval day to second"),
        (pa.list_(pa.timestamp("ms")), "array<timestamp_ntz>"),
        (pa.dictionary(pa.int8(), pa.string()), "string"),
    ],
    ids=str,
)
def test_a_type_of_arrow_has_one_of_spark(given: pa.DataType, simple: str) -> None:
    assert spark_schema(pa.schema({"x": given}))["x"].dataType.simpleString() == simple


def test_a_schema_comes_back_as_it_is_delivered() -> None:
    delivered = pa.schema([pa.field(field.name, delivered_type(field.type, "UTC")) for field in TABLE.schema])
    assert arrow_schema(spark_schema(TABLE.schema), "UTC").equals(delivered)


def test_nanoseconds_that_spark_cannot_hold_are_refused() -> None:
    schema = pa.schema({"x": pa.timestamp("ns")})
    batch = pa.record_batch([pa.array([1_000_000_007], pa.timestamp("ns"))], schema=schema)
    with pytest.raises(pk.OverflowError, match=r"'x'.*truncate") as caught:
        deliverer(schema, "UTC")(batch)
    assert "007" not in str(caught.value)


def test_the_bounds_of_windows_are_never_null(spark: Any) -> None:
    query = pk.from_arrow(TABLE, time="t").window(10, by="i8").agg(n=pk.count())
    fields = {field.name: field.nullable for field in query.to_spark(spark).schema.fields}
    assert fields == {"window_start": False, "window_end": False, "i8": True, "n": True}


def test_times_follow_the_zone_of_the_session(spark: Any) -> None:
    """An instant bound to a stream of local times is read as Spark reads it: on the session's clock."""
    frame = spark.sql("select timestamp'2024-07-01 10:30:00Z' as ts, 1 as v")
    declared = pk.stream("events", {"ts": "timestamp[us]", "v": "int32"}, time="ts")
    query = declared.window("1h").agg(n=pk.count())
    before = spark.conf.get("spark.sql.session.timeZone")
    try:
        assert query.to_spark(spark, events=frame).toArrow()["window_start"].to_pylist() == [
            datetime(2024, 7, 1, 10)
        ]
        spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
        local = query.to_spark(spark, events=frame).toArrow()["window_start"].to_pylist()
        assert local == [datetime(2024, 7, 1, 16)]
        instants = pk.from_spark(frame, time="ts").window("1h").agg(n=pk.count()).to_spark(spark)
        assert instants.schema["window_start"].dataType.simpleString() == "timestamp"
        assert instants.toArrow()["window_start"].to_pylist() == [datetime(2024, 7, 1, 10, tzinfo=UTC)]
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
