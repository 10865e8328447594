"""However rows are cut into micro-batches and tasks, and in whatever order they come, one answer."""

from __future__ import annotations

import datetime
import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from penstock.spark.streaming.shard import COUNTS
from tests.oracle.effort import effort
from tests.spark.agree import assert_same
from tests.spark.lakes import NAMES, START, events, queries
from tests.spark.streaming.local import LocalStream, streamed

TABLE = events(150)
# One row long after all others closes every window but its own.
END = START + 3 * 86_400_000_000
LAST = TABLE.slice(0, 1).set_column(0, "ts", pa.array([END]).cast(TABLE.schema.field("ts").type))
# Rows need no shards, a window of all rows never ends, and neither does the last piece of a signal.
SHOWN = tuple(name for name in NAMES if name not in ("rows", "everything", "two signals"))


def declared(lateness: str) -> Any:
    return queries(pk.stream("events", TABLE.schema, time="ts", sequence="n", lateness=lateness))


def cut(table: pa.Table, edges: list[int]) -> list[pa.Table]:
    bounds = [0, *sorted(edges), table.num_rows]
    return [table.slice(lo, hi - lo) for lo, hi in itertools.pairwise(bounds)]


ANSWERS = {name: declared("1s")[name].collect(TABLE) for name in SHOWN}


@pytest.mark.parametrize("name", SHOWN)
@effort(4)
@given(
    edges=st.lists(st.integers(0, TABLE.num_rows), max_size=4),
    within=st.lists(st.integers(0, 40), max_size=2),
    shards=st.integers(1, 3),
    folds=st.booleans(),
    seed=st.none() | st.integers(0, 999),
)
def test_any_cut_and_any_order_within_the_lateness_gives_the_batch_answer(
    name: str, edges: list[int], within: list[int], shards: int, folds: bool, seed: int | None
) -> None:
    """Without a seed rows come in order and time moves on closely behind; with one, in any order."""
    query = declared("1s" if seed is None else "300s")[name]
    rows = TABLE if seed is None else TABLE.take(np.random.default_rng(seed).permutation(TABLE.num_rows))
    batches = [
        cut(part, [min(edge, part.num_rows) for edge in within]) for part in [*cut(rows, edges), LAST, LAST]
    ]
    assert_same(ANSWERS[name], streamed(query, batches, shards, folds), name)


@effort(25)
@given(
    batches=st.lists(
        st.lists(
            st.lists(st.tuples(st.none() | st.integers(-60, 60), st.integers(0, 4)), max_size=6), max_size=3
        ),
        max_size=6,
    ),
    window=st.sampled_from([(10, 10), (10, 2), (7, 3), (3, 8)]),
    lateness=st.integers(0, 15),
    shards=st.integers(1, 3),
)
def test_panes_are_late_when_their_rows_would_be(
    batches: list[list[list[tuple[int | None, int]]]], window: tuple[int, int], lateness: int, shards: int
) -> None:
    """Far behind and out of order: what panes give and count is what rows would, and so it is with panes now and then."""
    source = pk.stream("s", {"t": "int64", "k": "int64"}, time="t", lateness=lateness)
    size, every = window
    views = source.filter(pk.col("k") > 0).window(pk.sliding(size, every=every, offset=1), by="k")
    query = views.agg(n=pk.count(pk.col("t") % 2 == 0), low=pk.min("t"))
    folded, mixed, plain = (LocalStream(query, shards, folds) for folds in (True, True, False))
    assert folded.way.folds
    assert not plain.way.folds
    for turn, tasks in enumerate(batches):
        tables = [table_of(rows) for rows in tasks]
        mixed.scatter = (folded if turn % 2 else plain).scatter
        expected = sorted_rows(plain.batch(tables))
        for other in (folded, mixed):
            assert sorted_rows(other.batch(tables)) == expected
            assert counts_of(other) == counts_of(plain)


def table_of(rows: list[tuple[int | None, int]]) -> pa.Table:
    times, keys = [time for time, _ in rows], [key for _, key in rows]
    return pa.table({"t": pa.array(times, pa.int64()), "k": pa.array(keys, pa.int64())})


def sorted_rows(batches: list[pa.RecordBatch]) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for batch in batches for row in batch.to_pylist())


def counts_of(running: LocalStream) -> dict[str, int]:
    return {name: getattr(running.metrics, name) for name in COUNTS}


def test_rows_behind_emitted_windows_are_counted_late_in_every_shard() -> None:
    query = (
        pk.stream("s", {"t": "int64", "k": "int64"}, time="t", lateness=5)
        .window(10, by="k")
        .agg(n=pk.count())
    )
    running = LocalStream(query, 3)
    first = running.batch([pa.table({"t": [1, 2, 30], "k": [1, 2, 3]})])
    assert sum(batch.num_rows for batch in first) == 2
    second = running.batch([pa.table({"t": [9, 9, 22, 31], "k": [1, 7, 7, 3]})])
    assert second == []
    found = running.metrics
    assert (found.read, found.accepted, found.late, found.emitted) == (7, 5, 2, 2)


def test_rows_that_a_filter_rejects_and_rows_without_a_time_are_counted_once_and_tell_the_time() -> None:
    source = pk.stream("s", {"t": "int64", "k": "int64", "v": "int64"}, time="t")
    query = source.filter(pk.col("v") > 0).window(10, by="k").agg(n=pk.count())
    running = LocalStream(query, 3)
    made = running.batch([pa.table({"t": [1, 2, None, 40], "k": [1, 2, 3, 4], "v": [1, 0, 1, 0]})])
    assert [batch.to_pylist() for batch in made] == [[{"window_start": 0, "window_end": 10, "k": 1, "n": 1}]]
    found = running.metrics
    assert (found.read, found.accepted, found.filtered, found.malformed) == (4, 1, 2, 1)


@pytest.mark.parametrize(
    ("sequence", "aggregate", "ties"),
    [(None, pk.first("v"), 2), ("n", pk.first("v"), 1), (None, pk.sum("v"), 0)],
    ids=["values decide", "a sequence decides but for nulls", "nobody sees the order"],
)
def test_rows_that_only_their_values_put_in_order_are_counted(
    sequence: str | None, aggregate: pk.Expr, ties: int
) -> None:
    columns = {"t": "int64", "n": "int64", "v": "int64"}
    query = pk.stream("s", columns, time="t", sequence=sequence).window(10).agg(a=aggregate)
    running = LocalStream(query, 2)
    running.batch(
        [
            pa.table({"t": [1, 1, 3], "n": [2, 1, None], "v": [7, 5, 4]}),
            pa.table({"t": [3, 4], "n": pa.array([None, 1], pa.int64()), "v": [6, 5]}),
        ]
    )
    assert running.metrics.ties == ties


def test_a_batch_that_failed_is_run_again_as_if_it_had_never_been() -> None:
    query = declared("1s")["sliding"]
    parts = cut(TABLE, [50, 100])
    running = LocalStream(query, 2)
    made = []
    for part in [*parts, LAST]:
        before = dict(running.states)
        lost = running.batch([part])
        running.states = before
        again = running.batch([part])
        assert [batch.to_pylist() for batch in lost] == [batch.to_pylist() for batch in again]
        made += again
    assert_same(ANSWERS["sliding"], pa.Table.from_batches(made, query.schema), "sliding")


@pytest.mark.parametrize("damage", ["a bit", "cut short", "gone", "of an older batch"])
def test_a_damaged_state_is_refused_whichever_chunk_it_is(damage: str) -> None:
    """Every chunk, at a few places each: a wrong number never comes out of it."""
    running = LocalStream(declared("1s")["twice"], 1)
    first, second = cut(TABLE, [75])
    running.batch([first])
    (label,) = running.states
    old = running.states[label]
    running.batch([second])
    good = running.states[label]
    assert len(good) > 4
    for name, data in good.items():
        for place in (0, len(data) // 3, len(data) - 1):
            running.states[label] = damaged(good, old, name, damage, place)
            if running.states[label] == good:
                continue
            with pytest.raises(pk.StateError, match="state in the checkpoint"):
                running.batch([LAST])
    running.states[label] = good
    assert running.batch([LAST])


def damaged(
    good: dict[str, bytes], old: dict[str, bytes], name: str, damage: str, place: int
) -> dict[str, bytes]:
    data = good[name]
    match damage:
        case "a bit":
            return {**good, name: data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]}
        case "cut short":
            return {**good, name: data[:place]}
        case "gone":
            return {other: value for other, value in good.items() if other != name}
        case _:
            return {**good, name: old.get(name, b"")}


def test_the_state_of_another_query_is_refused_with_what_has_changed() -> None:
    one, other = LocalStream(declared("1s")["tumbling"]), LocalStream(declared("1s")["sliding"])
    one.batch([TABLE])
    other.states = one.states
    with pytest.raises(
        pk.StateError,
        match=r"was saved by another query: the window of ~\w+ was size \w+ every \w+ and is size",
    ):
        other.batch([LAST])


def test_another_number_of_shards_is_refused() -> None:
    one, other = (LocalStream(declared("1s")["tumbling"], shards) for shards in (2, 3))
    one.batch([TABLE])
    other.states = one.states
    with pytest.raises(pk.StateError, match="the number of shards was 2 and is 3"):
        other.batch([LAST])


def test_streams_that_meet_wait_for_the_slower_one() -> None:
    columns = {"t": "int64", "k": "int64"}
    one, other = (pk.stream(name, columns, time="t") for name in ("a", "b"))
    query = one.union(other).window(10, by="k").agg(n=pk.count())
    running = LocalStream(query, 2)
    assert running.batch([pa.table({"t": [1, 100], "k": [1, 1]})], "a") == []
    made = running.batch([pa.table({"t": [2, 20], "k": [1, 1]})], "b")
    assert [batch.to_pylist() for batch in made] == [[{"window_start": 0, "window_end": 10, "k": 1, "n": 2}]]


def test_times_are_those_of_the_stream() -> None:
    columns = {"t": pa.timestamp("ms", "Asia/Tokyo"), "k": "string"}
    query = pk.stream("s", columns, time="t").window("1m", by="k").agg(n=pk.count())
    rows = pa.table({"t": pa.array([0, 90_000], columns["t"]), "k": ["a", None]})
    made = LocalStream(query, 2).batch([rows])
    assert made[0]["window_end"].to_pylist() == [datetime.datetime(1970, 1, 1, 0, 1, tzinfo=datetime.UTC)]
