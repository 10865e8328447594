"""Offsets in a checkpoint say which query they are of: another one is refused before anything is read."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

import penstock as pk
from penstock.spark.slices import from_json
from penstock.spark.streaming.files import FileReader
from penstock.spark.streaming.frame import wired
from penstock.spark.streaming.read_limits import ReadAllAvailable
from penstock.spark.streaming.source import SignedReader, TrackingReader
from penstock.spark.streaming.topology import Way

EVENTS = pk.stream("events", {"t": "timestamp[us]", "k": "int64", "v": "int64"}, time="t")


class Numbers(DataSourceStreamReader):
    """Reads numbers; `last` is the greatest there is."""

    def __init__(self, last: int) -> None:
        self.last = last

    def initialOffset(self) -> dict[str, Any]:
        return {"0": 0}

    def latestOffset(self, start: dict[str, Any], limit: object) -> dict[str, Any]:  # type: ignore[override]
        return {"0": max(self.last, start["0"])}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        assert start.keys() == end.keys() == {"0"}
        return [InputPartition(number) for number in range(start["0"], end["0"])]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return iter(())


def reader(size: str, last: int = 5, **aggregates: Any) -> SignedReader:
    query = EVENTS.window(size, by="k").agg(**(aggregates or {"total": pk.sum("v")}))
    return SignedReader(Numbers(last), json.dumps(query.compiled().signature))


def test_the_same_query_goes_on() -> None:
    first = reader("10s")
    reached = first.latestOffset(first.initialOffset(), ReadAllAvailable())
    again = reader("10s", last=7)
    assert again.latestOffset(reached, ReadAllAvailable())["0"] == 7
    assert len(again.partitions(first.initialOffset(), reached)) == 5


def test_where_nothing_is_new_the_offset_stays() -> None:
    first = reader("10s")
    reached = first.latestOffset(first.initialOffset(), ReadAllAvailable())
    assert reader("10s").latestOffset(reached, ReadAllAvailable()) is reached
    assert first.latestOffset({"0": 5}, ReadAllAvailable()) == {"0": 5}  # of a version that signed nothing


CHANGED = {
    "another window": (reader("20s"), r"the window of ~\w+ was size 10s every 10s and is size 20s every 20s"),
    "a further aggregate": (
        reader("10s", total=pk.sum("v"), n=pk.count()),
        r"~\w+ has further results: n: count\(\)",
    ),
    "another aggregate": (
        reader("10s", total=pk.max("v")),
        r"~\w+ had the results total: sum\(v\) and now has total: max\(v\)",
    ),
}


@pytest.mark.parametrize("change", CHANGED)
def test_another_query_is_refused_with_what_has_changed_though_nothing_is_new(change: str) -> None:
    first = reader("10s")
    reached = first.latestOffset(first.initialOffset(), ReadAllAvailable())
    other, words = CHANGED[change]
    with pytest.raises(pk.StateError, match=f"saved by another query: {words}.*begin with a new one"):
        other.latestOffset(reached, ReadAllAvailable())
    with pytest.raises(pk.StateError, match=words):
        other.partitions(first.initialOffset(), reached)


@pytest.mark.parametrize("damaged", ["", "no base64!", "eA==", None, 3])
def test_a_damaged_signature_is_refused(damaged: Any) -> None:
    with pytest.raises(pk.StateError, match="damaged"):
        reader("10s").latestOffset({"0": 0, SignedReader.SIGNED: damaged}, ReadAllAvailable())


def test_before_spark_4_2_a_new_query_reads_batch_by_batch(tmp_path: Path) -> None:
    """Spark asks for the first offset, then plans each batch with its start and end."""
    reader = tracking(tmp_path, 3)
    start = reader.initialOffset()
    for number in range(3):
        end = reader.latestOffset()
        assert files_read(reader, start, end) == {f"{number}.parquet"}
        start = end
    assert reader.latestOffset() == start


def test_before_spark_4_2_a_query_that_goes_on_reads_everything_in_its_first_batch(tmp_path: Path) -> None:
    first = tracking(tmp_path, 3)
    start = first.initialOffset()
    committed = first.latestOffset()
    again = tracking(tmp_path, 3)
    newest = again.latestOffset()
    assert files_read(again, committed, newest) == {"1.parquet", "2.parquet"}
    assert again.latestOffset() == newest
    assert files_read(tracking(tmp_path, 3), start, committed) == {"0.parquet"}, (
        "an interrupted batch comes again as it was"
    )


def tracking(folder: Path, files: int) -> TrackingReader:
    """A reader of one file a batch, as Spark before 4.2 uses it."""
    lake = folder / "lake"
    lake.mkdir(exist_ok=True)
    for number in range(files):
        path = lake / f"{number}.parquet"
        pq.write_table(pa.table({"ts": pa.array([number], pa.timestamp("us")), "v": [number]}), path)
        os.utime(path, (number, number))
    events = pk.scan_stream(str(lake / "*.parquet"), time="ts", name="events", max_files=1)
    query = events.window("10s").agg(t=pk.sum("v"))
    scatter, _ = wired(query.compiled(), 1, frozenset(), Way((), ()))
    given = {"path": str(lake / "*.parquet"), "format": "parquet", "most": 1}
    return TrackingReader(SignedReader(FileReader.of(scatter, "events", given, 1), '{"query": "one"}'))


def files_read(reader: TrackingReader, start: dict[str, Any], end: dict[str, Any]) -> set[str]:
    parts = [from_json(json.loads(partition.part)) for partition in reader.partitions(start, end)]
    return {Path(piece.fragment.path).name for part in parts for piece in part.pieces}
