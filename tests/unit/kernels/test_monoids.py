"""The algebra of aggregates: an identity, associative merging, and the values of plain Python."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from math import inf, nan
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels import monoids
from penstock.kernels.monoids import Monoid, Values
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import F32, F64, I8, I32, I64, U8, U64, Buffer, Kernel, Type, Value
from penstock.loop.numbers import limits
from tests.unit.codegen.compare import array, zeros
from tests.unit.kernels.running import run

FORMS = ("whole", "merged to the left", "merged to the right", "merged with the identity")
TEXTS = ["", "a", "ab", "b", "é", "ab\0"]  # the arena of text monoids, by code


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
FLOAT_SUM = Case("float sum", monoids.float_sum, F64, math.fsum)


@cache
def folding(case: Case) -> Kernel:
    """Fold three stretches of values in every form that must give the same state."""
    k = KernelBuilder("folding")
    monoid = case.make()
    values = k.buffer("values", case.type)
    bounds = [k.scalar("bound") for _ in range(4)]
    out = [k.buffer("out", state.type) for state in monoid.states]
    whole = _fold(k, monoid, values, bounds[0], bounds[3])
    a, b, c = (_fold(k, monoid, values, *pair) for pair in pairwise(bounds))
    nothing = _fold(k, monoid, values, bounds[0], bounds[0])
    left = monoid.merge(k, _bound(k, monoid.merge(k, a, b)), c)
    right = monoid.merge(k, a, _bound(k, monoid.merge(k, b, c)))
    neutral = monoid.merge(k, nothing, _bound(k, monoid.merge(k, whole, nothing)))
    for form, states in enumerate((whole, left, right, neutral)):
        for buffer, state in zip(out, states, strict=True):
            k.store(buffer, form, state)
    k.ret(0)
    return k.build()


def _bound(k: KernelBuilder, states: Values) -> Values:
    return tuple(k.var("state", state) for state in states)


def _fold(k: KernelBuilder, monoid: Monoid, values: Buffer, start: Value, stop: Value) -> Values:
    states = tuple(k.var("state", state.identity, state.type) for state in monoid.states)
    with k.for_(start, stop, "i") as i:
        stepped = _bound(k, monoid.step(k, states, (values[i],)))
        for state, new in zip(states, stepped, strict=True):
            k.set(state, new)
    return states


def folded(case: Case, values: list[Any], cuts: tuple[int, int]) -> list[list[Any]]:
    """Give the states of each form."""
    states = case.make().states
    first, second = sorted(min(cut, len(values)) for cut in cuts)
    ends = np.cumsum([0, *(len(text.encode()) for text in TEXTS)])
    memory = {
        "values": array(case.type, [*values, 0]),
        "bound": 0,
        "bound.1": first,
        "bound.2": second,
        "bound.3": len(values),
        "text_offsets": ends.astype(np.int64),
        "text": np.frombuffer("".join(TEXTS).encode() + bytes(64), np.uint8),
    }
    outs = ["out" if place == 0 else f"out.{place}" for place in range(len(states))]
    memory |= {name: zeros(state.type, len(FORMS)) for name, state in zip(outs, states, strict=True)}
    after = run(folding(case), memory)[1]
    return [
        [read(after[name], form, state.type) for name, state in zip(outs, states, strict=True)]
        for form in range(len(FORMS))
    ]


def read(data: Any, place: int, type: Type) -> Any:
    if type.bits == 128:
        return (int(data[2 * place + 1]) << 64) | (int(data[2 * place]) & ((1 << 64) - 1))
    return data[place].item()


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
    for form, (state,) in zip(FORMS, folded(case, values, cuts), strict=True):
        assert state == expected or (state != state and expected != expected), form


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.floats(-1e200, 1e200) | st.sampled_from([1e16, 1.0, -1e16, 0.1]), max_size=30),
    st.tuples(st.integers(0, 30), st.integers(0, 30)),
)
def test_a_sum_of_floats_is_exact_to_twelve_digits_however_it_is_merged(
    values: list[float], cuts: tuple[int, int]
) -> None:
    size = math.fsum(map(abs, values))
    for total, lost in folded(FLOAT_SUM, values, cuts):
        assert abs(total + lost - math.fsum(values)) <= 1e-12 * size


@settings(max_examples=20, deadline=None)
@given(st.lists(st.sampled_from([1.0, -2.5, inf, -inf, nan]), max_size=8), st.integers(0, 8))
def test_what_is_not_finite_stays_in_the_first_word_of_a_sum(values: list[float], cut: int) -> None:
    expected = sum(values)
    for total, lost in folded(FLOAT_SUM, values, (cut, cut)):
        if math.isfinite(expected):
            assert total + lost == expected
        else:
            assert total == expected or (math.isnan(total) and math.isnan(expected))
            assert math.isnan(lost)
