"""Decimals: whole numbers of 64 or 128 bits, the digits without the point, whose scale the types hold.

The precision of a result determines the bits it takes. Where 38 digits do not hold every result, a test refuses those
that do not fit, before they are computed.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.algorithms.expressions.cells import Cell, Scope, both, computed_type, narrow
from penstock.expr import nodes as ex
from penstock.expr.decimals import is_exact
from penstock.loop.nodes import BOOL, F64, I64, I128, Binary, Type, Unary, Value, const, select
from penstock.types.arrow import DIGITS, FEW_DIGITS, kind_of

_SURELY_FITS = (
    1.5e38  # a product below it, computed in doubles, fits 128 bits; one from it on has more than 38 digits
)
_IN_KERNELS = frozenset(
    {
        "add",
        "sub",
        "mul",
        "div",
        "mod",
        "remainder",
        "floordiv",
        "neg",
        "abs",
        "sign",
        "floor",
        "ceil",
        "round",
    }
    | {
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "least",
        "greatest",
        "fill_null",
        "is_null",
        "is_not_null",
        "is_nan",
    }
)
_ALIGNED = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "mod", "remainder", "floordiv"})


def fits_kernel(expr: ex.Expr, dtype: pa.DataType, types: Sequence[pa.DataType]) -> bool:
    """Whether 128 bits hold all intermediate values of an expression over decimals, given its type and its operands'."""
    match expr:
        case ex.Cast():
            return kind_of(types[0]) != "float"
        case ex.Call(function=function):
            if function not in _IN_KERNELS:
                return False
            known = [operand for operand in types if is_exact(operand)]
            if function == "div":
                top, below = known
                return int(top.precision + below.scale + dtype.scale - top.scale) <= DIGITS
            return function not in _ALIGNED or (len(known) == len(types) and _aligned_digits(known) <= DIGITS)
        case _:
            return True


def _aligned_digits(types: Sequence[pa.DataType]) -> int:
    scale: int = max(dtype.scale for dtype in types)
    return scale + max(int(dtype.precision - dtype.scale) for dtype in types)


def arithmetic(op: str, scope: Scope, call: ex.Call) -> Cell:
    """Add, subtract or multiply."""
    dtype = scope.type_of(call)
    goal = computed_type(dtype)
    types = [scope.type_of(arg) for arg in call.args]
    a, b = (scope.lower(arg) for arg in call.args)
    valid = both(a, b)
    if op == "mul":
        x, y = a.value.to(goal), b.value.to(goal)
        if types[0].precision + types[1].precision >= DIGITS:
            _require_product(scope, x, y, valid)
        return _within(
            scope, Cell(Binary("mul", x, y), valid), dtype, types[0].precision + types[1].precision
        )
    x, y = (
        _scaled(scope, cell, own, dtype.scale, goal, valid) for cell, own in zip((a, b), types, strict=True)
    )
    before = max(operand.precision - operand.scale for operand in types)
    if before + dtype.scale + 1 > dtype.precision:
        _require_sum(scope, op, x, y, dtype, valid)
    return Cell(Binary(op, x, y), valid)


def _scaled(
    scope: Scope, cell: Cell, dtype: pa.DataType, scale: int, goal: Type, valid: Value | None
) -> Value:
    """The digits of a value at a finer scale; refuse those that 38 digits do not hold."""
    more = scale - dtype.scale
    value = scope.k.var("digits", cell.value.to(goal))
    if more and dtype.precision + more > DIGITS:
        most = const(10 ** (DIGITS - more), goal)
        scope.fail(narrow(valid, (value >= most) | (value <= Unary("neg", most))))
    return value * const(10**more, goal) if more else value


def _require_sum(scope: Scope, op: str, x: Value, y: Value, dtype: pa.DataType, valid: Value | None) -> None:
    """Refuse sums of more digits than the type has; the test itself cannot overflow."""
    x, y = scope.k.var("x", x), scope.k.var("y", y if op == "add" else Unary("neg", y))
    most = const(10**dtype.precision - 1, x.type)
    zero = const(0, x.type)
    above = (y > zero) & (x > most - select(y > zero, y, zero))
    below = (y < zero) & (x < Unary("neg", most) - select(y < zero, y, zero))
    scope.fail(narrow(valid, above | below))


def _require_product(scope: Scope, x: Value, y: Value, valid: Value | None) -> None:
    estimate = Unary("abs", x.to(F64) * y.to(F64))
    scope.fail(narrow(valid, ~(estimate < _SURELY_FITS)))


def _within(scope: Scope, cell: Cell, dtype: pa.DataType, digits: int) -> Cell:
    """Refuse values of more digits than a type has; `digits` is how many they may have."""
    if digits <= dtype.precision:
        return cell
    value = scope.k.var("digits", cell.value)
    most = const(10**dtype.precision, value.type)
    scope.fail(narrow(cell.valid, (value >= most) | (value <= Unary("neg", most))))
    return Cell(value, cell.valid)


def aligned(scope: Scope, a: Value, b: Value, types: Sequence[pa.DataType]) -> tuple[Value, Value]:
    """Convert the digits of two decimals to the finer of their scales."""
    goal = I64 if _aligned_digits(types) <= FEW_DIGITS else I128
    scale = max(dtype.scale for dtype in types)
    x, y = (
        value.to(goal) if dtype.scale == scale else value.to(goal) * const(10 ** (scale - dtype.scale), goal)
        for value, dtype in zip((a, b), types, strict=True)
    )
    return x, y


# --- division ---------------------------------------------------------------------------------------------


def rounded_ratio(scope: Scope, x: Value, y: Value) -> Value:
    """Divide whole numbers and round halves away from zero; the divisor is not zero where the result is used."""
    k = scope.k
    top, below = k.var("top", Unary("abs", x)), k.var("below", Unary("abs", y))
    whole = k.var("whole", top.div(below))
    rest = k.var("rest", top - whole * below)
    size = k.var("size", whole + (rest >= below - rest).to(x.type))
    return select((x < 0) ^ (y < 0), Unary("neg", size), size)


def quotient(scope: Scope, call: ex.Call) -> Cell:
    """Divide; by zero the result is null."""
    dtype = scope.type_of(call)
    types = [scope.type_of(arg) for arg in call.args]
    a, b = (scope.lower(arg) for arg in call.args)
    more = types[1].scale + dtype.scale - types[0].scale
    x = scope.k.var("x", a.value.to(I128) * const(10**more, I128))
    y = scope.k.var("y", b.value.to(I128))
    valid = narrow(both(a, b), b.value.ne(const(0, b.value.type)))
    return Cell(rounded_ratio(scope, x, y).to(computed_type(dtype)), valid)


def division(op: str, scope: Scope, call: ex.Call) -> Cell:
    """Whole quotients and remainders, rounded down (`floordiv`, `mod`) or towards zero (`remainder`)."""
    types = [scope.type_of(arg) for arg in call.args]
    dtype = scope.type_of(call)
    a, b = (scope.lower(arg) for arg in call.args)
    x, y = aligned(scope, a.value, b.value, types)
    x, y = scope.k.var("x", x), scope.k.var("y", y)
    rest = scope.k.var("rest", x.rem(y))
    if op != "remainder":
        down = rest.ne(const(0, rest.type)) & ((rest < 0) ^ (y < 0))
        rest = scope.k.var("rest", select(down, rest + y, rest))
    result = (x - rest).div(y) if op == "floordiv" else rest
    valid = narrow(both(a, b), b.value.ne(const(0, b.value.type)))
    digits = DIGITS if op == "floordiv" else _aligned_digits(types)
    wide = (
        _within(scope, Cell(result, valid), dtype, digits)
        if computed_type(dtype) == x.type
        else Cell(result, valid)
    )
    return Cell(wide.value.to(computed_type(dtype)), wide.valid)


def rounding(op: str, scope: Scope, call: ex.Call) -> Cell:
    """Round to places behind the point: down (`floor`), up (`ceil`), or halves away from zero (`round`)."""
    (source,), dtype = [scope.type_of(arg) for arg in call.args], scope.type_of(call)
    cell = scope.lower(call.args[0])
    places = dict(call.options).get("decimals", 0) if op == "round" else 0
    assert isinstance(places, int)
    lost = source.scale - places
    if lost <= 0:
        return cell
    if lost > DIGITS:
        return Cell(const(0, computed_type(dtype)), cell.valid)
    x, unit = scope.k.var("x", cell.value.to(I128)), const(10**lost, I128)
    if op == "round":
        whole = rounded_ratio(scope, x, unit)
    else:
        rest = scope.k.var("rest", x.rem(unit))
        cut = (x - rest).div(unit)
        whole = cut - (rest < 0).to(I128) if op == "floor" else cut + (rest > 0).to(I128)
    back = 10 ** max(-places, 0)
    made = Cell(whole * const(back, I128) if back > 1 else whole, cell.valid)
    checked = _within(scope, made, dtype, DIGITS + (back > 1))
    return Cell(checked.value.to(computed_type(dtype)), checked.valid)


def sign(scope: Scope, call: ex.Call) -> Cell:
    cell = scope.lower(call.args[0])
    zero = const(0, cell.value.type)
    return Cell((cell.value > zero).to(I64) - (cell.value < zero).to(I64), cell.valid)


# --- conversion -------------------------------------------------------------------------------------------


def converted(scope: Scope, cell: Cell, source: pa.DataType, target: pa.DataType) -> Cell:
    """Convert from or to a decimal; digits beyond the target's scale are rounded, or dropped for a whole number."""
    goal = computed_type(target)
    if not is_exact(source):
        return _from_whole(scope, cell, target)
    if is_exact(target):
        return _rescaled(scope, cell, source, target)
    if goal == BOOL:
        return Cell(cell.value.ne(const(0, cell.value.type)), cell.valid)
    if goal.is_float:
        return Cell(cell.value.to(F64).div(const(float(10**source.scale), F64)).to(goal), cell.valid)
    whole = cell.value.div(const(10**source.scale, cell.value.type)) if source.scale else cell.value
    return scope.narrowed(Cell(whole, cell.valid), goal)


def _from_whole(scope: Scope, cell: Cell, target: pa.DataType) -> Cell:
    before = target.precision - target.scale
    wide = scope.k.var("wide", cell.value.to(I128))
    checked = _within(scope, Cell(wide, cell.valid), pa.decimal128(max(before, 1), 0), DIGITS)
    if not before:
        scope.fail(narrow(cell.valid, wide.ne(const(0, I128))))
    return Cell((checked.value * const(10**target.scale, I128)).to(computed_type(target)), cell.valid)


def _rescaled(scope: Scope, cell: Cell, source: pa.DataType, target: pa.DataType) -> Cell:
    more, goal = target.scale - source.scale, computed_type(target)
    if source.precision + more <= target.precision and more >= 0:
        value = cell.value.to(goal)
        return Cell(value * const(10**more, goal) if more else value, cell.valid)
    wide = scope.k.var("wide", cell.value.to(I128))
    if more >= 0:
        fitting = pa.decimal128(max(target.precision - more, 1), 0)
        checked = _within(scope, Cell(wide, cell.valid), fitting, DIGITS)
        if target.precision == more:
            scope.fail(narrow(cell.valid, wide.ne(const(0, I128))))
        return Cell((checked.value * const(10**more, I128)).to(goal), cell.valid)
    cut = Cell(rounded_ratio(scope, wide, const(10**-more, I128)), cell.valid)
    checked = _within(scope, cut, target, source.precision + more + 1)
    return Cell(checked.value.to(goal), cell.valid)
