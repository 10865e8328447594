"""Messages of a real broker, in this process and on Spark: the batch answer, whatever the partitions do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import penstock as pk
from tests.spark.agree import assert_same

pytestmark = pytest.mark.slow

COLUMNS = {"t": "int64", "k": "int64", "v": "int64"}


def rows(begin: int, end: int) -> list[dict[str, int]]:
    return [{"t": t, "k": t % 3, "v": t * 7 % 11} for t in range(begin, end)]


def asked(events: Any) -> pk.Stream:
    made: pk.Stream = events.window(pk.sliding(20, every=10), by="k").agg(total=pk.sum("v"), n=pk.count())
    return made


def expected(end: int) -> pa.Table:
    return asked(pk.stream("events", COLUMNS, time="t")).collect(pa.Table.from_pylist(rows(0, end)))


def sent(broker: Any, topic: str, begin: int, end: int) -> None:
    """Put neighbouring times into different partitions: one runs ahead of the other within a poll."""
    messages = [(row["t"] // 50 % 2, json.dumps(row).encode(), None) for row in rows(begin, end)]
    broker.send(topic, messages)


def test_partitions_wait_for_each_other_and_rubbish_is_counted(broker: Any) -> None:
    broker.topic("here", 3)
    sent(broker, "here", 0, 400)
    broker.send("here", [(1, b"rubbish", None), (1, b"{}{}", None), (0, b"", None)])
    run = asked(
        pk.scan_kafka(broker.servers, "here", COLUMNS, time="t", name="events", stop_after="1s")
    ).run()
    result = pa.Table.from_batches(list(run), expected(1).schema)
    assert_same(expected(400), result, "in this process")
    assert (run.metrics.read, run.metrics.malformed, run.metrics.late) == (403, 3, 0)


def test_arrow_values_carry_many_rows_and_kafka_tells_what_it_knows(broker: Any) -> None:
    broker.topic("arrow", 2)
    sink = pa.BufferOutputStream()
    table = pa.Table.from_pylist(rows(0, 5))
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    broker.send("arrow", [(1, bytes(sink.getvalue()), b"key"), (1, bytes(sink.getvalue()), None)])
    schema = {**COLUMNS, "kafka_key": "string", "kafka_partition": "int32", "kafka_offset": "int64"}
    events = pk.scan_kafka(broker.servers, "arrow", schema, time="t", format="arrow", stop_after="1s")
    found = pa.Table.from_batches(list(events.select("kafka_key", "kafka_partition", "kafka_offset").run()))
    assert found["kafka_key"].to_pylist() == ["key"] * 5 + [None] * 5
    assert found["kafka_partition"].to_pylist() == [1] * 10
    assert found["kafka_offset"].to_pylist() == [0] * 5 + [1] * 5


def test_spark_goes_on_after_restarts_of_the_query_and_of_the_broker(
    spark: Any, broker: Any, tmp_path: Path
) -> None:
    broker.topic("spark", 2)
    sent(broker, "spark", 0, 150)
    events = pk.scan_kafka(
        broker.servers, "spark", COLUMNS, time="t", name="events", lateness=100, max_rows=120
    )
    sink = pk.delta_sink(tmp_path / "table", query_id="kafka")

    def run_once() -> Any:
        writer = asked(events).to_spark(spark).writeStream.foreachBatch(sink)
        started = (
            writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        started.awaitTermination()
        return started

    run_once()
    broker.stop()
    broker.start()
    sent(broker, "spark", 150, 400)
    broker.send(
        "spark", [(part, json.dumps({"t": 10_000, "k": 0, "v": 0}).encode(), None) for part in (0, 1)]
    )
    last = run_once()
    counts = [
        next(iter(progress.observedMetrics.values()))
        for progress in last.recentProgress
        if progress.observedMetrics
    ]
    assert sum(count.read for count in counts) == 252
    assert sum(count.late for count in counts) == 0
    found = deltalake.DeltaTable(str(tmp_path / "table")).to_pyarrow_table()
    want = expected(400)
    assert_same(want, found.select(want.column_names).cast(want.schema), "on Spark")


def test_a_topic_that_is_not_there_and_a_broker_that_does_not_answer_are_named(
    broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(pk.SourceError, match="the topic 'nowhere' cannot be read"):
        list(pk.scan_kafka(broker.servers, "nowhere", COLUMNS, time="t").run())
    monkeypatch.setattr("penstock.sources.kafka._PATIENCE", 1.0)
    with pytest.raises(pk.SourceError, match="the brokers of topic 'x' do not answer"):
        list(pk.scan_kafka("127.0.0.1:1", "x", COLUMNS, time="t", options={"log_level": "0"}).run())
