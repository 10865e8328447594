"""Each join algorithm: interpreted = compiled = its plain twin = nested loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.algorithms.joins import plain
from penstock.algorithms.joins.kernels import KERNELS, build
from penstock.algorithms.joins.no_partitioning import InOrder
from penstock.loop.abi import MOST_SORTED_RUNS, JoinSpec
from penstock.loop.interpret import interpret
from penstock.loop.verify import verify
from tests.unit.algorithms.joins.kernels.joining import (
    EAGER,
    LAZY,
    codes,
    compared,
    eagerly,
    expected,
    lazily,
    native,
)

LEAST, GREATEST = -(1 << 63), (1 << 63) - 1
WINDOWS = {
    "unique": (range(12), range(5, 20)),
    "duplicates": ([1, 2, 3] * 4, [3, 2, 2, 9] * 3),
    "all equal": ([5] * 7, [5] * 9),
    "nothing in common": ([1, 2, 3], [4, 5, 6]),
    "an empty side": ([], [1, 2]),
    "one row each": ([-4], [-4]),
    "limits": ([LEAST, GREATEST, 0, -1, GREATEST], [GREATEST, LEAST, LEAST, 1]),
    "exactly 32 bits": ([0, (1 << 32) - 1, 7, 1 << 31], [(1 << 32) - 1, 7, 7, 0]),
    "far apart, in 32 bits": ([k * 1_000_003 for k in range(20)], [k * 1_000_003 for k in range(10, 30)]),
    "far apart": ([k * 10**15 for k in range(-9, 9)], [k * 10**15 for k in range(-3, 20, 2)]),
}


# The interpreter is slow: which threads do what is compared on some windows only.
CASES = [*((window, 1) for window in WINDOWS), ("unique", 3), ("duplicates", 3), ("limits", 2)]


@pytest.mark.parametrize(("window", "threads"), CASES)
@pytest.mark.parametrize("name", LAZY)
def test_a_lazy_join_is_the_same_interpreted_and_compiled(name, window, threads, parts_in_turn) -> None:
    left, right = map(codes, map(list, WINDOWS[window]))
    want = expected(left, right)
    assert lazily(name, left, right, threads, compared) == (len(want), want)


@pytest.mark.parametrize(
    ("window", "threads"), [case for case in CASES if not case[0].startswith(("far", "exactly"))]
)
@pytest.mark.parametrize("name", EAGER)
def test_an_eager_join_is_the_same_interpreted_and_compiled(name, window, threads, parts_in_turn) -> None:
    left, right = map(codes, map(list, WINDOWS[window]))
    want = expected(left, right)
    arrivals = [(side, piece) for at in range(0, 20, 7) for side, piece in _pieces(left, right, at, 7)]
    assert eagerly(name, arrivals, threads, compared) == (len(want), want)


def _pieces(left: np.ndarray, right: np.ndarray, at: int, size: int) -> list[tuple[int, np.ndarray]]:
    return [(0, left[at : at + size]), (1, right[at : at + size])]


SPECS = [
    JoinSpec(wide=wide, dense=dense, pairs=pairs, shared=shared, routed=routed)
    for wide in (False, True)
    for dense in (False, True)
    for pairs in (False, True)
    for shared in (False, True)
    for routed in (False, True)
]


@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_obeys_the_grammar_for_every_spec(name) -> None:
    for spec in SPECS:
        verify(build(name, spec))


SMALL = st.integers(-3, 12)
SIDES = st.lists(SMALL | st.integers(LEAST, GREATEST), max_size=40)


@given(SIDES, SIDES)
@settings(max_examples=50, deadline=None)
def test_the_plain_twins_are_nested_loops(left, right) -> None:
    want = expected(codes(left), codes(right))
    arrivals = [*((0, code) for code in left), *((1, code) for code in right)]
    eager = (
        [pair for pairs in several for pair in pairs]
        for several in (plain.symmetric_hash(arrivals), plain.progressive_merge(arrivals, 5))
    )
    lazy = (join(left, right) for join in (plain.no_partitioning, plain.radix, plain.sort_merge))
    assert all(sorted(pairs) == want for pairs in (*eager, *lazy))


RUNS = st.lists(
    st.lists(st.integers(0, (1 << 64) - 1) | st.integers(0, 9), max_size=12).map(sorted), min_size=1
)


@given(RUNS.filter(lambda runs: len(runs) <= 16))
@settings(max_examples=60, deadline=None)
def test_many_runs_are_merged_in_order_and_equal_words_in_the_order_of_runs(runs) -> None:
    words = np.array([word for run in runs for word in run], np.uint64)
    ends = np.cumsum([len(run) for run in runs])
    size = 1 << (len(runs) - 1).bit_length()
    padding = np.zeros(size - len(runs), np.int64)
    out, rows = np.zeros(len(words), np.uint64), np.zeros(len(words), np.uint32)
    native("merge_many", JoinSpec(pairs=True))(
        {
            "words": words,
            "to_words": out,
            "rows": np.arange(len(words), dtype=np.uint32),
            "to_rows": rows,
            "cursors": np.concatenate([ends - [len(run) for run in runs], padding]),
            "ends": np.concatenate([ends, padding]),
            "runs": size,
            "target": 0,
            "total": len(words),
        }
    )
    order = np.argsort(words, kind="stable")
    assert rows.tolist() == order.tolist()
    assert out.tolist() == words[order].tolist()


@given(st.lists(SMALL, max_size=30).map(sorted), st.lists(SMALL, max_size=30).map(sorted))
@settings(max_examples=60, deadline=None)
def test_two_runs_are_merged_from_both_ends(first, second) -> None:
    words = np.array([*first, *second], np.int64).view(np.uint64) + np.uint64(3)
    out, rows = np.zeros(len(words), np.uint64), np.zeros(len(words), np.uint32)
    end = native("merge_two", JoinSpec(pairs=True))(
        {
            "words": words,
            "to_words": out,
            "rows": np.arange(len(words), dtype=np.uint32),
            "to_rows": rows,
            "from_a": 0,
            "end_a": len(first),
            "from_b": len(first),
            "end_b": len(words),
            "target": 0,
        }
    )
    assert (end, rows.tolist()) == (len(words), np.argsort(words, kind="stable").tolist())
    assert out.tolist() == sorted(words.tolist())


def test_threads_in_any_order_fill_a_shared_table_alike() -> None:
    spec = JoinSpec(shared=True)
    insert, words = build("npj_insert", spec), list(range(0, 90, 7))
    tables = []
    for order in (words, words[::-1], words[5:] + words[:5]):
        slots = np.zeros(32, np.uint64)
        given_ = {
            "codes": codes(order),
            "least": 0,
            "lo": 0,
            "hi": len(order),
            "sink": np.zeros(1, np.uint64),
        }
        interpret(insert, {**given_, "slots": slots, "mask": 31})
        tables.append(slots.tolist())
    assert tables[0] == tables[1] == tables[2]
    assert sorted(tables[0])[-len(words) :] == [word + 1 for word in words]


def test_the_tree_of_a_merge_lies_on_the_stack() -> None:
    assert (
        sum((local.length or 0) * 8 for local in build("merge_many", JoinSpec()).locals)
        == 16 * MOST_SORTED_RUNS
    )


@pytest.mark.parametrize(("window", "threads"), CASES)
@pytest.mark.parametrize("outer", [False, True])
def test_pairs_in_order_are_the_same_interpreted_and_compiled(window, threads, outer, parts_in_turn) -> None:
    left, right = map(codes, map(list, WINDOWS[window]))
    own, other = InOrder(compared).ordered(left, right, threads, outer=outer)
    want = expected(left, right)
    if outer:
        met = {row for row, _ in want}
        want = sorted([*want, *((row, -1) for row in range(len(left)) if row not in met)])
    assert list(zip(own.tolist(), other.tolist(), strict=True)) == want
    met_rows = InOrder(compared).met(left, right, threads)
    assert np.flatnonzero(met_rows).tolist() == sorted({row for row, partner in want if partner >= 0})
