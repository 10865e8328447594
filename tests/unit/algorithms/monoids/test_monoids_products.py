"""Products are exact for integers, and for floats never lost to an overflow on the way."""

from __future__ import annotations

import math
from fractions import Fraction
from math import inf, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.algorithms import monoids
from penstock.algorithms.monoids.moments import LARGE, NEGATIVE, ZERO
from penstock.expr.aggregates.definitions import float_product
from penstock.loop.nodes import F64, I8, I64, U64, Type
from penstock.loop.numbers import limits
from tests.unit.algorithms.folding import FORMS, folded

CUTS = st.tuples(st.integers(0, 12), st.integers(0, 12))


def factors(type: Type) -> st.SearchStrategy[list[Any]]:
    low, high = limits(type)
    edges = st.sampled_from(sorted({low, high, 1, 2, max(low, -1), max(low, -3)}))
    return st.lists(edges | st.integers(max(low, -9), 9) | st.integers(low, high), max_size=12)


@pytest.mark.parametrize("type", [I8, I64, U64], ids=str)
@given(data=st.data())
def test_integers_are_multiplied_exactly_or_known_not_to_fit(type: Type, data: st.DataObject) -> None:
    values = data.draw(factors(type))
    size = math.prod(abs(value) for value in values if value)
    rows = [(value,) for value in values]
    for form, (found, notes) in zip(
        FORMS, folded(monoids.integer_product, (type,), rows, data.draw(CUTS)), strict=True
    ):
        assert bool(notes & LARGE) == (size >= 1 << 64), form
        assert notes & LARGE or found == size, form
        assert bool(notes & ZERO) == (0 in values), form
        assert bool(notes & NEGATIVE) == bool(sum(value < 0 for value in values) % 2), form


@given(
    st.lists(
        st.sampled_from([1e300, -1e300, 1e-300, 5e-324, 1.5, -2.0])
        | st.floats(allow_nan=False, allow_infinity=False),
        max_size=12,
    ),
    CUTS,
)
def test_floats_are_multiplied_as_if_there_were_no_largest_one(
    values: list[float], cuts: tuple[int, int]
) -> None:
    exact = math.prod(map(Fraction, values), start=Fraction(1))
    for form, (mantissa, exponent) in zip(
        FORMS, folded(monoids.float_product, (F64,), [(value,) for value in values], cuts), strict=True
    ):
        assert mantissa == 0 or 1 <= abs(mantissa) < 2, form
        found = Fraction(mantissa) * Fraction(2) ** exponent if mantissa else Fraction(0)
        assert abs(found - exact) <= abs(exact) / 10**14, form


@given(st.lists(st.sampled_from([inf, -inf, nan, 0.0, -0.0, 2.0, -1e300]), min_size=1, max_size=8), CUTS)
def test_infinities_nan_and_zeros_multiply_as_ieee_754_says(
    values: list[float], cuts: tuple[int, int]
) -> None:
    expected = float_product(values)
    for form, (mantissa, _) in zip(
        FORMS, folded(monoids.float_product, (F64,), [(value,) for value in values], cuts), strict=True
    ):
        assert math.isnan(mantissa) == math.isnan(expected), form
        assert math.isnan(mantissa) or math.copysign(1, mantissa) == math.copysign(1, expected), form
        if 0.0 in values or inf in map(abs, values):
            assert math.isnan(expected) or mantissa == expected, form
