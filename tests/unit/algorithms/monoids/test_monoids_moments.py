"""Moments are those of exact arithmetic, to nine digits and more, however the rows are cut and merged."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.algorithms import monoids
from penstock.loop.nodes import F32, F64, I64, U8, U64, Type
from penstock.loop.numbers import limits
from tests.unit.algorithms.folding import FORMS, folded

MOMENTS = {order: partial(monoids.moments, order) for order in (2, 3, 4)}
PRECISION = Fraction(1, 10**9)
UNDERFLOW = Fraction(1, 10**290)

CUTS = st.tuples(st.integers(0, 12), st.integers(0, 12))
NOISE = st.floats(-1.0, 1.0)
CLOSE_TOGETHER = st.builds(
    lambda base, noise: [base + offset for offset in noise],
    st.sampled_from([0.0, 1e-3, 1e9, -1e9, 1e15]),
    st.lists(NOISE, max_size=12),
)
FAR_APART = st.lists(st.sampled_from([0.0, -0.0, 1e30, -1e30, 1.5]) | st.floats(-1e6, 1e6), max_size=12)


def integers(type: Type) -> st.SearchStrategy[list[int]]:
    """Draw values from the whole range, and values that lie together at either end of it."""
    low, high = limits(type)
    ends = st.integers(low, min(low + 9, high)), st.integers(max(high - 9, low), high)
    return st.one_of([st.lists(end, max_size=12) for end in (*ends, st.integers(low, high))])


CASES: dict[str, tuple[int, Type, st.SearchStrategy[list[Any]]]] = {
    "two, close together": (2, F64, CLOSE_TOGETHER),
    "three, close together": (3, F64, CLOSE_TOGETHER),
    "four, close together": (4, F64, CLOSE_TOGETHER),
    "four, far apart": (4, F64, FAR_APART),
    "four of f32": (4, F32, st.lists(st.floats(-100, 100, width=32), max_size=12)),
    "four of i64": (4, I64, integers(I64)),
    "four of u64": (4, U64, integers(U64)),
    "four of u8": (4, U8, integers(U8)),
}


def distances(values: list[Any]) -> list[Fraction]:
    exact = [Fraction(value) for value in values]
    mean = sum(exact, Fraction(0)) / max(len(exact), 1)
    return [fraction - mean for fraction in exact]


def close(found: float, terms: list[Fraction]) -> bool:
    """Whether a float is the sum of some terms, compared with their sizes."""
    return abs(Fraction(found) - sum(terms)) <= PRECISION * sum(map(abs, terms)) + UNDERFLOW


@pytest.mark.parametrize("case", CASES)
@settings(max_examples=15)
@given(data=st.data())
def test_sums_of_powers_are_those_of_exact_arithmetic(case: str, data: st.DataObject) -> None:
    order, type, strategy = CASES[case]
    values, cuts = data.draw(strategy), data.draw(CUTS)
    away = distances(values)
    rows = [(value,) for value in values]
    for form, (count, _, _, *sums) in zip(FORMS, folded(MOMENTS[order], (type,), rows, cuts), strict=True):
        assert count == len(values), form
        for power, found in enumerate(sums, 2):
            assert close(found, [fraction**power for fraction in away]), (form, power)


@pytest.mark.parametrize(
    ("left", "right"), [(F64, F64), (I64, F64), (U64, I64)], ids=["floats", "mixed", "integers"]
)
@settings(max_examples=15)
@given(data=st.data())
def test_sums_of_products_are_those_of_exact_arithmetic(left: Type, right: Type, data: st.DataObject) -> None:
    draw = {F64: CLOSE_TOGETHER, I64: integers(I64), U64: integers(U64)}
    rows = list(zip(data.draw(draw[left]), data.draw(draw[right]), strict=False))
    xs, ys = distances([x for x, _ in rows]), distances([y for _, y in rows])
    for form, state in zip(
        FORMS, folded(monoids.comoments, (left, right), rows, data.draw(CUTS)), strict=True
    ):
        assert state[0] == len(rows), form
        for found, (a, b) in zip(state[5:], ((xs, xs), (ys, ys), (xs, ys)), strict=True):
            assert abs(Fraction(found) - _product(a, b)) <= PRECISION * _scale(a, b) + UNDERFLOW, form


def _product(a: list[Fraction], b: list[Fraction]) -> Fraction:
    return sum((x * y for x, y in zip(a, b, strict=True)), Fraction(0))


def _scale(a: list[Fraction], b: list[Fraction]) -> Fraction:
    """No sum of products is larger than the mean of both sums of squares, one scaled to the other."""
    xx, yy = _product(a, a), _product(b, b)
    return Fraction(math.isqrt(int(xx * yy * 10**40)) + 1, 10**20)


@pytest.mark.parametrize("make", [MOMENTS[4], monoids.comoments], ids=["one argument", "two"])
@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
@settings(max_examples=15)
@given(st.lists(NOISE, max_size=4), st.lists(NOISE, max_size=4), CUTS)
def test_what_is_not_finite_makes_all_sums_nan(
    make: Callable[[], monoids.Monoid],
    odd: float,
    before: list[float],
    after: list[float],
    cuts: tuple[int, int],
) -> None:
    pair = make is monoids.comoments
    rows = [(value, value) if pair else (value,) for value in (*before, odd, *after)]
    for form, state in zip(FORMS, folded(make, (F64,) * (1 + pair), rows, cuts), strict=True):
        assert all(map(math.isnan, state[5 if pair else 3 :])), form


@pytest.mark.parametrize("value", [0.0, 0.1, -1e300, 1.7e308])
@settings(max_examples=15)
@given(st.integers(1, 12), CUTS)
def test_equal_values_have_no_spread_at_all(value: float, count: int, cuts: tuple[int, int]) -> None:
    for form, (_, head, tail, *sums) in zip(
        FORMS, folded(MOMENTS[4], (F64,), [(value,)] * count, cuts), strict=True
    ):
        assert (head, tail, *sums) == (value, 0, 0, 0, 0), form


def test_noise_upon_a_large_constant_keeps_its_variance() -> None:
    random = np.random.default_rng(3)
    values = (1e9 + 1e-3 * random.normal(size=1_000)).tolist()
    exact = sum((distance**2 for distance in distances(values)), Fraction(0))
    for form, state in zip(
        FORMS, folded(MOMENTS[2], (F64,), [(value,) for value in values], (200, 700)), strict=True
    ):
        assert abs(Fraction(state[3]) / exact - 1) < Fraction(1, 10**12), form
