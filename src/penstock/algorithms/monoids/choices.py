"""Monoids that choose one row's value: by the extreme of another column (min_by, max_by), or by time (first, last).

The choice follows a total order of rows, so it is independent of the order in which rows are added.
"""

from __future__ import annotations

from penstock.algorithms.expressions.cells import equal, less
from penstock.algorithms.monoids.base import Monoid, StateField, Values, either, named
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import I64, U8, Type, Value, const
from penstock.loop.numbers import limits


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
