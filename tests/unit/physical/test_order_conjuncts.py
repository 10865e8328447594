"""The order of conjuncts as tables: from what a sample has shown to the groups in which a kernel computes them."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from penstock.physical.nodes import FilterOrder, PaneAggregate
from penstock.physical.order_conjuncts import ConjunctCost, _shares, cost_of, guessed_order, order_conjuncts
from penstock.physical.profile import MASKED, Passed, Profile
from penstock.physical.split_filters import conjunct_costs

CHEAP = ConjunctCost(0.5)
ROWS = 10_000


def profile_of(passes: list[np.ndarray]) -> Profile:
    """The profile of rows of which each conjunct passes some."""
    counted = passes[:MASKED]
    sets = sum(
        (bits.astype(np.int64) << place for place, bits in enumerate(counted)), np.zeros(ROWS, np.int64)
    )
    masks = np.bincount(sets, minlength=1 << len(counted))
    alone = tuple(Passed(int(passed.sum()), 0) for passed in passes)
    return Profile(ROWS, alone, tuple(masks.tolist()))


def independent(*shares: float) -> Profile:
    rng = np.random.default_rng(1)
    return profile_of([rng.random(ROWS) < share for share in shares])


CASES: dict[str, tuple[Profile, list[ConjunctCost], FilterOrder | None]] = {
    "a selective conjunct comes first": (independent(0.5, 0.5, 0.001), [CHEAP] * 3, ((2,), (0,), (1,))),
    "unselective conjuncts stay together": (independent(1, 1, 1), [CHEAP] * 3, None),
    "the dear one waits for the cheap": (independent(0.01, 0.01), [ConjunctCost(9), CHEAP], ((1,), (0,))),
    "one that can fail is computed for every row": (
        independent(0.5, 0.001),
        [ConjunctCost(0.5, total=False), CHEAP],
        None,
    ),
    "and only that one": (
        independent(0.5, 0.5, 0.001),
        [ConjunctCost(0.5, total=False), CHEAP, CHEAP],
        ((0, 2), (1,)),
    ),
    "one conjunct has no order": (independent(0.001), [CHEAP], None),
    "no rows, no order": (Profile(0), [CHEAP] * 2, None),
}


@pytest.mark.parametrize("name", CASES)
def test_orders(name: str) -> None:
    profile, costs, expected = CASES[name]
    assert order_conjuncts(profile, costs, None) == expected


def test_conditional_shares_count_not_those_alone() -> None:
    """Behind the first conjunct the second drops nothing and the third all; alone the second is more selective."""
    first = np.arange(ROWS) < 300
    second, third = np.arange(ROWS) < 400, np.arange(ROWS) >= 250
    assert second.mean() < third.mean()
    order = order_conjuncts(profile_of([second, third, first]), [CHEAP] * 3, None)
    assert order == ((2,), (1,), (0,))


def test_an_order_stands_until_another_is_clearly_cheaper() -> None:
    before: FilterOrder = ((0,), (1,))
    near = independent(0.11, 0.1)
    assert order_conjuncts(near, [CHEAP] * 2, before) == before
    assert order_conjuncts(independent(0.9, 0.01), [CHEAP] * 2, before) == ((1,), (0,))
    assert order_conjuncts(independent(1.0, 1.0), [CHEAP] * 2, before) is None


def test_conjuncts_beyond_those_counted_come_last() -> None:
    shares = [0.001, *[0.9] * (MASKED + 1)]
    order = order_conjuncts(independent(*shares), [CHEAP] * len(shares), None)
    assert order is not None and order[0] == (0,) and order[-1] == (MASKED, MASKED + 1)
    assert sorted(number for group in order for number in group) == list(range(len(shares)))


@given(
    st.lists(st.sampled_from([0.0, 0.01, 0.3, 0.5, 0.9, 1.0]), min_size=2, max_size=4),
    st.lists(st.sampled_from([0.25, 2.0, 8.0]), min_size=4, max_size=4),
)
def test_no_order_of_single_conjuncts_is_estimated_to_be_cheaper(
    shares: list[float], kernel: list[float]
) -> None:
    profile, costs = independent(*shares), [ConjunctCost(cost) for cost in kernel[: len(shares)]]
    found = order_conjuncts(profile, costs, None) or (tuple(range(len(costs))),)
    passing = _shares(profile, len(shares))
    least = min(
        cost_of(tuple((number,) for number in order), passing, costs)
        for order in permutations(range(len(shares)))
    )
    assert cost_of(found, passing, costs) <= least / 0.85 + 1e-9


# --- before any row -------------------------------------------------------------------------------------

ROWS_STREAM = pk.stream("rows", {"t": "int64", "a": "int64", "b": "int64", "s": "string"}, time="t")
A, B = pk.col("a"), pk.col("b")
GUESSES: dict[str, tuple[pk.Expr, FilterOrder | None]] = {
    "a list of numbers waits for an equality": ((A == 1) & B.is_in(range(0, 100, 3)), ((0,), (1,))),
    "whichever is written first": (B.is_in(range(0, 100, 3)) & (A == 1), ((1,), (0,))),
    "a list of texts waits": ((A == 1) & pk.col("s").is_in(["x", "y"]), ((0,), (1,))),
    "a disjunction waits": ((A == 1) & ((B % 7 == 2) | (B % 5 == 1)), ((0,), (1,))),
    "comparisons are computed together": ((A > 1) & (B > 2), None),
    "however many": ((A > 1) & (B > 2) & (A < 9) & (B < 8) & (A != 5), None),
    "nothing is cheap": (pk.col("s").is_in(["x", "y"]) & (pk.col("s") != "z"), None),
    "what can fail is computed for every row": (
        (A == 1) & (B.is_in(range(0, 100, 3)) & (B * A < 9)),
        ((0, 2), (1,)),
    ),
    "one condition": (A == 1, None),
}


@pytest.mark.parametrize("name", GUESSES)
def test_the_first_order_follows_guesses(name: str) -> None:
    where, expected = GUESSES[name]
    query = ROWS_STREAM.filter(where).window(10).agg(n=pk.count())
    (op,) = (
        node.op for node in query.compiled().physical("bounded").nodes if isinstance(node.op, PaneAggregate)
    )
    assert op.order == expected
    assert guessed_order(conjunct_costs(op.where, ROWS_STREAM.schema)) == expected
