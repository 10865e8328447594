"""Nullable values inside kernels: a value with its validity, and comparisons in a total order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.loop.nodes import BOOL, Const, Literal, Unary, Value, const, select


@dataclass(frozen=True, slots=True)
class Cell:
    """A value and its validity. `valid` is None if the value is never null; no null check is then generated."""

    value: Value
    valid: Value | None = None


def both(*cells: Cell) -> Value | None:
    """Return the validity of a result that is null if any operand is null."""
    masks = [cell.valid for cell in cells if cell.valid is not None]
    if not masks:
        return None
    result = masks[0]
    for mask in masks[1:]:
        if mask != result:
            result = result & mask
    return result


def is_true(cell: Cell) -> Value:
    """Return a predicate's value for a filter: null is false."""
    return cell.value if cell.valid is None else cell.value & cell.valid


def narrow(valid: Value | None, also: Value) -> Value:
    """Restrict a validity by a further condition."""
    return also if valid is None else valid & also


def conjunction(a: Value | None, b: Value | None) -> Value | None:
    """Return the conjunction of two conditions; None means always true."""
    return b if a is None else a if b is None else a & b


def disjunction(conditions: Sequence[Value]) -> Value | None:
    """Return the disjunction of conditions, nested as little as possible; None if there are none."""
    found = list(conditions)
    while len(found) > 1:
        pairs = [one | other for one, other in zip(found[::2], found[1::2], strict=False)]
        found = pairs + found[2 * len(pairs) :]
    return found[0] if found else None


def is_nan(value: Value) -> Value:
    return value.ne(value)


def _surely_not_nan(value: Value) -> bool:
    return isinstance(value, Const | Literal) and not math.isnan(value.value)


def less(a: Value, b: Value) -> Value:
    """Return a < b in the total order in which NaN is the greatest value and equals itself."""
    if not a.type.is_float:
        return a < b
    if _surely_not_nan(b):
        return a < b
    if _surely_not_nan(a):
        return ~(b <= a)
    return (a < b) | (is_nan(b) & a.eq(a))


def equal(a: Value, b: Value) -> Value:
    """Return a = b in the same order."""
    if not a.type.is_float or _surely_not_nan(a) or _surely_not_nan(b):
        return a.eq(b)
    return a.eq(b) | (is_nan(a) & is_nan(b))


def smaller(a: Value, b: Value) -> Value:
    """Return the smaller of two values in that order, the first of equals.

    The first select is one vector instruction. Its result is NaN only if the other value is the correct one.
    """
    chosen = select(b < a, b, a)
    if not a.type.is_float or _surely_not_nan(a):
        return chosen
    return select(is_nan(chosen), b, chosen)


def larger(a: Value, b: Value) -> Value:
    """Return the larger of two values in that order, the first of equals."""
    chosen = select(a < b, b, a)
    if not b.type.is_float or _surely_not_nan(b):
        return chosen
    return select(is_nan(b), b, chosen)


def negate(value: Value) -> Value:
    return const(not value.value, BOOL) if isinstance(value, Const) else Unary("not", value)
