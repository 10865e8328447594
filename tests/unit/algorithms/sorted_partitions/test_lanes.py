"""SortedPartitions at the edges of their machinery: few frames over many rows, sorting by digits, prefixes in doubt."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from penstock.algorithms.sort.kernels import (
    DIGIT_BITS,
    assign_ranks,
    falls,
    float_words,
    place_floats,
    radix_pass,
    sort_words,
)
from penstock.algorithms.sort.sorting import FEW_VALUES, SORTED_STRETCH, Sorter
from penstock.compile import backend_named

MANY = 300_000
INT64 = st.integers(-(2**63), 2**63 - 1)


@cache
def sorter() -> Sorter:
    native = backend_named("native")
    ranking = native(float_words()), native(assign_ranks())
    sorting = native(falls()), native(sort_words()), native(place_floats())
    return Sorter(native(radix_pass()), DIGIT_BITS, *ranking, *sorting)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(
    "rows", [0, 1, 2, FEW_VALUES - 1, FEW_VALUES, 5 * FEW_VALUES + 3, 3 * SORTED_STRETCH + 1]
)
def test_one_time_before_the_last_is_enough_to_be_out_of_order(rows: int, threads: int) -> None:
    times, tried = np.arange(rows) // 2, sorter()
    assert tried.in_order(times, threads)
    for place in {1, 2048, rows // 2, rows - 1}:
        if 0 < place < rows:
            fallen = times.copy()
            fallen[place] = fallen[place - 1] - 1
            assert not tried.in_order(fallen, threads)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_one_window_of_many_rows_needs_no_more_than_one_thread(threads: int) -> None:
    table = pa.table({"t": np.arange(MANY), "v": np.ones(MANY, np.int64), "x": np.full(MANY, 0.5)})
    sums = {"v": pk.sum("v"), "x": pk.sum("x"), "middle": pk.median("x"), "spread": pk.std("v")}
    for window in (pk.session(10), pk.rows(MANY)):
        query = pk.from_arrow(table, time="t").window(window).agg(**sums)
        (row,) = (
            query.collect(engine=pk.Engine(threads=threads)).drop(["window_start", "window_end"]).to_pylist()
        )
        assert row == {"v": MANY, "x": MANY / 2, "middle": 0.5, "spread": 0.0}


@pytest.mark.parametrize("rows", [0, 1, FEW_VALUES - 1, FEW_VALUES, 3 * FEW_VALUES])
@given(pool=st.lists(INT64, min_size=1, max_size=6), seed=st.integers(0, 99))
def test_rows_are_sorted_by_all_keys_and_equal_ones_keep_their_order(
    rows: int, pool: list[int], seed: int
) -> None:
    dice = np.random.default_rng(seed)
    few, many = dice.choice(np.array(pool), rows), dice.integers(-(2**63), 2**63 - 1, rows)
    third = dice.integers(0, 3, rows)
    for keys in ((few,), (many,), (few, many), (many, few), (few, third, many)):
        assert sorter().order(*keys).tolist() == np.lexsort(keys[::-1]).tolist()


def test_keys_that_differ_in_their_lowest_bits_alone_are_sorted_too() -> None:
    keys = np.random.default_rng(7).choice(np.array([5, 4, 7, 6, -(2**62), 2**62]), 5 * FEW_VALUES)
    assert sorter().order(keys).tolist() == np.argsort(keys, kind="stable").tolist()


@given(values=st.lists(st.floats(width=64), min_size=1, max_size=50))
def test_floats_are_ranked_with_nan_last_and_both_zeros_alike(values: list[float]) -> None:
    made = sorter()
    ranks, first = made.ranks(made.words(np.array(values)))
    distinct = sorted({value + 0.0 for value in values if not math.isnan(value)})
    expected = [len(distinct) if math.isnan(value) else distinct.index(value) for value in values]
    assert ranks.tolist() == expected
    assert ranks[first].tolist() == list(range(len(first)))


@pytest.mark.parametrize("rows", [0, 1, 2, 300, FEW_VALUES])
@given(pool=st.lists(st.floats(width=64), min_size=1, max_size=8), seed=st.integers(0, 99))
def test_floats_are_placed_in_order_and_equal_ones_as_they_came(
    rows: int, pool: list[float], seed: int
) -> None:
    dice = np.random.default_rng(seed)
    floats = dice.choice(np.array(pool), rows) + dice.choice([0.0, 0.0, 1e-300, 1.0], rows)
    places, in_order = sorter().placed(floats)
    expected = np.argsort(sorter().words(floats), kind="stable")
    assert places[expected].tolist() == list(range(rows))
    assert in_order.tobytes() == floats[expected].tobytes()


def test_sums_of_floats_forget_what_was_huge_or_not_finite() -> None:
    odd = [1e300] * 50 + [1e-3] * 50 + [math.inf] + [2.0] * 50 + [math.nan] + [3.0] * 50 + [0.0] * 30
    table = pa.table({"t": np.arange(len(odd)), "x": odd})
    sums = pk.from_arrow(table, time="t").rolling(10).agg(s=pk.sum("x")).collect()["s"].to_pylist()
    for place, found in enumerate(sums):
        window = odd[max(place - 9, 0) : place + 1]
        if all(map(math.isfinite, window)):
            assert abs(found - math.fsum(window)) <= 1e-12 * math.fsum(map(abs, window))
        else:
            assert math.isnan(found) if any(map(math.isnan, window)) else found == math.inf


@pytest.mark.parametrize("outlier", [0, 1 << 40, 1 << 62, -(1 << 63), (1 << 63) - 1])
@pytest.mark.parametrize("spread", [1, 1000, 1 << 30, 1 << 50])
def test_keys_that_lie_close_together_beside_one_far_away_are_sorted(outlier: int, spread: int) -> None:
    keys = np.random.default_rng(5).integers(0, spread, 3 * FEW_VALUES)
    keys[FEW_VALUES] = outlier
    assert sorter().order(keys).tolist() == np.argsort(keys, kind="stable").tolist()
    floats = keys.astype(np.float64)
    places, in_order = sorter().placed(floats)
    order = np.argsort(floats, kind="stable")
    assert places[order].tolist() == list(range(len(keys)))
    assert in_order.tolist() == floats[order].tolist()
