"""Show the expressions of a node as the query wrote them: without the hidden columns between the nodes of one object."""

from __future__ import annotations

from penstock.expr import nodes as ex
from penstock.physical.nodes import (
    Around,
    Join,
    LookBack,
    Node,
    PaneAggregate,
    Plan,
    Reduction,
    Rows,
    SortedWindows,
)

Definitions = dict[str, ex.Expr]
NODE_PARTS = (".rows", ".frames", ".plain")  # nodes that are parts of one object


def object_of(node: Node) -> str:
    """Return the name of the temporal object that a node is, or is a part of."""
    part = next((suffix for suffix in NODE_PARTS if node.id.endswith(suffix)), "")
    return node.id.removesuffix(part)


def definitions(node: Node, plan: Plan) -> Definitions:
    """Return what the hidden columns of a node's rows hold; only nodes that are parts of an object have such columns.

    w1.rows: Rows computes arg1: p * q    →  {arg1: p * q}
    w1.frames: SortedWindows sum(arg1)    →  {arg1: p * q, reduced0: sum(p * q)}
    """
    if not node.id.endswith(NODE_PARTS):
        return {}
    match node.op:
        case Rows(fields=fields):
            return {field.name: field.expr for field in fields if field.expr != ex.Column(field.name)}
        case SortedWindows() | LookBack() | Join(pairing=Around()):
            known, made = definitions(plan[node.inputs[-1]], plan), aggregates(node, plan)
            names = node.schema.names[len(node.schema) - len(made) :]
            return {**known, **dict(zip(names, made, strict=True))}
        case PaneAggregate(fields=fields):
            made = aggregates(node, plan)
            return {
                field.name: made[field.expr.index] for field in fields if isinstance(field.expr, ex.Reduced)
            }
        case _:
            return {}


def aggregates(node: Node, plan: Plan) -> tuple[ex.Aggregate, ...]:
    """Return the reductions of a node over the rows that the query reduces."""
    reductions = reductions_of(node)
    known = definitions(plan[node.inputs[-1]], plan) if reductions else {}
    return tuple(_aggregate(reduction, known) for reduction in reductions)


def reductions_of(node: Node) -> tuple[Reduction, ...]:
    """Return the reductions of a node, if it has any."""
    match node.op:
        case PaneAggregate(reductions=reductions) | SortedWindows(reductions=reductions):
            return reductions
        case LookBack(reductions=reductions) | Join(pairing=Around(reductions=reductions)):
            return reductions
        case _:
            return ()


def _aggregate(reduction: Reduction, known: Definitions) -> ex.Aggregate:
    where = None if reduction.where is None else ex.substitute(reduction.where, known)
    args = tuple(_unguarded(ex.substitute(arg, known), where) for arg in reduction.args)
    return ex.Aggregate(reduction.function, args, where, reduction.options)


def _unguarded(arg: ex.Expr, where: ex.Expr | None) -> ex.Expr:
    """Return an argument without the condition that keeps it from failing for other rows."""
    match arg:
        case ex.Case(branches=((condition, value),)) if condition == where:
            return value
        case _:
            return arg
