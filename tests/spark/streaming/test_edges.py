"""Late rows, malformed ones and silence on Spark: as in this process, and once, however often a batch is run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as pk
from penstock.spark.streaming.shard import COUNTS
from tests.spark.streaming.local import LocalStream

COLUMNS = {"t": "int64", "k": "int64", "note": "string"}


def rows(*times: int | None) -> pa.Table:
    return pa.Table.from_pylist(
        [{"t": t, "k": at % 3, "note": f"row {t}"} for at, t in enumerate(times)],
        pa.schema({"t": pa.int64(), "k": pa.int64(), "note": pa.string()}),
    )


def test_shards_give_late_rows_with_all_their_columns(tmp_path: Path) -> None:
    source = pk.stream("s", COLUMNS, time="t", late_to=tmp_path)
    running = LocalStream(source.window(10, by="k").agg(n=pk.count()), 3)
    running.batch([rows(1, 2, 50)])
    running.batch([rows(60, 3, 4), rows(5, 61)])
    late = [
        row["note"] for step in running.steps for table in step.late.values() for row in table.to_pylist()
    ]
    assert sorted(late) == ["row 3", "row 4", "row 5"]
    assert running.metrics.late == 3


def test_a_stream_that_is_silent_by_the_clocks_of_batches_follows_the_others() -> None:
    columns = {"t": "int64", "k": "int64"}
    one, other = (pk.stream(name, columns, time="t", idle_after="10s") for name in ("one", "other"))
    running = LocalStream(one.union(other).window(10, by="k").agg(n=pk.count()), 2)
    assert running.batch([rows(1, 25)], "one", now=0) == []
    assert running.batch([rows(36)], "one", now=9_000_000) == []
    given = running.batch([rows(37)], "one", now=10_000_000)
    assert sorted(end for batch in given for end in batch["window_end"].to_pylist()) == [10, 30]
    assert running.batch([rows(3, 38)], "other", now=11_000_000) == []
    assert running.metrics.late == 1
    again = running.batch([rows(90)], "one", now=20_999_999)
    assert again == []
    assert [batch["window_end"].to_pylist() for batch in running.batch([rows(91)], "one", now=21_000_000)]


def put(folder: Path, name: str, text: str, when: int) -> None:
    hidden = folder / f".{name}"
    hidden.write_text(text)
    os.utime(hidden, (when, when))
    hidden.rename(folder / name)


@pytest.mark.campaign  # three runs of a query, a minute on a busy machine
def test_what_is_late_or_no_row_is_written_once_though_its_batch_runs_twice(
    spark: Any, tmp_path: Path
) -> None:
    folder, checkpoint = tmp_path / "input", tmp_path / "checkpoint"
    folder.mkdir()
    put(folder, "0.csv", "t,k,note\n1,1,a\nrubbish\n,2,b\n50,1,c\n", 1)
    events = pk.scan_stream(
        folder,
        time="t",
        name="events",
        schema=COLUMNS,
        format="csv",
        max_files=1,
        late_to=tmp_path / "late",
        on_bad="quarantine",
        quarantine_to=tmp_path / "bad",
    )
    query = events.window(10, by="k").agg(n=pk.count())

    def run() -> list[Any]:
        writer = query.to_spark(spark).writeStream.option("checkpointLocation", str(checkpoint))
        sink = pk.delta_sink(tmp_path / "table", query_id="edges")
        started = writer.foreachBatch(sink).trigger(availableNow=True).start()
        started.awaitTermination()
        found = [
            next(iter(progress.observedMetrics.values()))
            for progress in started.recentProgress
            if progress.observedMetrics
        ]
        for value in found:
            assert value.read == value.accepted + value.late + value.malformed + value.filtered
        return found

    first = run()
    assert [sum(getattr(value, name) for value in first) for name in COUNTS[:4]] == [4, 2, 0, 2]
    put(folder, "1.csv", "t,k,note\n2,1,too late\n{,}\n60,1,d\n", 2)
    for _ in range(2):
        counts = run()
        assert [sum(getattr(count, name) for count in counts) for name in COUNTS[:4]] == [3, 1, 1, 1]
        newest = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        newest.unlink()
        (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)
    assert pq.read_table(tmp_path / "late").to_pylist() == [{"t": 2, "k": 1, "note": "too late"}]
    bad = sorted(pq.read_table(tmp_path / "bad").to_pylist(), key=lambda row: (row["source"], row["offset"]))
    assert [(Path(row["source"]).name, row["offset"], row["row"]) for row in bad] == [
        ("0.csv", 1, b"rubbish"),
        ("0.csv", 2, b",2,b"),
        ("1.csv", 1, b"{,}"),
    ]


def test_rows_of_a_frame_without_a_time_are_kept_and_functions_are_refused(
    spark: Any, tmp_path: Path
) -> None:
    (tmp_path / "input").mkdir()
    pq.write_table(rows(1, None, 30), tmp_path / "input" / "a.parquet")
    schema = spark.read.parquet(str(tmp_path / "input")).schema
    frame = spark.readStream.schema(schema).parquet(str(tmp_path / "input"))
    windows = pk.from_spark(frame, time="t", name="s", late_to=print).window(10).agg(n=pk.count())
    with pytest.raises(pk.UnsupportedError, match="late_to of stream 's' is a function"):
        windows.to_spark(spark)
    events = pk.from_spark(frame, time="t", name="s", on_bad="quarantine", quarantine_to=tmp_path / "bad")
    writer = events.window(10, by="k").agg(n=pk.count()).to_spark(spark).writeStream
    started = (
        writer.format("memory")
        .queryName("edges_of_frames")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    started.awaitTermination()
    assert [(row["source"], row["row"]) for row in pq.read_table(tmp_path / "bad").to_pylist()] == [
        ("s", b'{"t": null, "k": 1}')
    ]
    batch = spark.read.parquet(str(tmp_path / "input"))
    query = pk.from_spark(batch, time="t", name="s", on_bad="quarantine").window(10).agg(n=pk.count())
    with pytest.raises(pk.UnsupportedError, match="on_bad of stream 's' is 'quarantine'"):
        query.to_spark(spark)
