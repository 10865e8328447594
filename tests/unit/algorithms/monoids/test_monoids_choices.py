"""One row's value is chosen by a total order, whatever the order in which rows are met."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.algorithms import monoids
from penstock.loop.nodes import F32, F64, I8, I64, U8, U64, Type
from penstock.loop.numbers import limits
from tests.unit.algorithms.folding import FORMS, folded

CUTS = st.tuples(st.integers(0, 12), st.integers(0, 12))
BY = {
    (value, by, largest): partial(monoids.extreme_by, value, by, largest)
    for value, by in ((I64, F64), (F32, U64), (U8, I8), (F64, F32))
    for largest in (False, True)
}
AT = {
    (value, last): partial(monoids.first_or_last, value, last)
    for value in (F64, U8)
    for last in (False, True)
}


def few(type: Type) -> st.SearchStrategy[Any]:
    """Draw from few values, so that many rows tie."""
    if type.is_float:
        return st.sampled_from([0.0, 1.5, -2.0, math.inf, -math.inf, math.nan])
    low, high = limits(type)
    return st.sampled_from([low, high, 0, 1])


def rank(value: float) -> tuple[bool, float]:
    return (True, 0.0) if math.isnan(value) else (False, value)


def same(a: float, b: float) -> bool:
    return rank(a) == rank(b)


@pytest.mark.parametrize(
    "case", BY, ids=lambda case: f"{case[0]} by the {'largest' if case[2] else 'smallest'} {case[1]}"
)
@settings(max_examples=15)
@given(data=st.data())
def test_the_smallest_value_beside_the_extreme_is_chosen_and_null_only_alone(
    case: tuple[Type, Type, bool], data: st.DataObject
) -> None:
    value, by, largest = case
    rows = data.draw(st.lists(st.tuples(few(value), few(by), st.sampled_from([0, 1])), max_size=12))
    choose = max if largest else min
    extreme = choose((rank(row[1]) for row in rows), default=None)
    beside = [row for row in rows if rank(row[1]) == extreme]
    chosen = min(beside, key=lambda pair: (not pair[2], rank(pair[0])), default=None)
    for form, (seen, _, found, there) in zip(
        FORMS, folded(BY[case], (value, by, U8), rows, data.draw(CUTS)), strict=True
    ):
        assert seen == bool(rows), form
        if chosen is not None:
            assert there == chosen[2], form
            assert not there or same(found, chosen[0]), form


@pytest.mark.parametrize("case", AT, ids=lambda case: f"{'last' if case[1] else 'first'} {case[0]}")
@settings(max_examples=15)
@given(data=st.data())
def test_the_first_or_last_row_by_time_then_position_is_chosen(
    case: tuple[Type, bool], data: st.DataObject
) -> None:
    value, last = case
    drawn = data.draw(st.lists(st.tuples(few(value), st.sampled_from([0, 1]), few(I64)), max_size=12))
    rows = data.draw(st.permutations([(*item, position) for position, item in enumerate(drawn)]))
    choose = max if last else min
    chosen = choose(rows, key=lambda item: item[2:], default=None)
    for form, (time, position, found, there) in zip(
        FORMS, folded(AT[case], (value, U8, I64, I64), rows, data.draw(CUTS)), strict=True
    ):
        if chosen is None:
            assert there == 0, form
        else:
            assert (there, time, position) == chosen[1:], form
            assert same(found, chosen[0]), form
