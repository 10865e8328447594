"""Files in a bucket on Spark: executors reach them, and no secret is in a plan, an explanation, an option or a log."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as pk
from tests.spark.agree import assert_same
from tests.storage.lake import KEY, SECRET, Lake

SCHEMA = {"t": "timestamp[us]", "k": "int64", "v": "int64"}


def put_events(s3: Lake, files: int = 3, rows: int = 2_000) -> None:
    rng = np.random.default_rng(3)
    for number in range(files):
        times = pa.array(np.arange(number * rows, (number + 1) * rows) * 1_000, pa.timestamp("us"))
        table = pa.table({"t": times, "k": rng.integers(0, 5, rows), "v": rng.integers(0, 100, rows)})
        s3.put_table(f"events/{number}.parquet", table, row_group_size=500)


def query(events: pk.Stream) -> pk.Stream:
    return events.window("1s", by="k").agg(n=pk.count(), total=pk.sum("v"))


@pytest.mark.parametrize("strategy", ["slices", "fragments", "keys", "one"])
def test_every_strategy_reads_a_bucket(spark: Any, s3: Lake, strategy: str) -> None:
    put_events(s3)
    views = query(pk.scan(s3.uri("events/*.parquet"), time="t", storage_options=s3.options))
    expected = views.collect()
    assert expected.num_rows > 5
    assert_same(expected, views.to_spark(spark, strategy=strategy, tasks=2).toArrow(), "on Spark")


def test_sessions_read_the_files_of_later_tasks(spark: Any, s3: Lake) -> None:
    put_events(s3)
    events = pk.scan(s3.uri("events"), time="t", storage_options=s3.options)
    sessions = events.window(pk.session("5ms"), by="k").agg(n=pk.count())
    assert_same(sessions.collect(), sessions.to_spark(spark, tasks=3).toArrow(), "on Spark")


def test_the_configuration_of_spark_is_used_where_no_options_are_given(spark: Any, s3: Lake) -> None:
    put_events(s3, files=1)
    settings = {
        "access.key": KEY,
        "secret.key": SECRET,
        "endpoint": s3.proxy.address.removeprefix("http://"),
        "connection.ssl.enabled": "false",
        "path.style.access": "true",
        "endpoint.region": "us-east-1",
    }
    for name, value in settings.items():
        spark.conf.set(f"spark.hadoop.fs.s3a.{name}", value)
    try:
        views = query(pk.scan(s3.uri("events", "s3a"), time="t"))
        assert_same(views.collect(), views.to_spark(spark, tasks=2).toArrow(), "on Spark")
    finally:
        for name in settings:
            spark.conf.unset(f"spark.hadoop.fs.s3a.{name}")


def leaks(text: str) -> list[str]:
    return [secret for secret in (SECRET, SECRET.replace("/", "%2F"), KEY) if secret in text]


def test_no_plan_explanation_or_error_holds_a_secret(spark: Any, s3: Lake, capfd: Any) -> None:
    put_events(s3)
    views = query(pk.scan(s3.uri("events"), time="t", storage_options=s3.options))
    frame = views.to_spark(spark, strategy="fragments", tasks=2)
    frame.toArrow()
    java = frame._jdf.queryExecution()
    told = [
        views.to_json(),
        repr(views),
        *(str(views.explain(stage=stage)) for stage in ("plan", "ir", "physical", "spark")),
        java.toString(),
        java.logical().toJSON(),
        java.executedPlan().treeString(),
        repr(views.data),
    ]
    frame.explain("extended")
    again = views.to_spark(spark, strategy="fragments", tasks=2)
    s3.client.delete_object(Bucket=s3.bucket, Key="events/1.parquet")
    with pytest.raises(Exception, match="no such file") as raised:
        again.toArrow()
    captured = capfd.readouterr()
    assert [leaks(text) for text in (*told, str(raised.value), captured.out, captured.err)] == [[]] * (
        len(told) + 3
    )
