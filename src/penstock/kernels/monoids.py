"""The algebra of aggregates as data: state, identity, how to add a value, how to merge two states.

A *monoid* is what a pane remembers about its rows. Everything else (which window type, how keys are
found, which algorithm slides) only calls `step` and `merge`, and reads the flags; never a name.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from penstock.kernels.cells import larger, smaller
from penstock.kernels.text import comes_before
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import F64, I32, I64, I128, U8, Type, Value, const, select
from penstock.loop.numbers import limits

Values = tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class State:
    """One machine word (or more) of a pane's memory, and its content before any row."""

    type: Type
    identity: int | float


@dataclass(frozen=True)
class Monoid:
    """An associative, commutative combination with an identity.

    `step(k, state, values)` adds one row's arguments; `merge(k, a, b)` joins two states. `in_chunk` is the monoid
    used inside one chunk of rows, where a cheaper state is exact enough: its total is stepped as one
    row's argument. `guarded` marks 64-bit integer sums, which `step` and `merge` let wrap: whoever adds to one
    asks first whether the result fits, and if not stops with NEED_WIDE, the sum untouched. `text` names
    the column whose interned codes are the state.
    """

    name: str
    states: tuple[State, ...]
    step: Callable[[KernelBuilder, Values, Values], Values]
    merge: Callable[[KernelBuilder, Values, Values], Values]
    invertible: bool = False
    in_chunk: Monoid | None = None
    guarded: bool = False
    text: str | None = None


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
        invertible=True,
    )


def integer_sum(wide: bool) -> Monoid:
    """An exact sum of integers: in 128 bits, or in 64 as long as every addition is seen to fit."""
    goal = I128 if wide else I64
    return Monoid(
        "wide_sum" if wide else "sum",
        (State(goal, 0),),
        lambda k, state, values: (state[0] + values[0].to(goal),),
        lambda k, a, b: (a[0] + b[0],),
        invertible=True,
        guarded=not wide,
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
    )


def _plain_float_sum() -> Monoid:
    return Monoid(
        "plain_float_sum",
        (State(F64, 0.0),),
        lambda k, state, values: (state[0] + values[0].to(F64),),
        lambda k, a, b: (a[0] + b[0],),
    )


def _compensated(k: KernelBuilder, state: Values, values: Values) -> Values:
    total, lost = state
    x = k.var("x", values[0].to(F64))
    new = k.var("total", total + x)
    part = k.var("part", new - total)  # Knuth's two-sum: exact whichever operand is larger
    error = (total - (new - part)) + (x - part)
    return new, lost + error


def _join_compensated(k: KernelBuilder, a: Values, b: Values) -> Values:
    total, lost = _compensated(k, a, b[:1])
    return total, lost + b[1]


def least(type: Type) -> Monoid:
    """The smallest value; NaN is the greatest of all, so it is the identity."""
    identity = math.nan if type.is_float else limits(type)[1]
    return Monoid(
        "least",
        (State(type, identity),),
        lambda k, state, values: (smaller(state[0], values[0].to(type)),),
        lambda k, a, b: (smaller(a[0], b[0]),),
    )


def greatest(type: Type) -> Monoid:
    """The largest value, NaN above all others."""
    identity = -math.inf if type.is_float else limits(type)[0]
    return Monoid(
        "greatest",
        (State(type, identity),),
        lambda k, state, values: (larger(state[0], values[0].to(type)),),
        lambda k, a, b: (larger(a[0], b[0]),),
    )


def text_extreme(column: str, largest: bool) -> Monoid:
    """The first or last text of a column in the order of bytes. The state is its code, -1 for none."""

    def pick(k: KernelBuilder, state: Values, values: Values) -> Values:
        code = k.var("code", values[0].to(I32))
        old = k.var("old_code", state[0])
        first, second = (old, code) if largest else (code, old)
        better = comes_before(k, column, first, second)
        takes = (old < 0) | ((code >= 0) & better)
        return (select(takes, code, old),)

    return Monoid(
        "last_text" if largest else "first_text",
        (State(I32, -1),),
        pick,
        pick,
        text=column,
    )
