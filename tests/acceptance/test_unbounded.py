"""The window of all rows, worked out by hand."""

from __future__ import annotations

import pyarrow as pa

import penstock as pk

EVENTS = {"t": "int64", "k": "string", "v": "int64"}


def events(*rows: tuple[int, str, int]) -> pa.Table:
    times, keys, values = zip(*rows, strict=True)
    return pa.table({"t": times, "k": keys, "v": values})


def test_the_window_of_all_rows_lasts_from_the_first_to_a_tick_behind_the_last() -> None:
    table = events((7, "a", 1), (3, "a", 2), (9, "a", 4))
    result = pk.from_arrow(table, time="t").window(pk.unbounded()).agg(s=pk.sum("v"), m=pk.median("v"))
    assert result.collect().to_pylist() == [{"window_start": 3, "window_end": 10, "s": 7, "m": 2.0}]


def test_all_keys_share_the_bounds_of_one_window() -> None:
    table = events((3, "a", 1), (5, "b", 2), (9, "a", 4))
    result = pk.from_arrow(table, time="t").window(pk.unbounded(), by="k").agg(s=pk.sum("v")).collect()
    assert sorted(tuple(row.values()) for row in result.to_pylist()) == [(3, 10, "a", 5), (3, 10, "b", 2)]


def test_of_no_rows_there_is_no_window() -> None:
    stream = pk.stream("events", EVENTS, time="t")
    empty = pa.table({"t": pa.array([], "int64"), "k": pa.array([], "string"), "v": pa.array([], "int64")})
    assert stream.window(pk.unbounded()).agg(n=pk.count()).collect(empty).num_rows == 0


def test_the_window_is_given_when_input_ends_and_not_before() -> None:
    stream = pk.stream("events", EVENTS, time="t")
    with stream.window(pk.unbounded()).agg(s=pk.sum("v")).open() as live:
        assert live.push(events((1, "a", 1), (100, "a", 2))) == []
        assert live.advance(10**9) == []
        assert [batch.to_pylist() for batch in live.finish()] == [
            [{"window_start": 1, "window_end": 101, "s": 3}]
        ]


def test_without_an_end_the_window_is_never_given() -> None:
    stream = pk.stream("events", EVENTS, time="t")
    query = stream.window(pk.unbounded()).agg(s=pk.sum("v"))
    assert list(query.run(iter(events((1, "a", 1)).to_batches()), final=False)) == []


def test_every_row_can_stand_beside_the_whole() -> None:
    table = events((1, "a", 1), (2, "b", 3))
    rows = pk.from_arrow(table, time="t").window(pk.unbounded()).with_columns(share=pk.col("v") / pk.sum("v"))
    assert rows.collect()["share"].to_pylist() == [0.25, 0.75]


def test_the_first_row_is_the_first_in_time_not_the_first_to_come() -> None:
    table = events((5, "a", 1), (1, "a", 2), (9, "a", 3), (7, "a", 4))
    result = pk.from_arrow(table, time="t").window(pk.unbounded()).agg(f=pk.first("v"), e=pk.last("v"))
    assert result.collect().select(["f", "e"]).to_pylist() == [{"f": 2, "e": 3}]


def test_no_row_is_late_even_behind_one_from_the_far_future() -> None:
    """2^62 nanoseconds is the year 2116, and people write 2262 for never."""
    stream = pk.stream("events", EVENTS, time="t")
    rows = events((5, "a", 1), (2**63 - 2, "a", 2), (3, "a", 4))
    run = stream.window(pk.unbounded()).agg(s=pk.sum("v")).run(iter(rows.to_batches(1)))
    assert [row["s"] for batch in run for row in batch.to_pylist()] == [7]
    assert run.metrics.late == 0


def test_rows_that_came_late_are_with_the_others_in_windows_behind() -> None:
    table = pa.table({"t": [50, 0, 30], "v": [1, 2, 4]})
    source = pk.stream("events", {"t": "int64", "v": "int64"}, time="t", lateness=10)
    query = source.window(pk.unbounded()).with_columns(n=pk.count()).drop("window_start", "window_end")
    tens = query.window(10).agg(v=pk.sum("v"), n=pk.max("n"))
    wanted = {"window_start": [0, 30, 50], "window_end": [10, 40, 60], "v": [2, 4, 1], "n": [3, 3, 3]}
    run = tens.run(table.to_batches(max_chunksize=1))
    assert pa.Table.from_batches(run).to_pydict() == tens.collect(table).to_pydict() == wanted
    assert run.metrics.late == 0
