"""The graph of a signal: temporal objects with shared parts, and the streams they sample."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.api.bind import bound
from penstock.api.expr import Expr, node_of
from penstock.api.stream import Stream
from penstock.errors import ExpressionTypeError, SchemaMismatchError, SignalError
from penstock.expr import nodes
from penstock.expr.nodes import Field
from penstock.expr.typing import type_of
from penstock.ir.signals.nodes import (
    END,
    START,
    VALUE,
    At,
    Body,
    Expression,
    Object,
    Program,
    Sampled,
    at,
    renamed,
    sources_of,
)
from penstock.ir.signals.scope import fields_schema, scope
from penstock.types.time import Time

if TYPE_CHECKING:
    from penstock.api.signals.signal import Signal


# The time of a feedback's past results, before they are combined with the signals it reads.
NOWHEN = Time("", pa.null(), None)


@dataclass(frozen=True, slots=True)
class Graph:
    """The objects of a signal by name, sources before readers, and the streams by input name.

    An object's name is a digest of its definition: equal definitions are one object.
    """

    objects: dict[str, Object]
    inputs: dict[str, Stream]
    keys: pa.Schema
    time: Time

    def defined(self, body: Body, schema: pa.Schema) -> tuple[Graph, str]:
        """Add an object."""
        name = hashlib.sha256(repr((body, schema)).encode()).hexdigest()[:16]
        return Graph(
            {**self.objects, name: Object(name, body, schema)}, self.inputs, self.keys, self.time
        ), name

    def program(self, output: str) -> tuple[Program, tuple[Stream, ...]]:
        """Number the objects that the output depends on, and the streams they sample."""
        needed = self._needed(output)
        inputs = list(
            dict.fromkeys(object_.body.input for object_ in needed if isinstance(object_.body, Sampled))
        )
        names = {object_.name: f"n{i}" for i, object_ in enumerate(needed)}
        names |= {token: str(i) for i, token in enumerate(inputs)}
        objects = tuple(
            Object(names[object_.name], renamed(object_.body, names), object_.schema) for object_ in needed
        )
        streams = tuple(self.inputs[token] for token in inputs)
        return Program(objects, names[output], self.keys, self.time), streams

    def _needed(self, output: str) -> list[Object]:
        reached, waiting = set[str](), [output]
        while waiting:
            name = waiting.pop()
            if name not in reached:
                reached.add(name)
                waiting += sources_of(self.objects[name].body)
        return [obj for name, obj in self.objects.items() if name in reached]


def sampled(
    stream: Stream, body: Sampled, schema: pa.Schema, keys: pa.Schema, time: Time
) -> tuple[Graph, str]:
    """Return a graph of the samples of a stream."""
    return Graph({}, {body.input: stream}, keys, time).defined(body, schema)


def joined(graphs: Sequence[Graph]) -> Graph:
    """Combine the graphs of several signals, which must have the same time and keys."""
    first = next((graph for graph in graphs if graph.time != NOWHEN), graphs[0])
    for other in graphs:
        if other.time != NOWHEN:
            _require_alike(first, other)
    objects = {name: this for graph in graphs for name, this in graph.objects.items()}
    inputs = {token: data for graph in graphs for token, data in graph.inputs.items()}
    return Graph(objects, inputs, first.keys, first.time)


def _require_alike(first: Graph, other: Graph) -> None:
    if first.keys != other.keys:
        raise SignalError(
            f"signals are combined key by key, but one is by {_described(first.keys)} and the other by "
            f"{_described(other.keys)}; give both the same by=, renaming or casting columns before .signal(...)"
        )
    if first.time != other.time:
        raise SignalError(
            f"signals are combined instant by instant, but one counts time as {first.time.type} and the other "
            f"as {other.time.type}; cast one of the columns in its table, or declare its stream with the other's type"
        )


def _described(keys: pa.Schema) -> str:
    return ", ".join(f"{key.name!r} ({key.type})" for key in keys) or "nothing"


def refuse_clash(taken: Sequence[str], names: Sequence[str]) -> None:
    """Reject value names that clash; a single value is named `value`, several keep their names."""
    clash = next((name for name in names if name in {START, END, *taken}), None)
    if clash is not None:
        raise SchemaMismatchError(
            f"the signal would have a value named {clash!r}, which its intervals or keys are called; give it another "
            "name, to a column in a list, as in signal([pk.col('x').alias('level')])"
        )


def refuse_taken(keys: Sequence[str]) -> None:
    """Reject keys with the names of interval columns."""
    clash = next((name for name in keys if name in {START, END}), None)
    if clash is not None:
        raise SchemaMismatchError(
            f"the key {clash!r} is called as a bound of the signal's intervals is; rename the column first"
        )


# --- Pointwise signals: the result of operators on signals, `map`, `where` and `pk.when`.

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
