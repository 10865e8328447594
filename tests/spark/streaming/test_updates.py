"""Update mode: after every batch, the latest row of each window and key is what batch would give of all rows so far."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from penstock.plan.schema import schema_of
from penstock.spark.streaming.update_mode import require_updatable
from tests.oracle.effort import effort
from tests.spark.streaming.feed import Feed
from tests.spark.streaming.local import LocalStream
from tests.spark.streaming.test_micro_batches import table_of

COLUMNS = {"t": "int64", "k": "int64"}
BATCHES = st.lists(
    st.lists(st.tuples(st.integers(-20, 20), st.integers(0, 2)), min_size=1, max_size=5), max_size=5
)
# Nothing is late within so much.
SOURCE = pk.stream("s", COLUMNS, time="t", lateness=40)
WINDOWS = {
    "tumbling": pk.tumbling(10),
    "sliding": pk.sliding(10, every=4),
    "unbounded": pk.unbounded(),
}


@pytest.mark.parametrize("kind", WINDOWS)
@effort(12)
@given(batches=BATCHES, shards=st.integers(1, 2), holistic=st.booleans())
def test_the_last_word_on_each_window_is_the_batch_answer(
    kind: str, batches: list[list[tuple[int, int]]], shards: int, holistic: bool
) -> None:
    whole = SOURCE.window(WINDOWS[kind], by="k")
    query = (
        whole.agg(n=pk.count(), mid=pk.median("t")) if holistic else whole.agg(n=pk.count(), high=pk.max("t"))
    )
    running = LocalStream(query, shards, updates=True)
    reported: dict[tuple[Any, ...], dict[str, Any]] = {}
    seen: list[tuple[int, int]] = []
    for rows in batches:
        seen += rows
        given = [row for batch in running.batch([table_of(rows)]) for row in batch.to_pylist()]
        fresh = {place(row, kind): row for row in given}
        assert len(fresh) == len(given)
        assert all(reported.get(key) != row for key, row in fresh.items()), "only what has changed is given"
        reported |= fresh
        answer = query.collect(table_of(seen)).to_pylist()
        assert reported == {place(row, kind): row for row in answer}


def place(row: dict[str, Any], kind: str) -> tuple[Any, ...]:
    """Tell results apart: the bounds of the window of all rows move."""
    return (row["k"],) if kind == "unbounded" else (row["window_start"], row["window_end"], row["k"])


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (SOURCE.window(pk.session(5), by="k").agg(n=pk.count()), "no window of a fixed place"),
        (SOURCE.rolling(5, by="k").agg(n=pk.count()), "no window of a fixed place"),
        (
            SOURCE.window(10, by="k").agg(n=pk.count()).filter(pk.col("n") > 1),
            "is filtered|no window of a fixed",
        ),
        (SOURCE.window(10, by="k").agg(n=pk.count()).window(20).agg(m=pk.sum("n")), "stands on windows"),
        (SOURCE.window(10, by="k").agg(all=pk.list("t")), "'all' is nested"),
    ],
)
def test_what_could_vanish_again_is_refused(query: pk.Stream, reason: str) -> None:
    with pytest.raises(pk.UnsupportedError, match=reason):
        require_updatable(query.compiled().raw, schema_of(query.plan))


def test_an_open_window_leaves_with_every_batch_on_spark(spark: Any, tmp_path: Path) -> None:
    feed = Feed(tmp_path)
    rows = pa.table({"t": pa.array([1, 2, 3]), "k": pa.array([1, 1, 2])})
    for number in range(2):
        feed.put(number, rows)
    path = str(tmp_path / "input")
    frame = spark.readStream.schema("t long, k long").option("maxFilesPerTrigger", 1).parquet(path)
    events = pk.from_spark(frame, time="t", name="s")
    query = events.window(pk.unbounded(), by="k").agg(n=pk.count())
    writer = query.to_spark(spark, output_mode="update").writeStream.outputMode("update").format("memory")
    started = writer.queryName("open_windows").trigger(availableNow=True)
    started.option("checkpointLocation", str(feed.checkpoint)).start().awaitTermination()
    found = spark.sql("select k, n from open_windows").toArrow().to_pylist()
    assert sorted((row["k"], row["n"]) for row in found) == [(1, 2), (1, 4), (2, 1), (2, 2)]
    with pytest.raises(pk.EngineError, match="there is no output mode 'complete'"):
        query.to_spark(spark, output_mode="complete")
    with pytest.raises(
        pk.UnsupportedError, match="would never be emitted; use a window with a size, or output_mode"
    ):
        query.to_spark(spark)
