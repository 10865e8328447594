"""History, then live rows, in micro-batches: the batch answer, no row late, and a batch that runs again reads the same."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as pk
from penstock.api.backfill import Backfill
from penstock.sources.dataset import Files
from penstock.sources.live_files import LiveFiles
from penstock.spark.exchange import unpacked
from penstock.spark.streaming.backfill import BackfillReader, HistoryFiles
from penstock.spark.streaming.files import FileReader
from tests.spark.agree import assert_same
from tests.spark.streaming.local import LocalStream

PAST = [[25, 31, 44], [12, 19], [1, 8, 3]]
NEW = [[41, 39, 45], [52, 47], [90], [91]]
AT = 40


def table(times: list[int]) -> pa.Table:
    return pa.table(
        {"t": pa.array(times, pa.int64()), "k": pa.array([t % 3 for t in times]), "v": pa.array(times)}
    )


def filled(folder: Path) -> pk.Stream:
    for name, side in (("past", PAST), ("new", NEW)):
        (folder / name).mkdir()
        for number, times in enumerate(side):
            path = folder / name / f"{number}.parquet"
            pq.write_table(table(times), path)
            os.utime(path, (number, number))
    live = pk.scan_stream(folder / "new", time="t", name="events", lateness=5, max_files=1)
    return pk.scan(folder / "past", time="t").then(live, at=AT)


def asked(events: Any) -> pk.Stream:
    made: pk.Stream = events.window(pk.sliding(20, every=10), by="k").agg(total=pk.sum("v"), n=pk.count())
    return made


def expected() -> pa.Table:
    past = [t for times in PAST for t in times if t < AT]
    rows = [*past, *(t for times in NEW[:-2] for t in times if t >= AT)]
    return asked(pk.stream("events", table([1]).schema, time="t")).collect(table(rows))


def reader_of(running: LocalStream, data: Backfill) -> BackfillReader:
    assert isinstance(data.history, Files)
    assert isinstance(data.live, LiveFiles)
    files, live = (
        FileReader(running.scatter, "events", live_files, 2, 1)
        for live_files in (LiveFiles("", "parquet", data.schema), data.live)
    )
    return BackfillReader(running.scatter, "events", HistoryFiles(data.history, "t", 1), files, live, data.at)


def test_batches_of_history_are_followed_by_live_ones_and_none_of_its_rows_is_late(tmp_path: Path) -> None:
    events = filled(tmp_path)
    running = LocalStream(asked(events), 2)
    reader = reader_of(running, events.data["events"])  # type: ignore[arg-type]
    at, made, batches = reader.initialOffset(), [], 0
    while (then := reader.latestOffset(at, reader.getDefaultReadLimit())) != at:
        partitions = reader.partitions(at, then)
        assert partitions == reader.partitions(at, then)
        sent: dict[int, list[Any]] = {}
        for partition in partitions:
            for payload in unpacked(reader.read(partition)):
                sent.setdefault(payload.shard, []).append(payload)
        made += running.stepped(sent)
        at, batches = then, batches + 1
    assert batches == len(PAST) + len(NEW)
    want = expected()
    assert_same(want, pa.Table.from_batches(made, want.schema), "in batches")
    found = running.metrics
    assert (found.read, found.late, found.filtered) == (15, 0, 2)


def test_a_history_without_files_of_rows_is_followed_at_once(tmp_path: Path) -> None:
    events = filled(tmp_path)
    for path in (tmp_path / "past").iterdir():
        pq.write_table(table([]), path)
    running = LocalStream(asked(events), 2)
    reader = reader_of(running, events.data["events"])  # type: ignore[arg-type]
    first = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    assert first["live"]
    (only,) = reader.partitions(reader.initialOffset(), first)
    assert [payload.name for payload in unpacked(reader.read(only))] == ["mark/events"] * 4


def test_history_and_live_rows_may_share_a_batch(tmp_path: Path) -> None:
    """Spark before 4.2 reads everything at once when a query goes on with a committed batch."""
    events = filled(tmp_path)
    running = LocalStream(asked(events), 2)
    reader = reader_of(running, events.data["events"])  # type: ignore[arg-type]
    newest = reader.newest()
    sent: dict[int, list[Any]] = {}
    for partition in reader.partitions(reader.initialOffset(), newest):
        for payload in unpacked(reader.read(partition)):
            sent.setdefault(payload.shard, []).append(payload)
    made = running.stepped(sent)
    want = expected()
    assert_same(want, pa.Table.from_batches(made, want.schema), "in one batch")
    assert (running.metrics.read, running.metrics.late, running.metrics.filtered) == (15, 0, 2)
    assert reader.latestOffset(newest, reader.getDefaultReadLimit()) == newest


@pytest.mark.campaign  # a run of seven batches
def test_history_and_live_files_on_spark(spark: Any, tmp_path: Path) -> None:
    query = asked(filled(tmp_path))
    sink = pk.delta_sink(tmp_path / "table", query_id="backfill")
    writer = query.to_spark(spark).writeStream.foreachBatch(sink)
    started = (
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    )
    started.awaitTermination()
    found = deltalake.DeltaTable(str(tmp_path / "table")).to_pyarrow_table()
    want = expected()
    assert_same(want, found.select(want.column_names).cast(want.schema), "on Spark")
