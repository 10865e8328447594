"""The algebra of aggregates: an identity, associative merging, and the values of plain Python."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from math import inf, nan
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.algorithms import monoids
from penstock.algorithms.monoids import Monoid
from penstock.loop.nodes import F32, F64, I8, I32, I64, U8, U64, Type
from penstock.loop.numbers import limits
from tests.unit.algorithms.folding import FORMS, LEFT, TEXTS, folded, left_over


@dataclass(frozen=True)
class Case:
    name: str
    make: Callable[[], Monoid]
    type: Type
    expect: Callable[[list[Any]], Any]


def wrapped(total: int) -> int:
    return (total + (1 << 63)) % (1 << 64) - (1 << 63)


def ordered(value: float) -> tuple[bool, float]:
    return (True, 0.0) if math.isnan(value) else (False, value)


def text_of(codes: list[int], pick: Callable[..., int]) -> int:
    present = [code for code in codes if code >= 0]
    return pick(present, key=lambda code: TEXTS[code].encode()) if present else -1


def extremes(type: Type) -> list[Case]:
    low, high = (-inf, nan) if type.is_float else limits(type)
    return [
        Case(f"least {type}", lambda: monoids.least(type), type, lambda v: min(v, key=ordered, default=high)),
        Case(
            f"greatest {type}",
            lambda: monoids.greatest(type),
            type,
            lambda v: max(v, key=ordered, default=low),
        ),
    ]


CASES = [
    Case("present", monoids.present, I64, lambda values: int(bool(values))),
    Case("count", monoids.count, I64, len),
    Case("sum of int64", lambda: monoids.integer_sum(False), I64, lambda values: wrapped(sum(values))),
    Case("wide sum of int64", lambda: monoids.integer_sum(True), I64, sum),
    Case("wide sum of uint64", lambda: monoids.integer_sum(True), U64, sum),
    *(case for type in (I8, I32, I64, U8, U64, F32, F64) for case in extremes(type)),
    Case("first text", lambda: monoids.text_extreme("c", False), I32, lambda codes: text_of(codes, min)),
    Case("last text", lambda: monoids.text_extreme("c", True), I32, lambda codes: text_of(codes, max)),
]


def values_of(case: Case) -> st.SearchStrategy[list[Any]]:
    if case.type.is_float:
        edges = st.sampled_from([0.0, -0.0, 1.5, -inf, inf, nan])
        return st.lists(edges | st.floats(width=case.type.bits), max_size=12)
    if "text" in case.name:
        return st.lists(st.integers(-1, len(TEXTS) - 1), max_size=12)
    low, high = limits(case.type)
    return st.lists(st.sampled_from([low, high, 0, 1]) | st.integers(low, high), max_size=12)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_every_way_of_merging_gives_the_value_of_plain_python(case: Case, data: st.DataObject) -> None:
    values = data.draw(values_of(case))
    cuts = data.draw(st.tuples(st.integers(0, 12), st.integers(0, 12)))
    expected = case.expect(values)
    rows = [(value,) for value in values]
    for form, (state,) in zip(FORMS, folded(case.make, (case.type,), rows, cuts), strict=True):
        assert state == expected or (state != state and expected != expected), form


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.make().invertible], ids=lambda case: case.name
)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_what_leaves_again_leaves_no_trace(case: Case, data: st.DataObject) -> None:
    values = data.draw(values_of(case))
    cut = data.draw(st.integers(0, len(values)))
    rows = [(value,) for value in values]
    for way, (state,) in zip(LEFT, left_over(case.make, (case.type,), rows, cut), strict=True):
        assert state == case.expect(values[cut:]), way


def test_only_exact_sums_let_go() -> None:
    """Taking floats out again would leave what rounding did behind, and NaN for ever."""
    assert {case.name for case in CASES if case.make().invertible} == {
        "count",
        "sum of int64",
        "wide sum of int64",
        "wide sum of uint64",
    }
    assert not monoids.float_sum().invertible


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.floats(-1e200, 1e200) | st.sampled_from([1e16, 1.0, -1e16, 0.1]), max_size=30),
    st.tuples(st.integers(0, 30), st.integers(0, 30)),
)
def test_a_sum_of_floats_is_exact_to_twelve_digits_however_it_is_merged(
    values: list[float], cuts: tuple[int, int]
) -> None:
    size = math.fsum(map(abs, values))
    for total, lost in folded(monoids.float_sum, (F64,), [(value,) for value in values], cuts):
        assert abs(total + lost - math.fsum(values)) <= 1e-12 * size


@settings(max_examples=20, deadline=None)
@given(st.lists(st.sampled_from([1.0, -2.5, inf, -inf, nan]), max_size=8), st.integers(0, 8))
def test_what_is_not_finite_stays_in_the_first_word_of_a_sum(values: list[float], cut: int) -> None:
    expected = sum(values)
    for total, lost in folded(monoids.float_sum, (F64,), [(value,) for value in values], (cut, cut)):
        if math.isfinite(expected):
            assert total + lost == expected
        else:
            assert total == expected or (math.isnan(total) and math.isnan(expected))
            assert math.isnan(lost)
