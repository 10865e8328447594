"""Presence, counts and sums: integers exact, floats compensated."""

from __future__ import annotations

import math

from penstock.kernels.monoids.base import Combine, Monoid, Prefix, State, Values, two_sum
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import BOOL, F64, I64, I128, U8, Type, Unary, Value, const


def present() -> Monoid:
    """Whether there was a row at all."""
    return Monoid(
        "present",
        (State(U8, 0),),
        lambda k, state, values: (const(1, U8),),
        lambda k, a, b: (a[0] | b[0],),
    )


def count() -> Monoid:
    """How many values. The value added is 1."""
    return Monoid(
        "count",
        (State(I64, 0),),
        lambda k, state, values: (state[0] + 1,),
        lambda k, a, b: (a[0] + b[0],),
        remove=lambda k, state, values: (state[0] - 1,),
        take=_difference,
        prefix=_exact_prefix(I64, lambda k, state, values: (state[0] + 1,)),
    )


def integer_sum(wide: bool) -> Monoid:
    """An exact sum of integers: in 128 bits, or in 64 as long as every addition is seen to fit."""
    goal = I128 if wide else I64
    return Monoid(
        "wide_sum" if wide else "sum",
        (State(goal, 0),),
        lambda k, state, values: (state[0] + values[0].to(goal),),
        lambda k, a, b: (a[0] + b[0],),
        remove=lambda k, state, values: (state[0] - values[0].to(goal),),
        take=_difference,
        guarded=not wide,
        prefix=_exact_prefix(goal, lambda k, state, values: (state[0] + values[0].to(goal),)),
    )


def _difference(k: KernelBuilder, a: Values, b: Values) -> Values:
    return (a[0] - b[0],)


def _exact_prefix(type: Type, step: Combine) -> Prefix:
    return Prefix(
        (State(type, 0),), step, lambda k, end, start: (_difference(k, end, start), const(False, BOOL))
    )


def float_sum() -> Monoid:
    """A compensated sum (Neumaier): the second word collects what rounding lost.

    Once a value is not finite the compensation is NaN; readers then use the first word alone.
    """
    return Monoid(
        "float_sum",
        (State(F64, 0.0), State(F64, 0.0)),
        _compensated,
        _join_compensated,
        in_chunk=_plain_float_sum(),
        alone=lambda k, values: (values[0].to(F64), const(0.0, F64)),
        prefix=Prefix((State(F64, 0.0),) * 3, _sized, _between),
    )


# Of rows whose values add up to less than this part of all before them in size, a difference of prefixes may
# have lost too much: a prefix of n rows is off by (n u)^2 of their size, which is 1e-21 for half a million.
_TRUSTED = 1e-8


def _sized(k: KernelBuilder, state: Values, values: Values) -> Values:
    """A compensated sum, and the sum of absolute values."""
    x = k.var("x", values[0].to(F64))
    return *_compensated(k, state[:2], (x,)), state[2] + Unary("abs", x)


def _between(k: KernelBuilder, end: Values, start: Values) -> tuple[Values, Value]:
    """Subtract both words; nothing is lost of rows that there are none of, nor trusted that is not finite."""
    size = k.var("size", end[2] - start[2])
    trusted = (size >= end[2] * _TRUSTED) & (end[2] < math.inf)
    return (end[0] - start[0], end[1] - start[1]), ~trusted


def _plain_float_sum() -> Monoid:
    return Monoid(
        "plain_float_sum",
        (State(F64, 0.0),),
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
