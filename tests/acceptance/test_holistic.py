"""Aggregates that need all values of a window, worked out by hand: entering, leaving, coming back."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

import penstock as pk

NAN = float("nan")


def rows(**columns: list[Any]) -> Any:
    """Make a stream of rows at 0, 1, 2 …"""
    count = len(next(iter(columns.values())))
    return pk.from_arrow(pa.table({"t": range(count), **columns}), time="t")


def test_a_sliding_median_follows_the_values_that_enter_and_leave() -> None:
    result = rows(v=[5, 1, 9, 9, 2]).rolling(3).agg(m=pk.median("v"))
    assert result.collect()["m"].to_pylist() == [5.0, 3.0, 5.0, 9.0, 9.0]


def test_a_quantile_lies_between_two_values() -> None:
    result = rows(v=[10, 20, 30, 40]).window(pk.rows(4)).agg(q=pk.quantile("v", 0.9), h=pk.quantile("v", 0.5))
    assert result.collect().select(["q", "h"]).to_pylist() == [{"q": 37.0, "h": 25.0}]


def test_of_several_most_frequent_values_mode_is_the_smallest_also_when_others_have_left() -> None:
    result = rows(v=["b", "b", "a", "a", "c"]).rolling(pk.rows(4)).agg(m=pk.mode("v"))
    assert result.collect()["m"].to_pylist() == ["b", "b", "b", "a", "a"]


def test_mode_gives_zero_for_both_zeros_whichever_came_first() -> None:
    result = rows(v=[-0.0, -0.0, 0.0, 1.0]).rolling(2).agg(m=pk.mode("v"))
    assert list(map(str, result.collect()["m"].to_pylist())) == ["0.0", "0.0", "0.0", "0.0"]


def test_values_are_counted_once_until_the_last_of_them_has_left() -> None:
    result = rows(v=[1, 1, 2, 3, 1]).rolling(pk.rows(3)).agg(n=pk.count_distinct("v"))
    assert result.collect()["n"].to_pylist() == [1, 1, 2, 3, 3]


def test_nan_is_the_largest_value_and_leaves_without_a_trace() -> None:
    result = rows(v=[NAN, 1.0, 2.0, 3.0]).rolling(pk.rows(2)).agg(m=pk.median("v"), top=pk.max("v"))
    found = result.collect().to_pydict()
    assert [str(x) for x in found["m"]] == ["nan", "nan", "1.5", "2.5"]
    assert [str(x) for x in found["top"]] == ["nan", "nan", "2.0", "3.0"]


def test_nulls_are_no_values() -> None:
    result = (
        rows(v=[None, 4, None, 8])
        .rolling(pk.rows(2))
        .agg(m=pk.median("v"), n=pk.count_distinct("v"), o=pk.mode("v"), l=pk.list("v"))
    )
    assert result.collect().drop("t").to_pydict() == {
        "m": [None, 4.0, 4.0, 8.0], "n": [0, 1, 1, 1], "o": [None, 4, 4, 8], "l": [[], [4], [4], [8]],
    }  # fmt: skip


def test_bytes_are_ranked_by_their_values_however_wide_their_range() -> None:
    """From -128 to 127 is farther than a byte can tell."""
    values = pa.array([*range(-128, 128)], pa.int8())
    events = pk.from_arrow(pa.table({"t": range(256), "v": values}), time="t")
    result = events.window(pk.unbounded()).agg(m=pk.median("v"), n=pk.count_distinct("v"), low=pk.mode("v"))
    assert result.collect().select(["m", "n", "low"]).to_pylist() == [{"m": -0.5, "n": 256, "low": -128}]


def test_each_aggregate_may_count_rows_of_its_own() -> None:
    result = (
        rows(v=[1, 2, 3, 4], ok=[True, False, True, None])
        .window(pk.rows(4))
        .agg(
            all=pk.median("v"), some=pk.median("v", where=pk.col("ok")), last=pk.last("v", where=pk.col("ok"))
        )
    )
    assert result.collect().select(["all", "some", "last"]).to_pylist() == [
        {"all": 2.5, "some": 2.0, "last": 3}
    ]


def test_kinds_of_aggregates_mix_in_one_pass() -> None:
    result = (
        rows(v=[3, 1, 2], w=["x", "y", "z"])
        .window(pk.session(1))
        .agg(s=pk.sum("v"), m=pk.median("v"), best=pk.max_by("w", "v"), l=pk.list("w"), n=pk.count())
    )
    assert result.collect().drop(["window_start", "window_end"]).to_pylist() == [
        {"s": 6, "m": 2.0, "best": "x", "l": ["x", "y", "z"], "n": 3}
    ]


def test_windows_can_be_chosen_by_their_median() -> None:
    result = rows(v=[1, 1, 8, 9]).window(2).agg(m=pk.median("v")).filter(pk.col("m") > 5)
    assert result.collect().to_pylist() == [{"window_start": 2, "window_end": 4, "m": 8.5}]


def test_medians_of_medians() -> None:
    result = (
        rows(v=[1, 3, 10, 20, 5, 5])
        .window(2)
        .agg(m=pk.median("v"))
        .window(pk.unbounded())
        .agg(mm=pk.median("m"))
    )
    assert result.collect()["mm"].to_pylist() == [5.0]
