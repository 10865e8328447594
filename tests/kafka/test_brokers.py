"""Brokers that go away and come back, partitions that are added, Avro, headers, and Spark's own reader of Kafka."""

from __future__ import annotations

import io
import json
import threading
import time
from pathlib import Path
from typing import Any

import deltalake
import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as pk
from tests.kafka.test_topics import COLUMNS, asked, expected, rows, sent
from tests.spark.agree import assert_same

pytestmark = pytest.mark.slow


def test_avro_values_keys_and_headers_come_as_they_were_sent(broker: Any, tmp_path: Path) -> None:
    schema = {
        "type": "record",
        "name": "Row",
        "fields": [{"name": name, "type": "long"} for name in ("t", "k", "v")],
    }
    values = []
    for row in rows(0, 50):
        sink = io.BytesIO()
        fastavro.schemaless_writer(sink, schema, row)
        values.append((0, b"\x00\x00\x00\x00\x07" + sink.getvalue(), b"key"))
    broker.topic("avro", 1)
    broker.send("avro", [*values, (0, b"rubbish", None)], [("trace", b"1")])
    columns = {**COLUMNS, "kafka_key": "string", "kafka_headers": pa.map_(pa.string(), pa.binary())}
    events = pk.scan_kafka(
        broker.servers,
        "avro",
        columns,
        time="t",
        format="avro-registry",
        value_schema=schema,
        name="events",
        stop_after="1s",
        on_bad="quarantine",
        quarantine_to=tmp_path,
    )
    run = asked(events).run()
    result = pa.Table.from_batches(list(run), expected(1).schema)
    assert_same(expected(50), result, "Avro")
    assert (run.metrics.read, run.metrics.malformed) == (51, 1)
    (bad,) = pq.read_table(tmp_path).to_pylist()
    assert (bad["row"], bad["source"], bad["offset"]) == (b"rubbish", "avro/0", 50)
    own = pa.Table.from_batches(list(events.select("kafka_key", "kafka_headers").run()))
    assert own["kafka_key"].to_pylist() == ["key"] * 50
    assert own["kafka_headers"].to_pylist() == [[("trace", b"1")]] * 50


def test_a_run_outlives_its_broker_and_finds_new_partitions(broker: Any) -> None:
    """Kill -9 the broker in the middle; let the topic grow: a reader that joins no group has nothing to rebalance."""
    broker.topic("restarted", 2)
    sent(broker, "restarted", 0, 200)
    events = pk.scan_kafka(
        broker.servers,
        "restarted",
        COLUMNS,
        time="t",
        name="events",
        lateness=500,
        stop_after="20s",
        options={"log_level": "0"},
    )

    def trouble() -> None:
        time.sleep(2)
        broker.stop()
        time.sleep(1)
        broker.start()
        sent(broker, "restarted", 200, 300)
        broker.widen("restarted", 3)
        broker.send("restarted", [(2, json.dumps(row).encode(), None) for row in rows(300, 400)])

    meanwhile = threading.Thread(target=trouble)
    meanwhile.start()
    run = asked(events).run()
    result = pa.Table.from_batches(list(run), expected(1).schema)
    meanwhile.join()
    assert_same(expected(400), result, "after a restart")
    assert (run.metrics.read, run.metrics.late) == (400, 0)


def test_a_query_of_spark_outlives_its_broker_while_it_runs(spark: Any, broker: Any, tmp_path: Path) -> None:
    broker.topic("alive", 2)
    sent(broker, "alive", 0, 200)
    events = pk.scan_kafka(
        broker.servers, "alive", COLUMNS, time="t", name="events", lateness=500, options={"log_level": "0"}
    )
    writer = asked(events).to_spark(spark).writeStream
    sink = pk.delta_sink(tmp_path / "table", query_id="alive")
    query = (
        writer.foreachBatch(sink)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(processingTime="1 second")
        .start()
    )
    read_all(query, 200)
    broker.stop()
    time.sleep(3)
    broker.start()
    sent(broker, "alive", 200, 400)
    broker.send(
        "alive", [(part, json.dumps({"t": 10_000, "k": 0, "v": 0}).encode(), None) for part in (0, 1)]
    )
    read_all(query, 402)
    query.stop()
    found = deltalake.DeltaTable(str(tmp_path / "table")).to_pyarrow_table()
    want = expected(400)
    assert_same(want, found.select(want.column_names).cast(want.schema), "while the broker was away")


def read_all(query: Any, many: int) -> None:
    """Wait until so many rows have been read."""
    for _ in range(240):
        counts = [progress.observedMetrics for progress in query.recentProgress if progress.observedMetrics]
        if sum(next(iter(count.values())).read for count in counts) >= many:
            return
        if query.exception() is not None:
            raise query.exception()
        time.sleep(0.5)
    raise AssertionError("rows are missing")


def test_sparks_own_reader_of_kafka_is_a_streaming_frame_like_any_other(
    spark: Any, broker: Any, tmp_path: Path
) -> None:
    if "spark-sql-kafka" not in str(spark.sparkContext.getConf().get("spark.jars")):
        pytest.skip("SPARK'S OWN KAFKA SOURCE IS NOT TESTED: its package cannot be fetched")
    broker.topic("own", 2)
    sent(broker, "own", 0, 400)
    broker.send("own", [(0, json.dumps({"t": 10_000, "k": 0, "v": 0}).encode(), None)])
    frame = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", broker.servers)
        .option("subscribe", "own")
        .option("startingOffsets", "earliest")
        .load()
        .selectExpr("from_json(cast(value as string), 't bigint, k bigint, v bigint') as row")
        .select("row.*")
    )
    events = pk.from_spark(frame, time="t", name="events")
    sink = pk.delta_sink(tmp_path / "table", query_id="own")
    writer = asked(events).to_spark(spark).writeStream.foreachBatch(sink)
    query = (
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    )
    query.awaitTermination()
    found = deltalake.DeltaTable(str(tmp_path / "table")).to_pyarrow_table()
    want = expected(400)
    assert_same(want, found.select(want.column_names).cast(want.schema), "by Spark's own reader")
