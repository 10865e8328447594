"""Value ranges of columns known without reading them, and whether a predicate can be true for any row.

A predicate is evaluated over *all values at once*: `possible` returns every outcome that some row could have. An
expression that is not understood may have any outcome, so data is skipped only if no row of it can pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial, reduce
from itertools import product

import pyarrow as pa

from penstock.expr import comparison
from penstock.expr.comparison import compare
from penstock.expr.nodes import Call, Column, Expr, IsIn, Literal, fold
from penstock.types.arrow import kind_of

Outcomes = frozenset[bool | None]

ANY: Outcomes = frozenset({True, False, None})
_SURE: Outcomes = frozenset({True, False})
_FLIPPED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}
_HOLDS: dict[str, Callable[[int], bool]] = {
    "eq": lambda order: order == 0,
    "ne": lambda order: order != 0,
    "lt": lambda order: order < 0,
    "le": lambda order: order <= 0,
    "gt": lambda order: order > 0,
    "ge": lambda order: order >= 0,
}


@dataclass(frozen=True, slots=True)
class Range:
    """The stored values of a column: between `low` and `high`, or null.

    `low` and `high` are both None if nothing is known; `empty` means that every value is null.
    NaN is outside any range and may always occur in addition: writers leave it out of statistics.
    """

    type: pa.DataType
    low: object = None
    high: object = None
    nulls: bool = True
    empty: bool = False


def may_pass(predicate: Expr | None, ranges: Mapping[str, Range]) -> bool:
    """Check whether some row could pass; False only if certainly none does.

    >>> from penstock.expr.nodes import Call, Column, Literal
    >>> above = Call("gt", (Column("v"), Literal(9, pa.int64())))
    >>> may_pass(above, {"v": Range(pa.int64(), 1, 5)}), may_pass(above, {"v": Range(pa.int64(), 1, 50)})
    (False, True)
    """
    return predicate is None or True in possible(predicate, ranges)


def possible(expr: Expr, ranges: Mapping[str, Range]) -> Outcomes:
    """Return the possible outcomes of a boolean expression."""
    return fold(expr, lambda node, parts: _outcomes(node, parts, ranges))


def _outcomes(expr: Expr, parts: tuple[Outcomes, ...], ranges: Mapping[str, Range]) -> Outcomes:
    match expr:
        case Literal(value=bool() | None as value):
            return frozenset({value})
        case Call("and"):
            return reduce(partial(_pairs, comparison.both), parts)
        case Call("or"):
            return reduce(partial(_pairs, comparison.either), parts)
        case Call("not"):
            return frozenset(None if part is None else not part for part in parts[0])
        case Call("is_null", (Column(name),)):
            return _null_test(ranges.get(name), when_null=True)
        case Call("is_not_null", (Column(name),)):
            return _null_test(ranges.get(name), when_null=False)
        case Call(function, (Column(name), Literal() as value)) if function in _HOLDS:
            return _compared(function, ranges.get(name), value)
        case Call(function, (Literal() as value, Column(name))) if function in _HOLDS:
            return _compared(_FLIPPED[function], ranges.get(name), value)
        case IsIn(Column(name), values):
            return _among(ranges.get(name), values)
        case Column(name):
            return _itself(ranges.get(name))
        case _:
            return ANY


def _pairs(joint: Callable[..., bool | None], left: Outcomes, right: Outcomes) -> Outcomes:
    return frozenset(joint(None, a, b) for a, b in product(left, right))


def _null_test(known: Range | None, when_null: bool) -> Outcomes:
    if known is None:
        return _SURE
    values = frozenset() if known.empty else frozenset({not when_null})
    return values | (frozenset({when_null}) if known.nulls else frozenset())


def _itself(known: Range | None) -> Outcomes:
    if known is None or kind_of(known.type) != "bool":
        return ANY
    return _compared("eq", known, Literal(True, pa.bool_()))


def _among(known: Range | None, values: Iterable[Literal]) -> Outcomes:
    """Return the outcomes of a membership test: true is possible if equality with one of the values is."""
    if known is None:
        return ANY
    equal = [_compared("eq", known, value) for value in values]
    return ANY if any(True in result for result in equal) else frozenset({False, None})


def _compared(function: str, known: Range | None, literal: Literal) -> Outcomes:
    """Compare with a constant. A null operand gives null, anything else the outcome by order."""
    if known is None:
        return ANY
    if literal.value is None or known.empty:
        return frozenset({None})
    nothing = frozenset({None}) if known.nulls else frozenset()
    if known.low is None or known.high is None or _is_nan(literal.value):
        return _SURE | nothing
    types = (known.type, literal.type)
    orders = _orders(compare(known.low, literal.value, types), compare(known.high, literal.value, types))
    if kind_of(known.type) == "float":
        orders |= {1}  # NaN sorts above every number
    return frozenset(_HOLDS[function](order) for order in orders) | nothing


def _orders(low: int, high: int) -> set[int]:
    """Return the possible orders of values between two bounds and a constant, from the orders of the bounds."""
    return set(range(low, high + 1)) if low <= high else {-1, 0, 1}


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)
