"""Arithmetic: exact integers that report what does not fit, floats as IEEE 754 has them."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from penstock.expr import nodes as ex
from penstock.kernels.cells import Cell, both, narrow
from penstock.loop.nodes import (
    BOOL,
    F64,
    I64,
    I128,
    Binary,
    Const,
    Overflows,
    Type,
    Unary,
    Value,
    const,
    select,
)
from penstock.loop.numbers import limits
from penstock.lower import calendar
from penstock.lower.machine import embeds
from penstock.lower.scope import Rule, Scope


def _arithmetic(op: str) -> Rule:
    def lower(scope: Scope, call: ex.Call) -> Cell:
        dtype = scope.type_of(call)
        if calendar.is_temporal(dtype):
            return _temporal(op, scope, call, dtype)
        goal = scope.machine_of(call)
        a, b = (scope.lower(arg) for arg in call.args)
        valid = both(a, b)
        if goal.is_float:
            return Cell(Binary(op, a.value.to(goal), b.value.to(goal)), valid)
        return _exact(scope, op, a.value, b.value, goal, valid)

    return lower


def _exact(scope: Scope, op: str, a: Value, b: Value, goal: Type, valid: Value | None) -> Cell:
    """Integer arithmetic that reports what does not fit; operands of the other signedness go wide."""
    if not (embeds(a.type, goal) and embeds(b.type, goal)):
        wide = scope.k.var("wide", Binary(op, a.to(I128), b.to(I128)))
        return scope.narrowed(Cell(wide, valid), goal)
    x, y = a.to(goal), b.to(goal)
    if not _never_overflows(op, a.type, b.type, goal):
        scope.fail(narrow(valid, Overflows(op, x, y)))
    return Cell(Binary(op, x, y), valid)


def _never_overflows(op: str, a: Type, b: Type, goal: Type) -> bool:
    spare = goal.bits - 1 if goal.kind == "int" else goal.bits
    if op == "mul":
        return a.bits + b.bits <= spare
    return max(a.bits, b.bits) < spare and not (goal.kind == "uint" and op == "sub")


def _temporal(op: str, scope: Scope, call: ex.Call, dtype: pa.DataType) -> Cell:
    a, b = (_in_unit_of(scope, arg, dtype) for arg in call.args)
    return _exact(scope, op, a.value, b.value, I64, both(a, b))


def _in_unit_of(scope: Scope, arg: ex.Expr, dtype: pa.DataType) -> Cell:
    cell = scope.lower(arg)
    return Cell(calendar.scaled(cell.value.to(I64), calendar.finer(scope.type_of(arg), dtype)), cell.valid)


# --- division ---------------------------------------------------------------------------------------------


def _divide(scope: Scope, call: ex.Call) -> Cell:
    a, b = (scope.lower(arg) for arg in call.args)
    return Cell(a.value.to(F64).div(b.value.to(F64)), both(a, b))


def _floordiv(scope: Scope, call: ex.Call) -> Cell:
    goal = scope.machine_of(call)
    a, b = (scope.lower(arg) for arg in call.args)
    if goal.is_float:
        return Cell(Unary("floor", a.value.to(F64).div(b.value.to(F64))), both(a, b))
    return _integer_division(scope, a, b, goal, calendar.floor_div)


def _modulo(scope: Scope, call: ex.Call) -> Cell:
    goal = scope.machine_of(call)
    a, b = (scope.lower(arg) for arg in call.args)
    if not goal.is_float:
        return _integer_division(scope, a, b, goal, calendar.floor_mod)
    x, y = scope.k.var("x", a.value.to(F64)), scope.k.var("y", b.value.to(F64))
    rest = scope.k.var("rest", x.rem(y))
    wrong_sign = rest.ne(0.0) & ((rest < 0.0) ^ (y < 0.0))
    return Cell(select(wrong_sign, rest + y, rest), both(a, b))


def _quotient(scope: Scope, call: ex.Call) -> Cell:
    a, b = (scope.lower(arg) for arg in call.args)
    return _integer_division(scope, a, b, scope.machine_of(call), _truncating)


def _remainder(scope: Scope, call: ex.Call) -> Cell:
    goal = scope.machine_of(call)
    a, b = (scope.lower(arg) for arg in call.args)
    if goal.is_float:
        return Cell(a.value.to(F64).rem(b.value.to(F64)), both(a, b))
    return _integer_division(scope, a, b, goal, lambda x, y: x.rem(y))


def _truncating(x: Value, y: Value) -> Value:
    return x.div(y)


def _integer_division(
    scope: Scope, a: Cell, b: Cell, goal: Type, op: Callable[[Value, Value], Value]
) -> Cell:
    """Divide, rounding as `op` does; by zero there is no result, so it is null."""
    inside = goal if embeds(a.value.type, goal) and embeds(b.value.type, goal) else I128
    x, y = scope.k.var("x", a.value.to(inside)), scope.k.var("y", b.value.to(inside))
    present = both(a, b)
    valid = present if isinstance(y, Const) and y.value else narrow(present, y.ne(0))
    result = op(x, y)
    if inside == I128:
        return scope.narrowed(Cell(scope.k.var("wide", result), valid), goal)
    if goal.kind == "int":
        # Only the quotient of the smallest integer by -1 overflows; its remainder is 0.
        divides = const(op in (calendar.floor_div, _truncating), BOOL)
        scope.fail(narrow(valid, y.eq(-1) & x.eq(limits(goal)[0]) & divides))
    return Cell(result, valid)


# --- one operand, and powers ------------------------------------------------------------------------------


def _power(scope: Scope, call: ex.Call) -> Cell:
    a, b = (scope.lower(arg) for arg in call.args)
    return Cell(Binary("pow", a.value.to(F64), b.value.to(F64)), both(a, b))


def _negation(scope: Scope, call: ex.Call) -> Cell:
    goal = scope.machine_of(call)
    a = scope.lower(call.args[0])
    if goal.is_float:
        return Cell(Unary("neg", a.value.to(goal)), a.valid)
    return _exact(scope, "sub", const(0, goal), a.value, goal, a.valid)


def _absolute(scope: Scope, call: ex.Call) -> Cell:
    goal = scope.machine_of(call)
    a = scope.lower(call.args[0])
    if goal.is_float:
        return Cell(Unary("abs", a.value.to(goal)), a.valid)
    value = scope.k.var("x", a.value.to(goal))
    if goal.kind == "uint":
        return Cell(value, a.valid)
    scope.fail(narrow(a.valid, value.eq(limits(goal)[0])))
    return Cell(select(value < 0, Unary("neg", value), value), a.valid)


def _sign(scope: Scope, call: ex.Call) -> Cell:
    goal = scope.machine_of(call)
    a = scope.lower(call.args[0])
    if a.value.type.kind in ("uint", "bool"):
        return Cell(a.value.ne(const(0, a.value.type)).to(goal), a.valid)
    value = a.value.to(goal)
    sign = select(value > 0, const(1, goal), select(value < 0, const(-1, goal), value))
    return Cell(sign, a.valid)


ARITHMETIC: dict[str, Rule] = {
    **{op: _arithmetic(op) for op in ("add", "sub", "mul")},
    "div": _divide,
    "floordiv": _floordiv,
    "mod": _modulo,
    "quotient": _quotient,
    "remainder": _remainder,
    "pow": _power,
    "neg": _negation,
    "abs": _absolute,
    "sign": _sign,
}
