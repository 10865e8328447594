"""Presence, counts and sums: integers exact, floats compensated."""

from __future__ import annotations

import math

from penstock.algorithms.monoids.base import Combine, Monoid, Prefix, StateField, Values, two_sum
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import BOOL, F64, I64, I128, U8, Binary, Type, Unary, Value, const


def present() -> Monoid:
    """Whether there was any row."""
    return Monoid(
        "present",
        (StateField(U8, 0),),
        lambda k, state, values: (const(1, U8),),
        lambda k, a, b: (a[0] | b[0],),
    )


def count() -> Monoid:
    """The number of values. The value added is 1."""
    return Monoid(
        "count",
        (StateField(I64, 0),),
        lambda k, state, values: (state[0] + 1,),
        lambda k, a, b: (a[0] + b[0],),
        remove=lambda k, state, values: (state[0] - 1,),
        take=_difference,
        prefix=_exact_prefix(I64, lambda k, state, values: (state[0] + 1,)),
    )


def integer_sum(wide: bool) -> Monoid:
    """An exact sum of integers: in 128 bits, or in 64 bits with a check of every addition."""
    goal = I128 if wide else I64
    return Monoid(
        "wide_sum" if wide else "sum",
        (StateField(goal, 0),),
        lambda k, state, values: (state[0] + values[0].to(goal),),
        lambda k, a, b: (a[0] + b[0],),
        remove=lambda k, state, values: (state[0] - values[0].to(goal),),
        take=_difference,
        guarded=not wide,
        prefix=_exact_prefix(goal, lambda k, state, values: (state[0] + values[0].to(goal),)),
    )


def long_sum() -> Monoid:
    """An exact sum of 128-bit integers: of their upper words, and of their lower ones, each in 128 bits."""
    return Monoid(
        "long_sum",
        (StateField(I128, 0), StateField(I128, 0)),
        lambda k, state, values: _each(k, "add", state, _halves(k, values[0])),
        lambda k, a, b: _each(k, "add", a, b),
        remove=lambda k, state, values: _each(k, "sub", state, _halves(k, values[0])),
        take=lambda k, a, b: _each(k, "sub", a, b),
    )


def _halves(k: KernelBuilder, value: Value) -> Values:
    whole = k.var("whole", value.to(I128))
    return Binary("shr", whole, const(64, I128)), Binary("and", whole, const((1 << 64) - 1, I128))


def _each(k: KernelBuilder, op: str, a: Values, b: Values) -> Values:
    return tuple(Binary(op, x, y) for x, y in zip(a, b, strict=True))


def _difference(k: KernelBuilder, a: Values, b: Values) -> Values:
    return (a[0] - b[0],)


def _exact_prefix(type: Type, step: Combine) -> Prefix:
    return Prefix(
        (StateField(type, 0),), step, lambda k, end, start: (_difference(k, end, start), const(False, BOOL))
    )


def float_sum() -> Monoid:
    """A compensated sum (Neumaier): the second word accumulates the rounding errors.

    After a value that is not finite, the compensation is NaN; readers then use only the first word.
    """
    return Monoid(
        "float_sum",
        (StateField(F64, 0.0), StateField(F64, 0.0)),
        _compensated,
        _join_compensated,
        in_chunk=_plain_float_sum(),
        alone=lambda k, values: (values[0].to(F64), const(0.0, F64)),
        prefix=Prefix((StateField(F64, 0.0),) * 3, _sized, _between),
    )


# If the absolute values in a range sum to less than this fraction of the prefix, the difference may have lost too much
# precision: the error of a prefix of n rows is (n u)^2 of its absolute sum, which is 1e-21 for half a million rows.
_TRUSTED = 1e-8


def _sized(k: KernelBuilder, state: Values, values: Values) -> Values:
    """Add a value to a compensated sum and to the sum of absolute values."""
    x = k.var("x", values[0].to(F64))
    return *_compensated(k, state[:2], (x,)), state[2] + Unary("abs", x)


def _between(k: KernelBuilder, end: Values, start: Values) -> tuple[Values, Value]:
    """Subtract both words. The result is unreliable if the range is small against the prefix, or not finite."""
    size = k.var("size", end[2] - start[2])
    trusted = (size >= end[2] * _TRUSTED) & (end[2] < math.inf)
    return (end[0] - start[0], end[1] - start[1]), ~trusted


def _plain_float_sum() -> Monoid:
    return Monoid(
        "plain_float_sum",
        (StateField(F64, 0.0),),
        lambda k, state, values: (state[0] + values[0].to(F64),),
        lambda k, a, b: (a[0] + b[0],),
        alone=lambda k, values: (values[0].to(F64),),
    )


def _compensated(k: KernelBuilder, state: Values, values: Values) -> Values:
    total, lost = state
    new, error = two_sum(k, total, values[0].to(F64))
    return new, lost + error


def _join_compensated(k: KernelBuilder, a: Values, b: Values) -> Values:
    total, lost = _compensated(k, a, b[:1])
    return total, lost + b[1]
