"""Minimum and maximum monoids, for numbers and strings."""

from __future__ import annotations

import math

from penstock.algorithms.expressions.cells import larger, smaller
from penstock.algorithms.hash_table.text_kernels import comes_before
from penstock.algorithms.monoids.base import Hasty, Monoid, StateField, Values
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import I32, Type, minimum, select
from penstock.loop.numbers import limits


def least(type: Type) -> Monoid:
    """The minimum. NaN is the greatest value, so it is the identity."""
    identity = math.nan if type.is_float else limits(type)[1]
    return Monoid(
        "least",
        (StateField(type, identity),),
        lambda k, state, values: (smaller(state[0], values[0].to(type)),),
        lambda k, a, b: (smaller(a[0], b[0]),),
        alone=lambda k, values: (values[0].to(type),),
        hasty=_least_number(type) if type.is_float else None,
    )


def _least_number(type: Type) -> Hasty:
    """The minimum without NaN, one vector instruction; an infinite result is doubtful, since it may mean no value."""
    monoid = Monoid(
        "least_number",
        (StateField(type, math.inf),),
        lambda k, state, values: (minimum(values[0].to(type), state[0]),),
        lambda k, a, b: (minimum(b[0], a[0]),),
    )
    return Hasty(monoid, lambda state: state[0].eq(math.inf))


def greatest(type: Type) -> Monoid:
    """The maximum. NaN is the greatest value."""
    identity = -math.inf if type.is_float else limits(type)[0]
    return Monoid(
        "greatest",
        (StateField(type, identity),),
        lambda k, state, values: (larger(state[0], values[0].to(type)),),
        lambda k, a, b: (larger(a[0], b[0]),),
        alone=lambda k, values: (values[0].to(type),),
    )


def text_extreme(column: str, largest: bool) -> Monoid:
    """The first or last string of a column in byte order. The state is its code, or -1 for none."""

    def pick(k: KernelBuilder, state: Values, values: Values) -> Values:
        code = k.var("code", values[0].to(I32))
        old = k.var("old_code", state[0])
        first, second = (old, code) if largest else (code, old)
        better = comes_before(k, column, first, second)
        takes = (old < 0) | ((code >= 0) & better)
        return (select(takes, code, old),)

    return Monoid(
        "last_text" if largest else "first_text",
        (StateField(I32, -1),),
        pick,
        pick,
        text=column,
    )
