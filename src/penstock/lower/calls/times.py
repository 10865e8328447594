"""Parts of timestamps and dates, and rounding them down."""

from __future__ import annotations

from penstock.expr import nodes as ex
from penstock.kernels.cells import Cell
from penstock.loop.nodes import I64, const
from penstock.lower import calendar
from penstock.lower.scope import Rule, Scope


def _part(scope: Scope, call: ex.Call) -> Cell:
    source = scope.type_of(call.args[0])
    a = scope.lower(call.args[0])
    ticks = scope.k.var("ticks", a.value.to(I64))
    part = calendar.PARTS[call.function](scope.k, ticks, source)
    return Cell(part.to(scope.machine_of(call)), a.valid)


def _truncate(scope: Scope, call: ex.Call) -> Cell:
    a = scope.lower(call.args[0])
    every = dict(call.options)["every"]
    assert isinstance(every, int)
    ticks = scope.k.var("ticks", a.value.to(I64))
    floored = ticks - calendar.floor_mod(ticks, const(every, I64))
    return Cell(floored.to(a.value.type), a.valid)


TIMES: dict[str, Rule] = {**dict.fromkeys(calendar.PARTS, _part), "truncate": _truncate}
