"""Pointwise signals: the result of operators on signals, `map`, `where` and `pk.when`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.api.bind import bound
from penstock.api.expr import Expr, node_of
from penstock.api.signals.graph import Graph, joined, refuse_clash
from penstock.errors import ExpressionTypeError
from penstock.expr import nodes
from penstock.expr.nodes import Field
from penstock.expr.typing import type_of
from penstock.ir.signals.nodes import VALUE, At, Body, Expression, at
from penstock.ir.signals.scope import fields_schema, scope

if TYPE_CHECKING:
    from penstock.api.signals.signal import Signal

# Functions that can be non-null although an operand is null; on signals the result is undefined there.
_LENIENT = frozenset({"and", "or", "fill_null", "is_null", "is_not_null", "least", "greatest"})


def pointwise(compute: Callable[..., object], operands: Sequence[object], *, strict: bool = True) -> Signal:
    """Return the signal of a function of signals and constants; the function is called once, with symbols.

    If `strict`, the signal is defined where all operands are, whatever the function returns for nulls.
    """
    from penstock.api.signals.signal import Signal  # noqa: PLC0415 - import cycle

    signals = list({id(operand): operand for operand in operands if isinstance(operand, Signal)}.values())
    graph = joined([signal.graph for signal in signals])
    access = {id(signal): i for i, signal in enumerate(signals)}
    symbols = [
        Expr(nodes.Column(at(access[id(operand)], operand.column)))
        if isinstance(operand, Signal)
        else operand
        for operand in operands
    ]
    node = node_of(compute(*symbols))
    if strict:
        node = guarded(node, [symbol.node for symbol in symbols if isinstance(symbol, Expr)])
    return expression(graph, tuple(At(signal.name) for signal in signals), {VALUE: node})


def guarded(node: nodes.Expr, operands: Sequence[nodes.Expr]) -> nodes.Expr:
    """Make an expression null where an operand is null."""
    if not _is_lenient(node) and all(operand in nodes.walk(node) for operand in operands):
        return node
    there = [nodes.Call("is_not_null", (fromkey,)) for fromkey in dict.fromkeys(operands)]
    condition: nodes.Expr = there[0]
    for presence in there[1:]:
        condition = nodes.Call("and", (condition, presence))
    return Expr(nodes.Case(((condition, node),), node_of(None))).node


def _is_lenient(node: nodes.Expr) -> bool:
    return any(
        isinstance(part, nodes.Case | nodes.IsIn)
        or (isinstance(part, nodes.Call) and part.function in _LENIENT)
        for part in nodes.walk(node)
    )


def expression(graph: Graph, accesses: tuple[At, ...], values: dict[str, nodes.Expr]) -> Signal:
    """Return the signal of expressions over accesses."""
    schemas = {name: obj.schema for name, obj in graph.objects.items()}
    names = scope(Expression(accesses, (), ()), schemas)
    fields = tuple(Field(name, bound(node, names, graph.time)) for name, node in values.items())
    for field in fields:
        _refuse(field, pa.types.is_null(type_of(field.expr, names)))
    body = Expression(accesses, (), fields)
    return defined(graph, body, schemas)


def defined(graph: Graph, body: Expression, schemas: dict[str, pa.Schema]) -> Signal:
    """Add an expression to a graph, and return its signal."""
    return signal_of(graph, body, fields_schema(body, schemas))


def signal_of(graph: Graph, body: Body, schema: pa.Schema) -> Signal:
    """Add an object to a graph, and return its signal."""
    refuse_clash(graph.keys.names, schema.names)
    from penstock.api.signals.signal import Signal  # noqa: PLC0415 - import cycle

    return Signal(*graph.defined(body, schema))


def _refuse(field: Field, untyped: bool) -> None:
    if nodes.has_aggregate(field.expr):
        raise ExpressionTypeError(
            "an aggregate reduces samples over a span of time; write signal.rolling('10s').mean() and the like"
        )
    if untyped:
        raise ExpressionTypeError("the signal would be null everywhere; write pk.lit(None, 'float64')")
