"""Files in a bucket on Spark: executors reach them, and no secret is in a plan, an explanation, an option or a log."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pytest

import penstock as pk
from tests.spark.agree import assert_same
from tests.storage.lake import KEY, SECRET, Lake, hadoop_settings

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
    with configured(spark, s3):
        views = query(pk.scan(s3.uri("events", "s3a"), time="t"))
        assert_same(views.collect(), views.to_spark(spark, tasks=2).toArrow(), "on Spark")


@contextmanager
def configured(spark: Any, s3: Lake) -> Iterator[None]:
    """Set Hadoop's settings of the bucket in a session."""
    settings = hadoop_settings(s3)
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in settings:
            spark.conf.unset(name)


def test_the_data_source_uses_the_configuration_of_the_session_that_registered_it(
    spark: Any, s3: Lake
) -> None:
    put_events(s3)
    views = query(pk.stream("events", SCHEMA, time="t"))
    with configured(spark, s3):
        pk.spark_session()  # registers the format again, with these settings
        expected = query(pk.scan(s3.uri("events"), time="t", name="events")).collect()
    try:
        frame = spark.read.format("penstock").option("query", views.to_json()).load(s3.uri("events"))
        assert_same(expected, frame.toArrow(), "on Spark")
        java = frame._jdf.queryExecution()
        assert [leaks(text) for text in (java.toString(), java.logical().toJSON())] == [[], []]
    finally:
        pk.spark_session()


def leaks(text: str) -> list[str]:
    return [secret for secret in (SECRET, SECRET.replace("/", "%2F"), KEY) if secret in text]


def test_no_plan_explanation_or_error_holds_a_secret(spark: Any, s3: Lake, capfd: Any) -> None:
    put_events(s3)
    views = query(pk.scan(s3.uri("events"), time="t", storage_options=s3.options))
    frame = views.to_spark(spark, strategy="fragments", tasks=2)
    frame.toArrow()
    java = frame._jdf.queryExecution()
    reported = [
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
    assert [leaks(text) for text in (*reported, str(raised.value), captured.out, captured.err)] == [[]] * (
        len(reported) + 3
    )


def test_a_stream_of_files_in_a_bucket_ends_with_every_row_and_no_secret_in_its_checkpoint(
    spark: Any, s3: Lake, tmp_path: Path
) -> None:
    put_events(s3)
    s3.put("events/3.parquet", b"not parquet")
    late = pa.table({"t": pa.array([1], pa.timestamp("us")), "k": [0], "v": [0]})
    events = pk.scan_stream(
        s3.uri("events"),
        time="t",
        schema=SCHEMA,
        format="parquet",
        name="events",
        lateness="0s",
        on_bad="quarantine",
        quarantine_to=s3.uri("bad"),
        late_to=s3.uri("late"),
        storage_options=s3.options,
    )
    views = query(events)
    frame = views.to_spark(spark)
    sink = pk.delta_sink(s3.uri("table"), query_id="q", storage_options=s3.options)
    checkpoint = tmp_path / "checkpoint"

    def run() -> Any:
        writer = frame.writeStream.option("checkpointLocation", str(checkpoint)).foreachBatch(sink)
        started = writer.trigger(availableNow=True).start()
        started.awaitTermination()
        return started

    first = run()
    s3.put_table("events/4.parquet", late)
    second = run()
    assert (first.exception(), second.exception()) == (None, None)
    table = pk.scan(s3.uri("table"), format="delta", time="window_start", storage_options=s3.options)
    closed = query(
        pk.scan(
            [s3.uri(f"events/{number}.parquet") for number in range(3)], time="t", storage_options=s3.options
        )
    ).collect()
    watermark = 5_999_000
    expected = closed.filter(pa.compute.less_equal(closed["window_end"].cast("int64"), watermark))
    assert_same(expected, table.collect(), "streamed")
    assert [s3.table(key).num_rows for key in s3.keys("late/")] == [1]
    assert [s3.table(key)["source"].to_pylist() for key in s3.keys("bad/")] == [[s3.uri("events/3.parquet")]]
    written = [path for path in checkpoint.rglob("*") if path.is_file()]
    assert len(written) > 5
    assert [path for path in written if leaks(path.read_bytes().decode("latin-1"))] == []
    reported = [
        first.explain(True),
        str(first.lastProgress),
        str(frame._jdf.queryExecution()),
        frame._jdf.queryExecution().logical().toJSON(),
    ]
    assert [leaks(str(text)) for text in reported] == [[]] * len(reported)


DRIVER = """
import json, os, sys
from pathlib import Path
import penstock as pk
options, folder = json.loads(sys.stdin.readline()), sys.argv[1]
config = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": folder, "spark.eventLog.compress": "false", "spark.log.level": "INFO"}
spark = pk.spark_session("local[1]", config=config)
events = pk.scan("s3://lake/events", time="t", storage_options=options)
query = events.window("1s", by="k").agg(n=pk.count())
print(query.to_spark(spark, strategy="fragments", tasks=2).toArrow().num_rows)


def started_by(number):  # only what this driver started: other processes are none of its business
    for children in Path(f"/proc/{number}/task").glob("*/children"):
        for child in children.read_text().split():
            yield child
            yield from started_by(child)


for number in (os.getpid(), *started_by(os.getpid())):
    print("command line:", Path(f"/proc/{number}/cmdline").read_text().replace(chr(0), " "))
spark.stop()
"""


@pytest.mark.campaign  # a driver of its own
def test_no_event_log_command_line_or_log_holds_a_secret(s3: Lake, tmp_path: Path) -> None:
    put_events(s3)
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, f"file://{tmp_path}"],
        input=json.dumps(s3.options) + "\n",
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    logs = [path.read_bytes().decode("latin-1") for path in tmp_path.rglob("*") if path.is_file()]
    assert sum(map(len, logs)) > 10_000
    assert done.stdout.count("command line:") >= 2
    assert [leaks(text) for text in (*logs, done.stdout, done.stderr)] == [[]] * (len(logs) + 2)
