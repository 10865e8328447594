"""Look-backs worked out by hand: which ends belong, rows of one time, delays, counts of rows, several at once."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import penstock as pk

TRADES = {"t": "int64", "k": "string", "v": "int64"}


def trades(times: list[int], keys: str | None = None) -> pa.Table:
    """Make rows at these times; their values are 1, 2, 3 …"""
    return pa.table({"t": times, "k": list(keys or "a" * len(times)), "v": range(1, len(times) + 1)})


def behind(table: pa.Table, size: Any, **options: Any) -> list[list[int]]:
    """List what each row looks back on, in order of time."""
    rows = pk.from_arrow(table, time="t").rolling(size, **options).agg(vs=pk.list("v"))
    found: list[list[int]] = rows.collect()["vs"].to_pylist()
    return found


@pytest.mark.parametrize(
    ("closed", "seen"),
    [
        ("right", [[1], [1, 2], [2, 3]]),
        ("left", [[], [1], [1, 2]]),
        ("both", [[1], [1, 2], [1, 2, 3]]),
        ("none", [[], [1], [2]]),
    ],
)
def test_closed_says_which_ends_of_the_span_belong_to_it(closed: str, seen: list[list[int]]) -> None:
    assert behind(trades([0, 5, 10]), 10, closed=closed) == seen


def test_rows_of_one_time_all_see_each_other() -> None:
    assert behind(trades([1, 1, 2]), 5) == [[1, 2], [1, 2], [1, 2, 3]]


def test_on_the_left_rows_of_one_time_do_not_see_each_other() -> None:
    assert behind(trades([0, 1, 1]), 5, closed="left") == [[], [1], [1]]


def test_a_delay_moves_the_whole_span_into_the_past() -> None:
    """At 9 the span of 5 delayed by 3 is (1, 6]."""
    assert behind(trades([1, 2, 6, 9]), 5, delay=3) == [[], [], [1, 2], [2, 3]]


def test_rows_look_back_on_themselves_and_the_rows_before_them() -> None:
    assert behind(trades([1, 1, 1, 8]), pk.rows(2)) == [[1], [1, 2], [2, 3], [3, 4]]


def test_on_the_left_rows_look_back_on_those_before_them_only() -> None:
    assert behind(trades([1, 1, 1, 8]), pk.rows(2), closed="left") == [[], [1], [1, 2], [2, 3]]


def test_with_a_delay_rows_look_back_on_the_last_that_had_come_by_then() -> None:
    assert behind(trades([1, 2, 3, 5]), pk.rows(2), delay=2) == [[], [], [1], [2, 3]]


def test_with_a_delay_on_the_left_the_row_at_that_very_time_is_left_out() -> None:
    assert behind(trades([1, 2, 3, 5]), pk.rows(2), delay=2, closed="left") == [[], [], [], [1, 2]]


def test_each_key_looks_back_on_its_own_rows_and_results_are_in_order_of_time() -> None:
    table = trades([3, 1, 2, 4], "abab")
    rows = pk.from_arrow(table, time="t").rolling(pk.rows(2), by="k").agg(vs=pk.list("v")).collect()
    assert rows.to_pydict() == {
        "t": [1, 2, 3, 4],
        "k": ["b", "a", "a", "b"],
        "vs": [[2], [3], [3, 1], [2, 4]],
    }


def test_the_sequence_orders_rows_of_one_time() -> None:
    table = pa.table({"t": [1, 1, 1], "v": [1, 2, 3], "no": [2, 3, 1]})
    rows = pk.from_arrow(table, time="t", sequence="no").rolling(pk.rows(2)).agg(vs=pk.list("v"))
    assert rows.collect()["vs"].to_pylist() == [[3], [3, 1], [1, 2]]


def test_with_columns_keeps_every_row_and_column() -> None:
    rows = pk.from_arrow(trades([1, 5]), time="t").rolling(10).with_columns(total=pk.sum("v"))
    assert rows.collect().to_pydict() == {"t": [1, 5], "k": ["a", "a"], "v": [1, 2], "total": [1, 3]}


def test_several_spans_are_computed_side_by_side() -> None:
    rows = pk.from_arrow(trades([1, 5, 9]), time="t").rolling([3, 10, pk.rows(2)]).agg(s=pk.sum("v"))
    assert rows.collect().to_pydict() == {
        "t": [1, 5, 9], "s_3": [1, 2, 3], "s_10": [1, 3, 6], "s_2rows": [1, 3, 5],
    }  # fmt: skip


def test_of_no_rows_counts_are_zero_and_the_rest_is_null() -> None:
    rows = pk.from_arrow(trades([1]), time="t").rolling(5, closed="left").agg(n=pk.count(), s=pk.sum("v"))
    assert rows.collect().to_pydict() == {"t": [1], "n": [0], "s": [None]}


def test_a_filter_behind_a_look_back_leaves_what_rows_have_seen() -> None:
    rows = pk.from_arrow(trades([1, 2, 3]), time="t").rolling(pk.rows(3)).agg(s=pk.sum("v"))
    assert rows.filter(pk.col("s") > 2).collect().to_pydict() == {"t": [2, 3], "s": [3, 6]}


def test_a_row_within_the_lateness_is_seen_by_those_after_it() -> None:
    stream = pk.stream("trades", TRADES, time="t", lateness=5)
    batches = [pa.record_batch({"t": [t], "k": ["a"], "v": [t]}) for t in (1, 4, 2)]
    result = pa.Table.from_batches(list(stream.rolling(10).agg(s=pk.sum("v")).run(iter(batches))))
    assert result.to_pydict() == {"t": [1, 2, 4], "s": [1, 3, 7]}


def test_a_row_leaves_when_time_has_passed_it() -> None:
    """Another row at 2 would be seen by those at 2 already."""
    stream = pk.stream("trades", TRADES, time="t")
    with stream.rolling(10).agg(n=pk.count()).open() as live:
        assert [b.to_pydict() for b in live.push(trades([1, 2]))] == [{"t": [1], "n": [1]}]
        assert live.push(trades([2])) == []
        assert [b.to_pydict() for b in live.push(trades([3]))] == [{"t": [2, 2], "n": [3, 3]}]
        assert [b.to_pydict() for b in live.finish()] == [{"t": [3], "n": [4]}]


def test_a_key_that_falls_silent_does_not_hold_back_what_comes_behind_a_look_back() -> None:
    stream = pk.stream("trades", TRADES, time="t")
    counted = stream.rolling(pk.rows(2), by="k").agg(s=pk.sum("v")).window(10).agg(n=pk.count())
    with counted.open() as live:
        live.push(trades([1], "a"))
        live.push(trades([2, 5], "bb"))
        assert [b.to_pydict()["n"] for b in live.push(trades([12, 25], "bb"))] == [[3, 1]]


@pytest.mark.parametrize("size", [5, pk.rows(2)])
def test_a_key_may_be_called_as_a_bound_of_windows(size: Any) -> None:
    """Look-backs have no such columns of their own."""
    named = trades([1, 2, 3, 4], "abab").rename_columns(["t", "window_start", "v"])
    rows = pk.from_arrow(named, time="t").rolling(size, by="window_start")
    assert rows.agg(s=pk.sum("v")).collect().to_pydict() == {
        "t": [1, 2, 3, 4],
        "window_start": ["a", "b", "a", "b"],
        "s": [1, 2, 4, 6],
    }
    kept = rows.with_columns(s=pk.sum("v")).filter(pk.col("window_start") == "b")
    assert kept.collect().select(["v", "s"]).to_pydict() == {"v": [2, 4], "s": [2, 6]}
