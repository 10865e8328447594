"""Offsets in a checkpoint say which query they are of: another one is refused before anything is read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from penstock.spark.streaming.read_limits import ReadAllAvailable

import penstock as pk
from penstock.spark.streaming.source import SignedReader

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
