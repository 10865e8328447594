"""What may change between two runs of a stream, and what is refused: in words, and never with a wrong number."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as pk
from penstock.sources.live_files import LiveFiles
from penstock.spark.exchange import unpacked
from penstock.spark.streaming.files import FileReader, offset
from penstock.spark.streaming.shard_placement import labels, spark_hash
from tests.spark.streaming.local import LocalStream

SOURCE = pk.stream("s", {"t": "int64", "k": "int64", "v": "int64"}, time="t")
ROWS = pa.table({"t": [1, 2, 12], "k": [1, 2, 1], "v": [3, 4, 5]})
LAST = pa.table({"t": [99], "k": [1], "v": [0]})


def totals(**more: object) -> pk.Stream:
    made: pk.Stream = SOURCE.window(10, by="k").agg(total=pk.sum("v"), **more)
    return made


def test_a_further_aggregate_is_refused_and_named() -> None:
    before, after = LocalStream(totals()), LocalStream(totals(n=pk.count()))
    before.batch([ROWS])
    after.states = before.states
    with pytest.raises(pk.StateError) as caught:
        after.batch([LAST])
    text = str(caught.value)
    assert "~w1 has further results: n: count()" in text
    assert text.endswith("go on with the query that wrote the checkpoint, or begin with a new one")


def test_a_changed_number_of_shards_is_refused_with_what_to_do() -> None:
    before, after = LocalStream(totals(), 3), LocalStream(totals(), 2)
    before.batch([ROWS])
    after.states = before.states
    with pytest.raises(pk.StateError, match=r"shards was 3 and is 2; continue with to_spark\(tasks=3\)"):
        after.batch([LAST])


def test_shards_keep_their_names_whatever_the_number_of_partitions() -> None:
    """A shard under another name would begin with nothing, and lose what it had."""
    assert labels(4) == labels(9)[:4]
    for partitions in (1, 2, 3, 4, 8, 10, 16, 64):
        places = spark_hash(np.array(labels(partitions))) % partitions
        assert len(set(places.tolist())) == partitions


def test_columns_that_drift_harmlessly_are_taken_and_others_stop_the_batch(tmp_path: Path) -> None:
    harmless = pa.table(
        {"more": ["x"], "v": pa.array([7], pa.int8()), "k": [1], "t": pa.array([3], pa.int32())}
    )
    pq.write_table(ROWS, tmp_path / "0.parquet")
    pq.write_table(harmless, tmp_path / "1.parquet")
    pq.write_table(ROWS.set_column(2, "v", pa.array(["a", "b", "c"])), tmp_path / "3.parquet")
    running = LocalStream(totals(), 1)
    files = LiveFiles(str(tmp_path), "parquet", SOURCE.schema)
    reader = FileReader(running.scatter, "s", files, 1, None)

    def batch(*numbers: int) -> list[pa.RecordBatch]:
        paths = [str(tmp_path / f"{number}.parquet") for number in numbers]
        parts = reader.partitions(offset([]), offset(paths))
        payloads = list(unpacked(batch for part in parts for batch in reader.read(part)))
        return running.stepped(dict.fromkeys({payload.shard for payload in payloads}, payloads))

    assert [table["total"].to_pylist() for table in batch(0)] == [[3, 4]]
    assert batch(1) == []
    assert running.metrics.late == 1
    before = dict(running.states)
    with pytest.raises(pk.SchemaMismatchError, match=r"column 'v' of the file '.*3.parquet' is string"):
        batch(3)
    assert running.states == before


def test_a_batch_that_runs_again_after_every_batch_changes_nothing() -> None:
    """What deleting the last file of `commits` does: the sink has the batch, Spark runs it once more."""
    once, twice = LocalStream(totals()), LocalStream(totals())
    for rows in (ROWS, LAST.slice(0, 0), ROWS.slice(1), LAST):
        before = dict(twice.states)
        lost = twice.batch([rows])
        twice.states = before
        assert twice.batch([rows]) == lost == once.batch([rows])
        assert twice.states == once.states
