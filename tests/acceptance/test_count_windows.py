"""Windows of rows worked out by hand: full ones, tails, steps, keys, and rows out of order."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

import penstock as pk

TICKS = {"t": "int64", "k": "string", "v": "int64"}


def ticks(times: list[int], keys: str | None = None) -> pa.Table:
    """Make rows at these times; their values are 1, 2, 3 …"""
    return pa.table({"t": times, "k": list(keys or "a" * len(times)), "v": range(1, len(times) + 1)})


def listed(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


def collected(table: pa.Table, window: Any, **options: Any) -> list[tuple[Any, ...]]:
    return listed(pk.from_arrow(table, time="t").window(window, **options).agg(vs=pk.list("v")).collect())


def test_a_window_of_rows_ends_a_tick_after_its_last_row() -> None:
    assert collected(ticks([3, 5, 5, 9]), pk.rows(2)) == [(3, 6, [1, 2]), (5, 10, [3, 4])]


def test_rows_that_do_not_fill_a_window_are_left_out() -> None:
    assert collected(ticks([1, 2, 3]), pk.rows(2)) == [(1, 3, [1, 2])]


def test_partial_gives_the_tail_too() -> None:
    assert collected(ticks([1, 2, 3]), pk.rows(2, partial=True)) == [(1, 3, [1, 2]), (3, 4, [3])]


def test_windows_that_overlap_have_several_tails() -> None:
    windows = collected(ticks([1, 2, 3, 4]), pk.rows(3, every=1, partial=True))
    assert sorted(windows) == [(1, 4, [1, 2, 3]), (2, 5, [2, 3, 4]), (3, 5, [3, 4]), (4, 5, [4])]


def test_a_step_longer_than_the_window_skips_rows() -> None:
    assert collected(ticks([1, 2, 3, 4, 5, 6, 7]), pk.rows(2, every=3)) == [(1, 3, [1, 2]), (4, 6, [4, 5])]


def test_each_key_counts_its_own_rows() -> None:
    windows = collected(ticks([1, 2, 3, 4, 5], "abbab"), pk.rows(2), by="k")
    assert windows == [(2, 4, "b", [2, 3]), (1, 5, "a", [1, 4])]


def test_rows_are_counted_behind_the_filter() -> None:
    kept = pk.from_arrow(ticks([1, 2, 3, 4]), time="t").filter(pk.col("v") != 2)
    assert listed(kept.window(pk.rows(2)).agg(vs=pk.list("v")).collect()) == [(1, 4, [1, 3])]


def test_rows_are_counted_in_order_of_time_not_of_arrival() -> None:
    assert collected(ticks([4, 1, 3, 2]), pk.rows(2)) == [(1, 3, [2, 4]), (3, 5, [3, 1])]


def test_rows_of_one_time_are_counted_by_their_sequence() -> None:
    table = pa.table({"t": [1, 1, 1, 1], "v": [1, 2, 3, 4], "no": [30, 10, None, 20]})
    windows = pk.from_arrow(table, time="t", sequence="no").window(pk.rows(2)).agg(vs=pk.list("v"))
    assert listed(windows.collect()) == [(1, 2, [3, 2]), (1, 2, [4, 1])]


def test_a_window_leaves_when_time_has_passed_its_last_row() -> None:
    """A row at 2 might still come and be counted before those that wait."""
    stream = pk.stream("ticks", TICKS, time="t")
    with stream.window(pk.rows(2)).agg(vs=pk.list("v")).open() as live:
        assert live.push(ticks([1, 2])) == []
        assert [listed(pa.Table.from_batches([b])) for b in live.push(ticks([3]))] == [[(1, 3, [1, 2])]]
        assert live.finish() == []


def test_a_row_within_the_lateness_is_counted_where_it_belongs() -> None:
    stream = pk.stream("ticks", TICKS, time="t", lateness=5)
    batches = [pa.record_batch({"t": [t], "k": ["a"], "v": [t]}) for t in (1, 4, 2, 3)]
    result = pa.Table.from_batches(list(stream.window(pk.rows(2)).agg(vs=pk.list("v")).run(iter(batches))))
    assert listed(result) == [(1, 3, [1, 2]), (3, 5, [3, 4])]


def test_the_tail_comes_at_the_end_and_only_once() -> None:
    stream = pk.stream("ticks", TICKS, time="t")
    with stream.window(pk.rows(2, partial=True)).agg(vs=pk.list("v")).open() as live:
        assert live.push(ticks([1])) == [] and live.advance(100) == []
        assert [listed(pa.Table.from_batches([b])) for b in live.finish()] == [[(1, 2, [1])]]
        assert live.finish() == []


def test_steps_longer_than_the_window_skip_rows_across_batches() -> None:
    stream = pk.stream("ticks", TICKS, time="t")
    batches = ticks([1, 2, 3, 4, 5, 6, 7, 8]).to_batches(1)
    result = list(stream.window(pk.rows(2, every=3)).agg(vs=pk.list("v")).run(iter(batches)))
    assert listed(pa.Table.from_batches(result)) == [(1, 3, [1, 2]), (4, 6, [4, 5]), (7, 9, [7, 8])]
