"""Parts of timestamps and dates, and rounding them down."""

from __future__ import annotations

from penstock.algorithms.expressions import calendar
from penstock.algorithms.expressions.cells import Cell, narrow
from penstock.algorithms.expressions.scope import Rule, Scope
from penstock.expr import nodes as ex
from penstock.loop.nodes import I64, U64, const
from penstock.loop.numbers import limits


def _part(scope: Scope, call: ex.Call) -> Cell:
    source = scope.type_of(call.args[0])
    a = scope.lower(call.args[0])
    ticks = scope.k.var("ticks", a.value.to(I64))
    part = calendar.CALENDAR_PARTS[call.function](scope.k, ticks, source)
    return Cell(part.to(scope.machine_of(call)), a.valid)


def _truncate(scope: Scope, call: ex.Call) -> Cell:
    a = scope.lower(call.args[0])
    every = dict(call.options)["every"]
    assert isinstance(every, int)
    own = a.value.type
    wide = I64 if own.is_signed else U64
    ticks = scope.k.var("ticks", a.value.to(wide))
    floored = scope.k.var("floored", ticks - calendar.floor_mod(ticks, const(every, wide)))
    if own.is_signed:  # the next lower multiple may be below the type's range
        scope.fail(narrow(a.valid, floored > ticks if own == I64 else floored < limits(own)[0]))
    return Cell(floored.to(own), a.valid)


TIMES: dict[str, Rule] = {**dict.fromkeys(calendar.CALENDAR_PARTS, _part), "truncate": _truncate}
