"""Joins while they run: when results leave, what is late, what is kept, and what is counted."""

from __future__ import annotations

import pyarrow as pa
import pytest

import penstock as pk
from penstock.operators.joins.stage import Port

A = pk.stream("a", {"t": "int64", "k": "int64", "x": "int64"}, time="t")
B = pk.stream("b", {"t": "int64", "k": "int64", "y": "int64"}, time="t")


def rows(value: str, *times: int, key: int = 1) -> pa.RecordBatch:
    return pa.record_batch({"t": list(times), "k": [key] * len(times), value: list(times)})


def pairs(batches: list[pa.RecordBatch]) -> list[tuple[int, int]]:
    return [(row["x"], row["y"]) for batch in batches for row in batch.to_pylist()]


def test_a_window_leaves_when_both_streams_have_passed_it() -> None:
    with A.join(B, on="k", window=pk.tumbling(10)).open() as live:
        assert live.push(a=rows("x", 1, 5, 12)) == []
        assert live.push(b=rows("y", 3)) == []
        assert pairs(live.push(b=rows("y", 11))) == [(1, 3), (5, 3)]
        assert pairs(live.finish()) == [(12, 11)]


def test_a_pair_within_an_interval_leaves_when_its_later_row_is_passed() -> None:
    with A.join(B, on="k", within=(0, 100)).open() as live:
        live.push(a=rows("x", 0, 10))
        assert pairs(live.push(b=rows("y", 5, 9))) == [(0, 5)]
        assert pairs(live.advance(10)) == [(0, 9)]


def test_a_row_is_late_by_its_own_stream_alone() -> None:
    with A.join(B, on="k", window=pk.tumbling(10), how="left").open() as live:
        live.push(a=rows("x", 50))
        live.push(b=rows("y", 1, 2))
        live.push(a=rows("x", 3))
        assert (live.metrics.late, live.metrics.accepted, live.metrics.read) == (1, 3, 4)


@pytest.mark.parametrize(
    "query",
    [
        A.join(B, on="k", window=pk.tumbling(10)),
        A.join(B, on="k", window=pk.sliding(10, every=5), how="full"),
        A.join(B, on="k", window=pk.session(3), how="anti"),
        A.join(B, on="k", within=(-5, 5), how="full"),
        A.join_asof(B, by="k"),
        A.join_asof(B, by="k", direction="nearest", tolerance=5),
        A.join_rolling(B, by="k", within=(-5, 5)).agg(n=pk.count()),
    ],
)
def test_what_is_kept_does_not_grow_with_the_stream(query: pk.Stream) -> None:
    sizes = []
    with query.open() as live:
        for start in range(0, 4000, 20):
            live.push(a=rows("x", *range(start, start + 20, 10)), b=rows("y", *range(start, start + 20, 10)))
            sizes.append(len(live.state().to_bytes()))
    assert max(sizes[100:]) <= 1.1 * max(sizes[50:100])


def test_rows_that_a_table_multiplies_or_drops_are_accounted_for() -> None:
    table = pk.table(pa.table({"k": [1, 1, 2], "c": [7, 8, 9]}))
    with A.join(table, on="k").window(10, by="c").agg(n=pk.count()).open() as live:
        live.push(a=rows("x", 1, 2))
        live.push(a=rows("x", 3, key=5))
        live.push(a=rows("x", 40))
        live.push(a=rows("x", 4))
        counted = live.metrics
        assert (counted.read, counted.filtered, counted.late) == (9, 1, 2)
        assert counted.balanced


def test_joins_can_be_explained() -> None:
    query = A.join(B, on="k", window=pk.tumbling(10))
    assert "inner join" in str(query.explain())
    assert "join" in str(query.explain("ir"))
    assert "last" in str(A.join_asof(B, by="k").explain("ir"))


@pytest.mark.parametrize("window", [pk.tumbling(1000), pk.sliding(1000, every=500), pk.unbounded()])
def test_rows_that_wait_are_not_looked_at_until_a_window_ends(window, monkeypatch) -> None:
    looked = []
    passed = Port.passed
    monkeypatch.setattr(Port, "passed", lambda *given: looked.append(1) or passed(*given))
    with A.join(B, on="k", window=window).open() as live:
        for time in range(0, 400, 4):
            live.push(a=rows("x", time, time + 1), b=rows("y", time + 2, time + 3))
        assert len(looked) <= 2
        assert len(pairs(live.finish())) == 200 * 200 * (2 if window == pk.sliding(1000, every=500) else 1)
