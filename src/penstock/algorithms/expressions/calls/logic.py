"""Three-valued logic, null tests, and choices among nullable values."""

from __future__ import annotations

from collections.abc import Callable

from penstock.algorithms.expressions.cells import Cell, both, is_nan, is_true, larger, negate, smaller
from penstock.algorithms.expressions.scope import Rule, Scope, choose
from penstock.expr import nodes as ex
from penstock.loop.nodes import BOOL, Value, const, select


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
