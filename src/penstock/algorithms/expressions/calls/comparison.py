"""Comparisons: numbers of any two types exactly, instants in any units, texts with literals."""

from __future__ import annotations

import math
from collections.abc import Callable

import pyarrow as pa

from penstock.algorithms.expressions import calendar
from penstock.algorithms.expressions.calls import decimals
from penstock.algorithms.expressions.cells import Cell, both, equal, less, negate
from penstock.algorithms.expressions.scope import Rule, Scope
from penstock.errors import UnsupportedError
from penstock.expr import nodes as ex
from penstock.expr.decimals import is_exact
from penstock.loop import numbers
from penstock.loop.machine import embeds, is_text
from penstock.loop.nodes import BOOL, F32, F64, I32, I64, I128, Literal, Type, Value, const

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
