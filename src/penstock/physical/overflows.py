"""Name the integer results of a stage that may overflow, as the query wrote them: a kernel only reports that one did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.expr import nodes as ex
from penstock.expr.arithmetic import bounds
from penstock.expr.show import show
from penstock.expr.typing import type_of
from penstock.ir.nodes import pair_scope
from penstock.ir.signals import nodes as temporal
from penstock.physical import nodes as ph
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
from penstock.types.arrow import kind_of
from penstock.types.windows import WINDOW_END, WINDOW_START

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


_OPERATORS = {"add", "sub", "mul", "neg", "abs", "floordiv", "mod", "quotient", "remainder"}
_SUMS = {"sum", "product", "custom"}
_INTEGERS = ("int", "uint", "timestamp", "date", "duration")
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class _Scope:
    """The names in scope of an expression: columns, the reductions that `Reduced` refers to, and hidden columns."""

    schema: pa.Schema
    reductions: tuple[ex.Aggregate, ...] = ()
    types: tuple[pa.DataType, ...] = ()
    hidden: Definitions = field(default_factory=dict)

    def type_of(self, expr: ex.Expr) -> pa.DataType:
        return type_of(expr, self.schema, self.types)

    def shown(self, expr: ex.Expr) -> str:
        """Render an expression as the user wrote it: with aggregates, and without access numbers."""

        def rule(node: ex.Expr) -> ex.Expr:
            match node:
                case ex.Reduced(index=index) if index < len(self.reductions):
                    return self.reductions[index]
                case ex.Column(name=name) if name.partition(".")[0].isdigit():
                    return ex.Column(name.partition(".")[2])
            return node

        return show(ex.rewrite(ex.substitute(expr, self.hidden), rule))


@dataclass(frozen=True, slots=True)
class _Suspect:
    """An expression whose result may not fit its type."""

    text: str
    type: pa.DataType
    reason: str
    remedy: str


def overflow_message(node: ph.Node, plan: ph.Plan) -> str:
    """Return an error message that names the integer results of a node that may have overflowed.

    A kernel reports that one of its results overflowed, not which one.
    """
    found = list(dict.fromkeys(_suspects(node, plan)))
    if not found:
        return "an integer result does not fit its type; cast an operand to float64, or filter such rows out"
    if len(found) == 1:
        only = found[0]
        return f"{only.text} does not fit {only.type}{only.reason}; {only.remedy}, or filter such rows out"
    names = ", ".join(f"{suspect.text} ({suspect.type})" for suspect in found[:_SHOWN])
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return (
        f"one of these results does not fit its type: {names}{more}; cast to a wider type, such as float64, "
        "or filter such rows out"
    )


def _suspects(node: ph.Node, plan: ph.Plan) -> Iterator[_Suspect]:
    for expr, scope in _expressions(node, plan):
        for part in ex.walk(expr):
            with suppress(PenstockError):  # a pass renamed a column: skip this expression, name the others
                yield from _suspect(part, scope)


def _suspect(node: ex.Expr, scope: _Scope) -> Iterator[_Suspect]:
    dtype = scope.type_of(node)
    if kind_of(dtype) not in _INTEGERS:
        return
    match node:
        case ex.Call(function=function) if function in _OPERATORS:
            reach = _reach(node, scope)
            low, high = bounds(dtype)
            if reach is None or reach[0] < low or reach[1] > high:
                yield _operator(node, scope, dtype)
        case ex.Cast(arg=arg):
            source = scope.type_of(arg)
            if kind_of(source) != "string" and not _embeds(source, dtype):
                yield _cast(node, scope, source)
        case ex.Aggregate(function=function) if function in _SUMS:
            yield _Suspect(scope.shown(node), dtype, "", "cast its argument to float64")


def _operator(node: ex.Call, scope: _Scope, dtype: pa.DataType) -> _Suspect:
    below = kind_of(dtype) == "uint" and node.function == "sub"
    reason = ", which has no numbers below zero" if below else ""
    remedy = f"cast an operand to {'int64' if below else 'float64'}"
    return _Suspect(scope.shown(node), dtype, reason, remedy)


def _cast(node: ex.Cast, scope: _Scope, source: pa.DataType) -> _Suspect:
    low, high = bounds(node.type)
    whole = kind_of(node.type) in ("int", "uint")
    reason = f" ({low} to {high})" if whole else ""
    if kind_of(source) == "float":
        reason += ": a value is NaN, infinite or beyond"
    return _Suspect(scope.shown(node), node.type, reason, "cast to a wider type")


def _embeds(source: pa.DataType, target: pa.DataType) -> bool:
    if kind_of(source) not in ("int", "uint", "bool") or kind_of(target) not in ("int", "uint"):
        return False
    low, high = (0, 1) if kind_of(source) == "bool" else bounds(source)
    return bounds(target)[0] <= low and high <= bounds(target)[1]


def _reach(node: ex.Call, scope: _Scope) -> tuple[int, int] | None:
    """Return the least and greatest exact result of a sum, difference or product, or None if unknown."""
    sides = [_range(arg, scope) for arg in node.args]
    if len(sides) != 2 or None in sides or node.function not in ("add", "sub", "mul"):
        return None
    operation = {"add": int.__add__, "sub": int.__sub__, "mul": int.__mul__}[node.function]
    corners = [operation(a, b) for a in sides[0] or () for b in sides[1] or ()]
    return min(corners), max(corners)


def _range(arg: ex.Expr, scope: _Scope) -> tuple[int, int] | None:
    dtype = scope.type_of(arg)
    if isinstance(arg, ex.Literal) and isinstance(arg.value, int):
        return arg.value, arg.value
    return bounds(dtype) if kind_of(dtype) in ("int", "uint") else None


# --- expressions and their scopes -------------------------------------------------------------------------


def _expressions(node: ph.Node, plan: ph.Plan) -> Iterator[tuple[ex.Expr, _Scope]]:
    inputs = plan.inputs_of(node)
    match node.op:
        case ph.Signals(program=signals):
            schemas = {name: source.schema for name, source in zip(signals.inputs, inputs, strict=True)}
            for obj in signals.objects:
                yield from _of_signal(obj, signals, schemas)
        case ph.Join(pairing=ph.Around()) | ph.SortedWindows() | ph.LookBack():
            over = _rows_of(plan[inputs[-1].inputs[0]], plan)
            yield from ((aggregate, over) for aggregate in aggregates(node, plan))
        case ph.Join(residual=where) if where is not None:
            yield where, _Scope(pair_scope(node.clock, *(input_.schema for input_ in inputs)))
        case ph.Rows(conjuncts=conjuncts, fields=fields):
            rows = _rows_of(inputs[0], plan)
            yield from ((conjunct, rows) for conjunct in (*conjuncts, *(one.expr for one in fields)))
        case ph.PaneAggregate() as op:
            yield from _of_panes(op, aggregates(node, plan), _rows_of(inputs[0], plan), inputs[0].clock.type)
        case _:
            return


def _rows_of(given: ph.Node, plan: ph.Plan) -> _Scope:
    """Return the scope of expressions over the rows of a node."""
    schema = _with(given.schema, given.clock.column, given.clock.type)
    return _Scope(schema, hidden=definitions(given, plan))


def _of_panes(
    op: ph.PaneAggregate, made: tuple[ex.Aggregate, ...], rows: _Scope, time: pa.DataType
) -> Iterator[tuple[ex.Expr, _Scope]]:
    results = _reducing(rows, op, made, time)
    yield from ((node, rows) for node in (op.where,) if node is not None)
    yield from ((key.expr, rows) for key in op.keys)
    yield from ((reduction, rows) for reduction in results.reductions)
    yield from ((column.expr, results) for column in op.fields)
    yield from ((node, results) for node in (op.having,) if node is not None)


def _of_signal(
    this: temporal.Object, signals: temporal.Program, inputs: Mapping[str, pa.Schema]
) -> Iterator[tuple[ex.Expr, _Scope]]:
    match this.body:
        case temporal.Sampled(input=name, fields=fields):
            yield from ((column.expr, _Scope(inputs[name])) for column in fields)
        case temporal.Expression() | temporal.Feedback() as body:
            over = [(reduction, _Scope(signals[reduction.source].schema)) for reduction in body.reductions]
            made = [
                (
                    ex.Aggregate(
                        window_reduction.function,
                        window_reduction.args,
                        window_reduction.where,
                        window_reduction.options,
                    ),
                    scope,
                )
                for window_reduction, scope in over
            ]
            yield from made
            columns = [
                field.with_name(temporal.at(place, field.name))
                for place, access in enumerate(body.accesses)
                for field in signals[access.source].schema
            ]
            own = [pa.field(temporal.past(place), this.schema.field(0).type) for place in range(9)]
            types = tuple(scope.type_of(aggregate) for aggregate, scope in made)
            scope = _Scope(pa.schema([*columns, *own]), tuple(aggregate for aggregate, _ in made), types)
            yield from ((column.expr, scope) for column in body.fields)


def _reducing(
    rows: _Scope, op: ph.PaneAggregate, made: tuple[ex.Aggregate, ...], time: pa.DataType
) -> _Scope:
    """Return the scope of result fields: row columns, keys, window bounds, and reductions."""
    schema = rows.schema
    for key in op.keys:
        schema = _with(schema, key.name, rows.type_of(key.expr))
    for name in (WINDOW_START, WINDOW_END):
        schema = _with(schema, name, time)
    return _Scope(schema, made, tuple(reduction.type for reduction in op.reductions), rows.hidden)


def _with(schema: pa.Schema, name: str, dtype: pa.DataType) -> pa.Schema:
    return schema if name in schema.names else schema.append(pa.field(name, dtype))
