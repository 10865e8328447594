"""Functions of one real number, and rounding."""

from __future__ import annotations

import math

from penstock.algorithms.expressions.calls import decimals
from penstock.algorithms.expressions.cells import Cell
from penstock.algorithms.expressions.scope import Rule, Scope
from penstock.expr import nodes as ex
from penstock.expr.decimals import is_exact
from penstock.loop.nodes import F64, Unary, Value, const, select

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
