"""Deduplicate reductions, and drop those that no field reads.

    #0 = ⊕(sum, v)                       →  #0 = ⊕(sum, v)
    #1 = ⊕(count, v)                        #1 = ⊕(count, v)
    #2 = ⊕(sum, v)
    total: #0; ratio: #2 / #1               total: #0; ratio: #0 / #1

Fusion creates duplicate and unused reductions. Sharing partial sums between `sum` and `mean` is done in
lowering.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from penstock.expr.nodes import Expr, Field, Reduced, rewrite, walk
from penstock.ir.nodes import Attach, Lookback, Object, Program, Reduce, Reduction, RollingJoin, Windowed

_Body = TypeVar("_Body", bound=Windowed | RollingJoin)


def share_reductions(program: Program) -> Program:
    """Deduplicate the reductions of every windowed object."""
    return Program(tuple(_compacted(obj) for obj in program.objects), program.output)


def _compacted(this: Object) -> Object:
    match this.body:
        case Reduce() | Attach() | Lookback() | RollingJoin():
            return replace(this, body=compact(this.body))
        case _:
            return this


def compact(body: _Body) -> _Body:
    """Keep the reductions that are read, without duplicates, in their order."""
    exprs = _expressions(body)
    read = {node.index for expr in exprs for node in walk(expr) if isinstance(node, Reduced)}
    kept = tuple(dict.fromkeys(reduction for index, reduction in enumerate(body.reductions) if index in read))
    places = {reduction: place for place, reduction in enumerate(kept)}
    numbers = {index: places[body.reductions[index]] for index in read}
    fields = tuple(Field(field.name, _renumbered(field.expr, numbers)) for field in body.fields)
    return _with_reductions(body, kept, fields, numbers)


def _with_reductions(
    body: _Body, kept: tuple[Reduction, ...], fields: tuple[Field, ...], numbers: dict[int, int]
) -> _Body:
    if not isinstance(body, Reduce) or body.having is None:
        return replace(body, reductions=kept, fields=fields)
    return replace(body, reductions=kept, fields=fields, having=_renumbered(body.having, numbers))


def _expressions(body: Windowed | RollingJoin) -> tuple[Expr, ...]:
    having = body.having if isinstance(body, Reduce) else None
    return (*(field.expr for field in body.fields), *(() if having is None else (having,)))


def _renumbered(expr: Expr, numbers: dict[int, int]) -> Expr:
    def rule(node: Expr) -> Expr:
        return Reduced(numbers[node.index]) if isinstance(node, Reduced) else node

    return rewrite(expr, rule)
