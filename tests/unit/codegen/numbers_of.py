"""Hypothesis strategies for machine numbers, rich in limits, zeros, infinities and NaN."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from penstock.loop.nodes import Type
from penstock.loop.numbers import limits, round_f32

_FLOATS = [
    0.0,
    -0.0,
    0.5,
    -0.5,
    1.0,
    -1.0,
    1.5,
    2.5,
    -2.5,
    1e300,
    -1e300,
    5e-324,
    float("inf"),
    float("-inf"),
]
_FLOATS += [
    float("nan"),
    2.0**63,
    -(2.0**63),
    2.0**64,
    127.5,
    255.9,
    0.49999999999999994,
    2.0**52 + 0.5,
    1e-310,
]


def numbers(type: Type) -> st.SearchStrategy[Any]:
    """Draw one number of a type."""
    if type.kind == "bool":
        return st.integers(0, 1)
    if type.is_float:
        every = st.one_of(st.sampled_from(_FLOATS), st.floats(width=type.bits), st.floats(-100, 100))
        return every.map(round_f32) if type.bits == 32 else every
    low, high = limits(type)
    edges = st.sampled_from([0, 1, low, low + 1, high, high - 1, max(low, -1), high // 2, 7])
    return st.one_of(edges, st.integers(low, high), st.integers(max(low, -20), 20))
