"""Streaming queries on Spark: the batch answer, whatever happens to the process in between."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as pk
from penstock.spark.streaming.read_limits import PASSES_START
from tests.spark.agree import assert_same
from tests.spark.streaming.feed import Feed
from tests.spark.streaming.test_micro_batches import LAST, TABLE, cut, declared

PARTS = cut(TABLE, [40, 90])


def expected(name: str) -> pa.Table:
    table: pa.Table = declared("1s")[name].collect(TABLE)
    return table


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    made = Feed(tmp_path)
    made.put(0, PARTS[0])
    return made


@pytest.mark.campaign  # several drivers one after the other, more than a minute
@pytest.mark.parametrize(("name", "scanned"), [("tumbling", False), ("sessions", True)])
def test_restarts_between_batches_and_batches_that_come_twice_change_nothing(
    spark: Any, feed: Feed, name: str, scanned: bool
) -> None:
    """The crash between a sink's commit and Spark's leaves no file in `commits`: so the last batch comes again."""
    first = feed.run(spark, name, scanned)
    assert first.exception() is None
    newest = max((feed.checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()
    (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)
    for number, part in enumerate([*PARTS[1:], LAST], 1):
        feed.put(number, part)
    heard = pk.StreamingMetrics()
    spark.streams.addListener(heard)
    second = feed.run(spark, name, scanned)
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    spark.streams.removeListener(heard)
    assert second.exception() is None
    assert heard.totals(str(second.id))["read"] == TABLE.num_rows + 1
    counts = [
        next(iter(progress.observedMetrics.values()))
        for progress in second.recentProgress
        if progress.numInputRows
    ]
    if PASSES_START or not scanned:  # else the batches were those of several starts
        assert sum(count.read for count in counts) == TABLE.num_rows + 1
    for count in counts:
        assert count.late == 0
        assert count.read == count.accepted + count.late + count.malformed + count.filtered
    want = expected(name)
    assert_same(want, feed.result(want.schema), name)


def test_a_changed_query_is_refused_in_words_of_ours(spark: Any, feed: Feed) -> None:
    assert feed.run(spark, "tumbling").exception() is None
    feed.put(1, PARTS[1])
    started = feed.start(feed.query(spark, "median").to_spark(spark))
    with pytest.raises(Exception, match="was saved by another query"):
        started.awaitTermination()
    problem = pk.streaming_problem(started)
    assert isinstance(problem, pk.StateError)
    assert str(problem).endswith("go on with the query that wrote the checkpoint, or begin with a new one")


def test_a_changed_query_is_refused_when_it_starts_though_no_file_comes(spark: Any, feed: Feed) -> None:
    assert feed.run(spark, "tumbling", scanned=True).exception() is None
    started = feed.start(feed.query(spark, "median", scanned=True).to_spark(spark))
    with pytest.raises(Exception, match="was saved by another query"):
        started.awaitTermination()
    problem = pk.streaming_problem(started)
    assert isinstance(problem, pk.StateError)
    assert "had the results" in str(problem)
    assert str(problem).endswith("go on with the query that wrote the checkpoint, or begin with a new one")


def test_a_sink_refuses_batches_that_are_older_than_its_table(spark: Any, tmp_path: Path) -> None:
    sink = pk.delta_sink(tmp_path / "table", query_id="q")
    frame = spark.createDataFrame(pa.table({"t": [1], "n": [2]}))
    sink(frame, 0)
    sink(frame, 1)
    sink(frame, 1)
    assert pk.scan(tmp_path / "table", format="delta", time="t").collect().num_rows == 2
    with pytest.raises(pk.StateError, match="batch 0 of 'q' comes after batch 1"):
        sink(frame, 0)
    other = pk.delta_sink(os.fspath(tmp_path / "table"), query_id="another")
    other(frame, 0)
    assert other.last_batch() == 0
    assert sink.last_batch() == 1


def test_rows_that_are_looked_at_one_by_one_need_no_state(spark: Any, feed: Feed) -> None:
    started = feed.run(spark, "rows")
    assert started.lastProgress.stateOperators == []
    want = declared("1s")["rows"].collect(PARTS[0])
    assert_same(want, feed.result(want.schema), "rows")


def test_what_can_never_be_emitted_is_refused_before_it_starts(spark: Any, feed: Feed) -> None:
    with pytest.raises(pk.UnsupportedError, match="would never be emitted; use a window with a size"):
        feed.query(spark, "everything").to_spark(spark)
    with pytest.raises(pk.EngineError, match="divided by keys, not in slices"):
        feed.query(spark, "tumbling").to_spark(spark, strategy="slices")
    still = pk.from_arrow(TABLE, time="ts", name="still").select("k", double=pk.col("v"))
    both = feed.query(spark, "rows").select("k", "double").union(still).window("1s").agg(n=pk.count())
    with pytest.raises(pk.UnsupportedError, match="stream 'still' ends, that of others does not"):
        both.to_spark(spark)


def test_a_second_driver_on_a_checkpoint_stops_one_of_the_two_and_is_named(spark: Any, feed: Feed) -> None:
    """Another driver has begun the next batch: its offsets are there when this one would write its own."""
    query = feed.query(spark, "tumbling").to_spark(spark)
    assert feed.run(spark, "tumbling").exception() is None
    started = feed.start(query, available_now=False)
    offsets = feed.checkpoint / "offsets"
    started.processAllAvailable()
    last = max(int(path.name) for path in offsets.glob("[0-9]*"))
    shutil.copy(offsets / str(last), offsets / str(last + 1))
    feed.put(1, PARTS[1])
    with pytest.raises(Exception):  # noqa: B017 - Spark's types differ between versions
        started.processAllAvailable()
    problem = pk.streaming_problem(started)
    assert isinstance(problem, pk.StateError) and "another driver runs a query" in str(problem)
