"""The monoid interface, and monoids that count, add, and choose a value: the extreme, the first, the last.

The choice follows a total order of rows, so it is independent of the order in which rows are added.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from penstock.algorithms.expressions.cells import equal, larger, less, smaller
from penstock.algorithms.hash_table.text_kernels import comes_before
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import (
    BOOL,
    F64,
    I32,
    I64,
    I128,
    U8,
    Binary,
    Type,
    Unary,
    Value,
    Var,
    const,
    minimum,
    select,
)
from penstock.loop.numbers import limits

Values = tuple[Value, ...]
Combine = Callable[[KernelBuilder, Values, Values], Values]
Alone = Callable[[KernelBuilder, Values], Values]


@dataclass(frozen=True, slots=True)
class StateField:
    """One accumulator field of a pane: its machine type and its value before any row."""

    type: Type
    identity: int | float


@dataclass(frozen=True)
class Prefix:
    """Prefix aggregation: the state of a range of rows follows from the prefix states at its end and start.

    `between(k, end, start)` returns that state, and whether the loss of precision makes it unreliable.
    """

    states: tuple[StateField, ...]
    step: Combine
    between: Callable[[KernelBuilder, Values, Values], tuple[Values, Value]]


@dataclass(frozen=True)
class Hasty:
    """A cheaper monoid for the same rows, and a test whether its state may be wrong."""

    monoid: Monoid
    doubtful: Callable[[Values], Value]


@dataclass(frozen=True)
class Monoid:
    """An associative combination with an identity; commutative unless `ordered`.

    `step(k, state, values)` adds one row's arguments; `merge(k, a, b)` merges two states. `remove(k, state, values)`
    undoes a step and `take(k, a, b)` undoes a merge. Both are exact or None, so float sums have neither. `in_chunk` is
    the monoid used within one chunk of rows, where a cheaper state is exact enough; its total is then stepped as one
    row's argument. `guarded` marks 64-bit integer sums, which wrap in `step` and `merge`: the caller checks beforehand
    whether the result fits, and otherwise stops with NEED_WIDE and leaves the sum unchanged. `text` names the column
    whose interned codes are the state. `prefix` is set if prefix differences work. `alone(k, values)` is the state of a
    single row, if that is cheaper than a step from the identity. `hasty` is used first if frames can be recomputed.
    """

    name: str
    states: tuple[StateField, ...]
    step: Combine
    merge: Combine
    remove: Combine | None = None
    take: Combine | None = None
    in_chunk: Monoid | None = None
    guarded: bool = False
    text: str | None = None
    prefix: Prefix | None = None
    alone: Alone | None = None
    hasty: Hasty | None = None
    ordered: bool = False  # steps and merges must follow row order: merge(older, newer)

    @property
    def invertible(self) -> bool:
        """Whether a row can be subtracted without rereading the other rows."""
        return self.remove is not None


def named(k: KernelBuilder, hint: str, values: Values) -> tuple[Var, ...]:
    """Bind values to variables, so that each is computed once."""
    return tuple(k.var(hint, value) for value in values)


def either(condition: Value, a: Values, b: Values) -> Values:
    """Select state `a` if a condition holds, else `b`."""
    return tuple(select(condition, x, y) for x, y in zip(a, b, strict=True))


def two_sum(k: KernelBuilder, a: Value, b: Value) -> tuple[Var, Value]:
    """Add two floats of any magnitude: the rounded sum, and its exact rounding error (Knuth)."""
    x = k.var("x", b)
    total = k.var("total", a + x)
    part = k.var("part", total - a)
    return total, (a - (total - part)) + (x - part)


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


def extreme_by(value: Type, by: Type, largest: bool) -> Monoid:
    """Choose the value of the row with the smallest or largest `by`; of several the smallest value, nulls last.

    A row's arguments are (value, by, value is valid). The state's first field is whether there was a row.
    """

    def pick(k: KernelBuilder, a: Values, b: Values) -> Values:
        a, b = named(k, "a", a), named(k, "b", b)
        better = less(a[1], b[1]) if largest else less(b[1], a[1])
        ties = equal(a[1], b[1]) & _value_first(b[2:], a[2:])
        return either(a[0].eq(0) | (b[0].ne(0) & (better | ties)), b, a)

    return Monoid(
        "greatest_by" if largest else "least_by",
        (StateField(U8, 0), StateField(by, 0), StateField(value, 0), StateField(U8, 0)),
        lambda k, state, row: pick(k, state, (const(1, U8), row[1].to(by), row[0].to(value), row[2].to(U8))),
        pick,
    )


def _value_first(a: Values, b: Values) -> Value:
    """Return whether one (value, valid) sorts before another."""
    return a[1].ne(0) & (b[1].eq(0) | less(a[0], b[0]))


def first_or_last(value: Type, last: bool) -> Monoid:
    """Choose the value of the first or last row by time, then position; it may be null.

    A row's arguments are (value, value is valid, time, position). The identity has the extreme time, and a position
    that no row has.
    """
    far = limits(I64)[0 if last else 1]

    def pick(k: KernelBuilder, a: Values, b: Values) -> Values:
        a, b = named(k, "a", a), named(k, "b", b)
        return either(_before(a, b) if last else _before(b, a), b, a)

    return Monoid(
        "last" if last else "first",
        (StateField(I64, far), StateField(I64, far), StateField(value, 0), StateField(U8, 0)),
        lambda k, state, row: pick(k, state, (row[2], row[3], row[0].to(value), row[1].to(U8))),
        pick,
    )


def _before(a: Values, b: Values) -> Value:
    return (a[0] < b[0]) | (a[0].eq(b[0]) & (a[1] < b[1]))
