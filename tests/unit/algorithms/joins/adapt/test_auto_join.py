"""The joiner that chooses: right whatever it chooses, and choosing again when the stream changes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.algorithms.joins.adapt.auto_join import AutoJoiner
from penstock.algorithms.joins.adapt.tree import TREE_ALGORITHMS, TREES, JoinChooser, Leaf, Split
from tests.unit.algorithms.joins.kernels.joining import EAGER, LAZY, codes, expected, listed, native

BY_SIZE = Split("rows", 50.0, Leaf("shj_jm"), Split("rows", 500.0, Leaf("mpass"), Leaf("prj")))


def auto(tree=BY_SIZE, clock=lambda: 0.0) -> AutoJoiner:
    return AutoJoiner(
        lambda name: (LAZY | EAGER)[name](native), JoinChooser(dict.fromkeys(TREES, tree)), clock=clock
    )


@pytest.mark.parametrize("algorithm", TREE_ALGORITHMS)
def test_any_choice_gives_the_same_pairs_lazily_and_eagerly(algorithm) -> None:
    rng = np.random.default_rng(4)
    left, right = rng.integers(0, 20, 90), rng.integers(0, 20, 70)
    joiner, want = auto(Leaf(algorithm)), expected(left, right)
    assert joiner.join(left, right, "count", 1) == len(want)
    assert listed(joiner.join(left, right, "pairs", 2)) == want
    run = joiner.open(2)
    found = [run.push_left(left[:50]), run.push_right(right), run.push_left(left[50:]), run.close()]
    assert run.chosen.algorithm == algorithm
    assert sorted(pair for pairs in found for pair in listed(pairs)) == want


def test_each_window_is_opened_with_what_the_one_before_suggests() -> None:
    joiner, opened = auto(), []
    for rows in (10, 100, 1000, 10, 10):
        run = joiner.open(1)
        opened.append(run.chosen.algorithm)
        side = np.arange(rows)
        found = [run.push_left(side), run.push_right(side), run.close()]
        assert sum(len(pair[0]) for pair in found) == rows
    assert opened == ["shj_jm", "shj_jm", "mpass", "prj", "shj_jm"]


def test_rates_come_from_the_time_a_window_was_open() -> None:
    times = iter([1.0, 1.5])
    joiner = auto(clock=lambda: next(times))
    run = joiner.open(1)
    run.push_left(codes([1, 2, 3]))
    run.push_right(codes([2, 3]))
    run.close()
    assert joiner.seen is not None
    assert (joiner.seen.rate, joiner.seen.slower_rate) == (5 / 500, 2 / 500)
    assert "* yes: shj_jm" in joiner.show()


def test_a_window_without_rows_changes_no_mind() -> None:
    joiner = auto()
    joiner.join(np.arange(700), np.arange(5), "count", 1)
    assert listed(joiner.open(1).close()) == []
    assert joiner.decision is not None and joiner.decision.algorithm == "prj"


@given(st.lists(st.tuples(st.integers(0, 1), st.lists(st.integers(0, 9), max_size=40)), max_size=20))
@settings(max_examples=25, deadline=None)
def test_windows_of_any_size_one_after_the_other(pieces) -> None:
    joiner = auto()
    for end in (len(pieces), len(pieces) // 2, len(pieces)):
        run, found, sides = joiner.open(1), [], ([], [])
        for side, piece in pieces[:end]:
            found.append((run.push_left if side == 0 else run.push_right)(codes(piece)))
            sides[side].extend(piece)
        found.append(run.close())
        want = expected(codes(sides[0]), codes(sides[1]))
        assert sorted(pair for pairs in found for pair in listed(pairs)) == want
