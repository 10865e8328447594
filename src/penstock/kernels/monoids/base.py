"""What a monoid is: a state, its content before any row, how a row enters, how two states join."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import Type, Value, Var, select

Values = tuple[Value, ...]
Combine = Callable[[KernelBuilder, Values, Values], Values]
Alone = Callable[[KernelBuilder, Values], Values]


@dataclass(frozen=True, slots=True)
class State:
    """One machine word (or more) of a pane's memory, and its content before any row."""

    type: Type
    identity: int | float


@dataclass(frozen=True)
class Prefix:
    """How the state of some rows follows from the states of all rows before their end, and before their start.

    `between(k, end, start)` gives it, and whether so much has been lost that it is not to be trusted.
    """

    states: tuple[State, ...]
    step: Combine
    between: Callable[[KernelBuilder, Values, Values], tuple[Values, Value]]


@dataclass(frozen=True)
class Hasty:
    """A cheaper monoid of the same rows, and whether a state of it may be wrong."""

    monoid: Monoid
    doubtful: Callable[[Values], Value]


@dataclass(frozen=True)
class Monoid:
    """An associative combination with an identity; commutative unless `ordered`.

    `step(k, state, values)` adds one row's arguments; `merge(k, a, b)` joins two states. Where rows can leave
    again, `remove(k, state, values)` undoes a step and `take(k, a, b)` undoes a merge: exactly, or they are not
    given, so sums of floats have neither. `in_chunk` is the monoid used inside one chunk of rows, where a
    cheaper state is exact enough: its total is stepped as one row's argument. `guarded` marks 64-bit integer
    sums, which `step` and `merge` let wrap: whoever adds to one asks first whether the result fits, and if not
    stops with NEED_WIDE, the sum untouched. `text` names the column whose interned codes are the state.
    `prefix` is there where states of neighbouring rows follow from those of all rows before them. `alone(k, values)` is
    the state of a single row where that costs less than a step from the identity. `hasty` is tried first where frames
    can be given once more.
    """

    name: str
    states: tuple[State, ...]
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
    ordered: bool = False  # rows enter, and states join, only in the order of rows: merge(older, newer)

    @property
    def invertible(self) -> bool:
        """Whether a row can be taken out again without a look at the others."""
        return self.remove is not None


def named(k: KernelBuilder, hint: str, values: Values) -> tuple[Var, ...]:
    """Give values names, so that what is used several times is computed once."""
    return tuple(k.var(hint, value) for value in values)


def either(condition: Value, a: Values, b: Values) -> Values:
    """The one state where a condition holds, the other elsewhere."""
    return tuple(select(condition, x, y) for x, y in zip(a, b, strict=True))


def two_sum(k: KernelBuilder, a: Value, b: Value) -> tuple[Var, Value]:
    """Add two floats: the rounded sum, and exactly what rounding lost, whichever is larger (Knuth)."""
    x = k.var("x", b)
    total = k.var("total", a + x)
    part = k.var("part", total - a)
    return total, (a - (total - part)) + (x - part)
