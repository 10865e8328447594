"""The monoid interface: states with identities, the step that adds a row, and the merge of two states."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import Type, Value, Var, select

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
