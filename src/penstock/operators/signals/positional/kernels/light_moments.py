"""Central moments with a mean of one float: half the work of `algorithms/monoids/moments.py`, for many rows.

In that file the mean is two floats, because each row updates it. Here states are only merged, in a tree of
logarithmic depth (Chan et al.): the error of a variance is some ulps times mean / deviation, to the first
power. The layout is the same, with 0 as the second float of the mean, so results are read in the same way.
"""

from __future__ import annotations

from penstock.algorithms.monoids import Monoid, StateField, Values
from penstock.algorithms.monoids.base import either, named
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import F64, I64, Value, const

LIGHT_MOMENTS = ("light_moments2", "light_moments3", "light_moments4")
_ZERO = const(0.0, F64)


def light_moments(order: int) -> Monoid:
    """Moments of one argument up to the 2nd, 3rd or 4th order."""
    return Monoid(
        f"light_moments{order}",
        (StateField(I64, 0), *(StateField(F64, 0.0) for _ in range(order + 1))),
        lambda k, state, values: _merge(k, state, _single(k, values[0], order)),
        _merge,
    )


def _single(k: KernelBuilder, value: Value, order: int) -> Values:
    """The state of one value: central moments are 0, or NaN if the value is not finite."""
    x = k.var("x", value.to(F64))
    return const(1, I64), x, _ZERO, *([k.var("nothing", x - x)] * (order - 1))


def _merge(k: KernelBuilder, a: Values, b: Values) -> Values:
    a, b = (*a[:2], _ZERO, *named(k, "a", a[3:])), (*b[:2], _ZERO, *named(k, "b", b[3:]))
    n = k.var("n", (a[0] + b[0]).to(F64))
    p, q = k.var("p", a[0].to(F64).div(n)), k.var("q", b[0].to(F64).div(n))
    weight = k.var("weight", a[0].to(F64) * q)
    far = k.var("far", b[1] - a[1])
    square = k.var("square", far * far)
    (a2, *a_more), (b2, *b_more) = a[3:], b[3:]
    new = [a2 + b2 + square * weight]
    if a_more:
        new.append(a_more[0] + b_more[0] + square * far * (weight * (p - q)) + far * (p * b2 - q * a2) * 3)
    if len(a_more) > 1:
        spread = square * square * (weight * (p * p - p * q + q * q))
        mixed = square * (p * p * b2 + q * q * a2) * 6 + far * (p * b_more[0] - q * a_more[0]) * 4
        new.append(a_more[1] + b_more[1] + spread + mixed)
    both = a[0] + b[0], a[1] + far * q, _ZERO, *new
    return either(a[0].eq(0), b, either(b[0].eq(0), a, both))
