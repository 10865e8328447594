"""Comparisons of numbers, instants and texts; three-valued logic, null tests, and choices among nullable values."""

from __future__ import annotations

import math
from collections.abc import Callable

import pyarrow as pa

from penstock.algorithms.expressions import calendar, decimals
from penstock.algorithms.expressions.cells import (
    Cell,
    Rule,
    Scope,
    both,
    choose,
    equal,
    is_nan,
    is_true,
    larger,
    less,
    negate,
    smaller,
)
from penstock.errors import UnsupportedError
from penstock.expr import nodes as ex
from penstock.expr.decimals import is_exact
from penstock.loop import numbers
from penstock.loop.nodes import BOOL, F32, F64, I32, I64, I128, Literal, Type, Value, const, select
from penstock.loop.numbers import embeds, is_text

_EXACT = 1 << 53  # below it, no two integers convert to the same double


def _comparison(test: Callable[[Value, Value], Value]) -> Rule:
    def lower(scope: Scope, call: ex.Call) -> Cell:
        left, right = (scope.type_of(arg) for arg in call.args)
        if is_text(left) or is_text(right):
            return _text_comparison(scope, call)
        a, b = (scope.lower(arg) for arg in call.args)
        if is_exact(left) and is_exact(right):
            x, y = decimals.aligned(scope, a.value, b.value, (left, right))
        else:
            x, y = _comparable(scope, a.value, b.value, left, right)
        return Cell(test(x, y), both(a, b))

    return lower


def _text_comparison(scope: Scope, call: ex.Call) -> Cell:
    column, literal = call.args if isinstance(call.args[0], ex.Column) else reversed(call.args)
    if not (isinstance(column, ex.Column) and isinstance(literal, ex.Literal)):
        raise UnsupportedError("kernels compare text columns with literals only")
    if literal.value is None:
        return Cell(const(False, BOOL), const(False, BOOL))
    found = scope.text_equals(column.name, str(literal.value))
    return found if call.function == "eq" else Cell(negate(found.value), found.valid)


def _comparable(
    scope: Scope, a: Value, b: Value, left: pa.DataType, right: pa.DataType
) -> tuple[Value, Value]:
    """Convert two values to one type, the smallest that holds both exactly (with a float: double)."""
    if calendar.is_temporal(left) and calendar.is_temporal(right):
        return _instants(scope, a, b, left, right)
    a, b = _like(scope, a, b.type), _like(scope, b, a.type)
    if a.type == b.type:
        return a, b
    if a.type.is_float or b.type.is_float:
        return a.to(F64), b.to(F64)
    goal = I64 if embeds(a.type, I64) and embeds(b.type, I64) else I128
    return a.to(goal), b.to(goal)


def _like(scope: Scope, value: Value, type: Type) -> Value:
    """Convert a literal to the type it is compared with, if the result is the same: columns then need no conversion."""
    if not isinstance(value, Literal) or type in (value.type, BOOL):
        return value
    number = value.value
    if type.is_float:
        single = numbers.round_f32(float(number)) if type.bits == F32.bits else float(number)
        return scope.k.literal(single, type) if single == number else value
    whole = math.isfinite(number) and number == int(number) and numbers.fits(int(number), type)
    # A large double may be the nearest one to several 64-bit integers.
    same = value.type.kind != "float" or type.bits <= I32.bits or abs(number) < _EXACT
    return scope.k.literal(int(number), type) if whole and same else value


def _instants(scope: Scope, a: Value, b: Value, left: pa.DataType, right: pa.DataType) -> tuple[Value, Value]:
    up, down = calendar.finer(left, right), calendar.finer(right, left)
    x, y = (
        scope.scaled(value, factor) if factor > 1 else value.to(I64) for value, factor in ((a, up), (b, down))
    )
    return (x, y) if x.type == y.type else (x.to(I128), y.to(I128))


COMPARISON_CALLS: dict[str, Rule] = {
    "eq": _comparison(equal),
    "ne": _comparison(lambda a, b: negate(equal(a, b))),
    "lt": _comparison(less),
    "gt": _comparison(lambda a, b: less(b, a)),
    "le": _comparison(lambda a, b: negate(less(b, a))),
    "ge": _comparison(lambda a, b: negate(less(a, b))),
}


def _of_many(combine: Callable[[Cell, Cell], Cell]) -> Rule:
    """The lowering of an associative function of any number of operands."""

    def lower(scope: Scope, call: ex.Call) -> Cell:
        result, *others = [scope.lower(arg) for arg in call.args]
        for other in others[:-1]:
            result = scope.bind(combine(result, other))
        return combine(result, others[-1])

    return lower


def _conjunction(a: Cell, b: Cell) -> Cell:
    """Kleene and: false dominates null."""
    present = both(a, b)
    if present is None:
        return Cell(a.value & b.value)
    return Cell(is_true(a) & is_true(b), (_is_false(a) | _is_false(b)) | present)


def _disjunction(a: Cell, b: Cell) -> Cell:
    """Kleene or: true dominates null."""
    present = both(a, b)
    if present is None:
        return Cell(a.value | b.value)
    sure = is_true(a) | is_true(b)
    return Cell(sure, sure | present)


def _is_false(cell: Cell) -> Value:
    value = negate(cell.value)
    return value if cell.valid is None else value & cell.valid


def _exclusive_or(scope: Scope, call: ex.Call) -> Cell:
    a, b = (scope.lower(arg) for arg in call.args)
    return Cell(a.value ^ b.value, both(a, b))


def _not(scope: Scope, call: ex.Call) -> Cell:
    a = scope.lower(call.args[0])
    return Cell(negate(a.value), a.valid)


def _is_null(scope: Scope, call: ex.Call) -> Cell:
    valid = scope.valid(call.args[0])
    return Cell(const(False, BOOL) if valid is None else negate(valid))


def _is_not_null(scope: Scope, call: ex.Call) -> Cell:
    valid = scope.valid(call.args[0])
    return Cell(const(True, BOOL) if valid is None else valid)


def _is_nan(scope: Scope, call: ex.Call) -> Cell:
    a = scope.lower(call.args[0])
    value = is_nan(a.value) if a.value.type.is_float else const(False, BOOL)
    return Cell(value, a.valid)


def _coalesce(scope: Scope, call: ex.Call) -> Cell:
    dtype = scope.type_of(call)
    result = scope.lower_as(call.args[-1], dtype)
    for arg in reversed(call.args[:-1]):
        cell = scope.lower_as(arg, dtype)
        result = cell if cell.valid is None else scope.bind(choose(cell.valid, cell, result))
    return result


def _extreme(pick: Callable[[Value, Value], Value]) -> Rule:
    """The lowering of `least` and `greatest`, which skip nulls."""

    def lower(scope: Scope, call: ex.Call) -> Cell:
        dtype = scope.type_of(call)
        result = scope.lower_as(call.args[0], dtype)
        for arg in call.args[1:]:
            result = scope.bind(_pick_present(pick, result, scope.lower_as(arg, dtype)))
        return result

    return lower


def _pick_present(pick: Callable[[Value, Value], Value], a: Cell, b: Cell) -> Cell:
    best = pick(a.value, b.value)
    match a.valid, b.valid:
        case None, None:
            return Cell(best)
        case None, Value() as there:
            return Cell(select(there, best, a.value))
        case Value() as there, None:
            return Cell(select(there, best, b.value))
        case Value() as one, Value() as other:
            return Cell(select(one & other, best, select(one, a.value, b.value)), one | other)
    raise AssertionError("a validity is a value or None")


LOGIC: dict[str, Rule] = {
    "and": _of_many(_conjunction),
    "or": _of_many(_disjunction),
    "xor": _exclusive_or,
    "not": _not,
    "is_null": _is_null,
    "is_not_null": _is_not_null,
    "is_nan": _is_nan,
    "fill_null": _coalesce,
    "least": _extreme(smaller),
    "greatest": _extreme(larger),
}
