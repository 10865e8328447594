"""Comparisons: numbers of any two types exactly, instants whatever their units, texts with literals."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from penstock.errors import UnsupportedError
from penstock.expr import nodes as ex
from penstock.kernels.cells import Cell, both, equal, less, negate
from penstock.loop.nodes import BOOL, F64, I64, I128, Value, const
from penstock.lower import calendar
from penstock.lower.machine import embeds, is_text
from penstock.lower.scope import Rule, Scope


def _comparison(test: Callable[[Value, Value], Value]) -> Rule:
    def lower(scope: Scope, call: ex.Call) -> Cell:
        left, right = (scope.type_of(arg) for arg in call.args)
        if is_text(left) or is_text(right):
            return _text_comparison(scope, call)
        a, b = (scope.lower(arg) for arg in call.args)
        x, y = _comparable(a.value, b.value, left, right)
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


def _comparable(a: Value, b: Value, left: pa.DataType, right: pa.DataType) -> tuple[Value, Value]:
    """Bring two values to one type, the smallest that holds both exactly (with a float: double)."""
    if calendar.is_temporal(left) and calendar.is_temporal(right):
        return _instants(a.to(I64), b.to(I64), left, right)
    if a.type == b.type:
        return a, b
    if a.type.is_float or b.type.is_float:
        return a.to(F64), b.to(F64)
    goal = I64 if embeds(a.type, I64) and embeds(b.type, I64) else I128
    return a.to(goal), b.to(goal)


def _instants(a: Value, b: Value, left: pa.DataType, right: pa.DataType) -> tuple[Value, Value]:
    up, down = calendar.finer(left, right), calendar.finer(right, left)
    return (a, b) if up == down == 1 else (a.to(I128) * up, b.to(I128) * down)


COMPARISON: dict[str, Rule] = {
    "eq": _comparison(equal),
    "ne": _comparison(lambda a, b: negate(equal(a, b))),
    "lt": _comparison(less),
    "gt": _comparison(lambda a, b: less(b, a)),
    "le": _comparison(lambda a, b: negate(less(b, a))),
    "ge": _comparison(lambda a, b: negate(less(a, b))),
}
