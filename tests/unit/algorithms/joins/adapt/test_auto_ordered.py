"""The joiner that chooses where pairs come in order: the same pairs whatever it chooses, and a choice for each window."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.algorithms.joins.adapt.tree import (
    DEFAULT_TREES,
    IN_ORDER,
    TREE_ALGORITHMS,
    TREES,
    JoinChooser,
    Leaf,
    Split,
)
from penstock.algorithms.joins.adapt.window_statistics import WINDOW_STATISTICS, WindowStatistics, observe
from penstock.algorithms.kernel_factory import KernelFactory
from penstock.codegen.native import compile_kernel
from penstock.operators.joins.algorithm_pairs import AutoInOrder
from penstock.operators.joins.build import partition_kernels
from penstock.operators.joins.build_algorithms import in_order
from penstock.operators.joins.stage import ArrivalRate, at_rest
from tests.unit.algorithms.joins.kernels.joining import codes, expected

WORKSHOP = KernelFactory(compile_kernel)
BY_SIZE = Split("rows", 50.0, Leaf("shj_jm"), Split("duplicates", 3.0, Leaf("prj"), Leaf("npj")))


def auto(tree=BY_SIZE, arrival=at_rest) -> AutoInOrder:
    kernels = partition_kernels(WORKSHOP, 2)
    return AutoInOrder(
        lambda name: in_order(name, WORKSHOP, kernels), JoinChooser(dict.fromkeys(TREES, tree)), arrival
    )


def paired(pairs) -> list[tuple[int, int]]:
    return list(zip(*(pair.tolist() for pair in pairs), strict=True))


def outer(left: np.ndarray, right: np.ndarray) -> list[tuple[int, int]]:
    pairs = expected(left, right)
    alone = set(range(len(left))) - {own for own, _ in pairs}
    return sorted([*pairs, *((own, -1) for own in alone)])


KEYS = st.lists(st.integers(-3, 3), max_size=40)


@pytest.mark.parametrize("algorithm", TREE_ALGORITHMS)
@given(KEYS, KEYS, st.sampled_from([1, 1 << 40]), st.sampled_from([None, 1, 7]))
@settings(max_examples=15, deadline=None)
def test_any_choice_gives_the_same_pairs_in_the_same_order(algorithm, left, right, spread, most) -> None:
    one, other = codes(left) * spread, codes(right) * spread
    joiner = auto(Leaf(algorithm))
    assert paired(joiner.ordered(one, other, 2)) == expected(one, other)
    assert paired(joiner.ordered(one, other, 1, outer=True)) == outer(one, other)
    parts = list(joiner.parts(one, other, 1, outer=True, most=most))
    assert [pair for part in parts for pair in paired(part)] == outer(one, other)
    met = in_order(algorithm, WORKSHOP, partition_kernels(WORKSHOP, 1)).met(one, other, 1)
    assert np.flatnonzero(met).tolist() == sorted({own for own, _ in expected(one, other)})


@given(KEYS, st.integers(0, 5))
@settings(max_examples=25, deadline=None)
def test_few_left_rows_find_theirs_among_very_many(left, seed) -> None:
    other = np.random.default_rng(seed).integers(-9, 9, 9 * len(left) + 9) * (1 << 50)
    one = codes(left) * (1 << 50)
    for threads in (1, 3):
        assert paired(auto(Leaf("npj")).ordered(one, other, threads)) == expected(one, other)
        parts = list(auto(Leaf("npj")).parts(one, other, threads, outer=True, most=5))
        assert [pair for part in parts for pair in paired(part)] == outer(one, other)


def test_each_window_is_chosen_for_by_what_is_seen_of_it() -> None:
    joiner, made = auto(), []
    for rows, repeats in ((10, 1), (100, 1), (100, 20), (10, 5)):
        side = np.arange(rows) // repeats
        joiner.ordered(side, side, 1)
        made.append(joiner.chosen.algorithm)
    assert made == ["shj_jm", "prj", "npj", "shj_jm"]
    assert joiner.chosen.path == ("rows = 20 < 50",)


def test_what_the_tree_does_not_ask_for_is_not_looked_at() -> None:
    joiner = auto()
    joiner.ordered(np.arange(9), np.arange(9), 1)
    assert joiner.chosen.seen is not None
    assert (joiner.chosen.seen["rows"], joiner.chosen.seen["smaller"]) == (18.0, 9.0)
    with pytest.raises(KeyError):
        joiner.chosen.seen["duplicates"]


def test_who_meets_anybody_is_asked_of_a_table_and_no_tree() -> None:
    joiner = auto(Leaf("mway"))
    assert joiner.met(codes([1, 2, 3]), codes([3, 3]), 1).tolist() == [False, False, True]
    assert (joiner.chosen.algorithm, joiner.chosen.seen) == ("npj", None)


def test_empty_sides_are_joined_without_a_choice() -> None:
    nothing, joiner = codes([]), auto(Leaf("mpass"))
    assert paired(joiner.ordered(codes([1, 2]), nothing, 1, outer=True)) == [(0, -1), (1, -1)]
    assert paired(joiner.ordered(nothing, codes([1, 2]), 1)) == []
    assert joiner.chosen.seen is None


def test_rates_are_those_of_the_rows_that_came_last() -> None:
    times = iter([0.0, 0.010, 0.110])
    arrivals = ArrivalRate(lambda: next(times))
    joiner = auto(Split("rate", 50.0, Leaf("shj_jb"), Leaf("npj")), arrivals.milliseconds)
    for rows, algorithm in ((1000, "npj"), (100, "shj_jb")):
        arrivals.add(rows)
        arrivals.turn()
        joiner.ordered(np.arange(40), np.arange(50), 1)
        assert joiner.chosen.algorithm == algorithm
    assert joiner.chosen.seen is not None
    assert joiner.chosen.seen["slower_rate"] == pytest.approx(40 / 90)


def test_a_glance_sees_what_a_look_sees() -> None:
    rng = np.random.default_rng(3)
    left, right = rng.integers(0, 300, 5000) * 77, rng.integers(0, 300, 400) * 77
    snapshot, look = WindowStatistics(left, right, 5.0, 2), observe(left, right, 5.0, 2)
    for name in WINDOW_STATISTICS:
        assert snapshot[name] == pytest.approx(look[name], rel=0.5), name


@pytest.mark.parametrize(
    ("seen", "algorithm"),
    [
        ({"spread": 2.0}, "npj"),
        ({"spread": 1e9, "smaller": 1e6, "duplicates": 1.0}, "prj"),
        ({"spread": 1e9, "smaller": 1e6, "duplicates": 10.0}, "npj"),
        ({"spread": 1e9, "smaller": 1e3}, "npj"),
    ],
)
def test_the_supplied_tree_partitions_what_is_large_scattered_and_unique(seen, algorithm) -> None:
    assert JoinChooser(DEFAULT_TREES).choose(seen, IN_ORDER).algorithm == algorithm
