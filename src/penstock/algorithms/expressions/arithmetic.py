"""Arithmetic and functions of numbers: exact integers with overflow errors, floats as in IEEE 754."""

from __future__ import annotations

import math
from collections.abc import Callable

import pyarrow as pa

from penstock.algorithms.expressions import calendar, decimals
from penstock.algorithms.expressions.cells import Cell, Rule, Scope, both, narrow
from penstock.expr import nodes as ex
from penstock.expr.decimals import is_exact
from penstock.loop.nodes import (
    BOOL,
    F64,
    I64,
    I128,
    Binary,
    Const,
    Literal,
    Overflows,
    Type,
    Unary,
    Value,
    const,
    select,
)
from penstock.loop.numbers import embeds, fits, limits

_SQUARE = 2.0  # an exponent that is lowered to a multiplication


def _arithmetic(op: str) -> Rule:
    def lower(scope: Scope, call: ex.Call) -> Cell:
        dtype = scope.type_of(call)
        if calendar.is_temporal(dtype):
            return _temporal(op, scope, call, dtype)
        if is_exact(dtype):
            return decimals.arithmetic(op, scope, call)
        goal = scope.machine_of(call)
        a, b = (scope.lower(arg) for arg in call.args)
        valid = both(a, b)
        if goal.is_float:
            return Cell(Binary(op, a.value.to(goal), b.value.to(goal)), valid)
        return _exact(scope, op, a.value, b.value, goal, valid)

    return lower


def _exact(scope: Scope, op: str, a: Value, b: Value, goal: Type, valid: Value | None) -> Cell:
    """Integer arithmetic with overflow errors; operands of the other signedness are widened to 128 bits."""
    a, b = _fitting(scope, a, goal), _fitting(scope, b, goal)
    if not (embeds(a.type, goal) and embeds(b.type, goal)):
        wide = scope.k.var("wide", Binary(op, a.to(I128), b.to(I128)))
        return scope.narrowed(Cell(wide, valid), goal)
    x, y = a.to(goal), b.to(goal)
    wrong = None if _never_overflows(op, a.type, b.type, goal) else _overflow(scope, op, a, b, goal)
    if wrong is not None:
        scope.fail(narrow(valid, wrong))
    return Cell(Binary(op, x, y), valid)


def _fitting(scope: Scope, value: Value, goal: Type) -> Value:
    """Convert a literal that fits the type of the result to that type."""
    if isinstance(value, Literal) and value.type != goal and fits(int(value.value), goal):
        return scope.k.literal(value.value, goal)
    return value


def _overflow(scope: Scope, op: str, a: Value, b: Value, goal: Type) -> Value | None:
    """The overflow condition: with a literal, the other operand lies outside an interval (None: never).

    A bound that no value of the operand's type exceeds is not tested. The code depends on the literal
    in this respect.
    """
    match a, b:
        case (Literal(), Literal()):
            return Overflows(op, a.to(goal), b.to(goal))
        case (_, Literal(value=number)):
            return _outside(scope, a, goal, _interval(op, int(number), goal))
        case (Literal(value=number), _):
            least, most = limits(goal)
            turned = (int(number) - most, int(number) - least)
            return _outside(scope, b, goal, turned if op == "sub" else _interval(op, int(number), goal))
    return Overflows(op, a.to(goal), b.to(goal))


def _interval(op: str, number: int, goal: Type) -> tuple[int, int]:
    """The least and the largest x for which `x op number` fits a type."""
    least, most = limits(goal)
    if op == "add":
        return least - number, most - number
    if op == "sub":
        return least + number, most + number
    if number == 0:
        return least, most
    first, last = (least, most) if number > 0 else (most, least)
    return -(-first // number), last // number


def _outside(scope: Scope, x: Value, goal: Type, interval: tuple[int, int]) -> Value | None:
    (least, most), (low, high) = limits(x.type), interval
    below = x.to(goal) < scope.k.literal(low, goal) if low > least else None
    above = x.to(goal) > scope.k.literal(high, goal) if high < most else None
    return below | above if below is not None and above is not None else below or above


def _never_overflows(op: str, a: Type, b: Type, goal: Type) -> bool:
    spare = goal.bits - 1 if goal.kind == "int" else goal.bits
    if op == "mul":
        return a.bits + b.bits <= spare
    return max(a.bits, b.bits) < spare and not (goal.kind == "uint" and op == "sub")


def _temporal(op: str, scope: Scope, call: ex.Call, dtype: pa.DataType) -> Cell:
    a, b = (_in_unit_of(scope, arg, dtype) for arg in call.args)
    return _exact(scope, op, a.value, b.value, I64, both(a, b))


def _in_unit_of(scope: Scope, arg: ex.Expr, dtype: pa.DataType) -> Cell:
    cell, factor = scope.lower(arg), calendar.finer(scope.type_of(arg), dtype)
    return Cell(scope.scaled(cell.value, factor) if factor > 1 else cell.value.to(I64), cell.valid)


# --- division ---------------------------------------------------------------------------------------------


def _divide(scope: Scope, call: ex.Call) -> Cell:
    if is_exact(scope.type_of(call)):
        return decimals.quotient(scope, call)
    a, b = (scope.lower(arg) for arg in call.args)
    return Cell(a.value.to(F64).div(_divisor(b.value)), both(a, b))


def _divisor(value: Value) -> Value:
    """A divisor as a double. A power of two is a constant of the code: the division becomes a multiplication."""
    if isinstance(value, Literal) and abs(math.frexp(value.value)[0]) == 0.5:
        return const(value.value, F64)
    return value.to(F64)


def _known(value: Value) -> Value:
    """A literal as a constant of the code, for operations that are compiled per value."""
    return const(value.value, value.type) if isinstance(value, Literal) else value


def _floordiv(scope: Scope, call: ex.Call) -> Cell:
    if is_exact(scope.type_of(call)):
        return decimals.division("floordiv", scope, call)
    goal = scope.machine_of(call)
    a, b = (scope.lower(arg) for arg in call.args)
    if goal.is_float:
        return Cell(Unary("floor", a.value.to(F64).div(_divisor(b.value))), both(a, b))
    return _integer_division(scope, a, b, goal, calendar.floor_div)


def _modulo(scope: Scope, call: ex.Call) -> Cell:
    if is_exact(scope.type_of(call)):
        return decimals.division("mod", scope, call)
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
    if is_exact(scope.type_of(call)):
        return decimals.division("remainder", scope, call)
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
    """Divide, rounding as `op` does; division by zero is null.

    A literal divisor is a constant of the code, which then divides by multiplication: six times as fast.
    """
    inside = goal if embeds(a.value.type, goal) and embeds(b.value.type, goal) else I128
    x, y = scope.k.var("x", a.value.to(inside)), scope.k.var("y", _known(b.value).to(inside))
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
    exponent = _known(b.value) if isinstance(b.value, Literal) and b.value.value == _SQUARE else b.value
    return Cell(Binary("pow", a.value.to(F64), exponent.to(F64)), both(a, b))


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
    if is_exact(scope.type_of(call.args[0])):
        return decimals.sign(scope, call)
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


_ALL_WHOLE = float(1 << 52)  # doubles from here on have no fraction


def _real(op: str) -> Rule:
    def lower(scope: Scope, call: ex.Call) -> Cell:
        a = scope.lower(call.args[0])
        return Cell(Unary(op, a.value.to(F64)), a.valid)

    return lower


def _rounding(op: str) -> Rule:
    def lower(scope: Scope, call: ex.Call) -> Cell:
        if is_exact(scope.type_of(call)):
            return decimals.rounding(op, scope, call)
        a = scope.lower(call.args[0])
        if not a.value.type.is_float:
            return Cell(a.value.to(scope.machine_of(call)), a.valid)
        return Cell(Unary(op, a.value.to(F64)), a.valid)

    return lower


def _round(scope: Scope, call: ex.Call) -> Cell:
    """Round half away from zero to some decimals; integers stay as they are."""
    if is_exact(scope.type_of(call)):
        return decimals.rounding("round", scope, call)
    a = scope.lower(call.args[0])
    if not a.value.type.is_float:
        return Cell(a.value.to(scope.machine_of(call)), a.valid)
    places = dict(call.options).get("decimals", 0)
    assert isinstance(places, int)
    scale = 10.0 ** abs(places)
    source = scope.k.var("x", a.value.to(F64))
    x = scope.k.var("scaled", source * scale if places >= 0 else source.div(scale))
    rounded = _half_away(scope, x)
    back = rounded.div(const(scale, F64)) if places >= 0 else rounded * scale
    # Already whole, infinite or NaN: scaling back would only lose precision.
    done = ~(Unary("abs", x) < (_ALL_WHOLE if places >= 0 else math.inf))
    return Cell(select(done, source, back), a.valid)


def _half_away(scope: Scope, x: Value) -> Value:
    """Round half away from zero, exactly: adding 0.5 first would be wrong just below a half."""
    whole = scope.k.var("whole", Unary("trunc", x))
    step = select(x < 0.0, const(-1.0, F64), const(1.0, F64))
    return select(Unary("abs", x - whole) >= 0.5, whole + step, whole)


NUMBER_CALLS: dict[str, Rule] = {
    **{op: _real(op) for op in ("sqrt", "exp", "log", "log2", "log10", "sin", "cos", "tan")},
    "floor": _rounding("floor"),
    "ceil": _rounding("ceil"),
    "round": _round,
}
