"""Evaluate constant subexpressions, and drop operands that cannot change a truth value.

    v > 2 * 3                    →  v > 6
    true and k == 1              →  k == 1
    not (not (k == 1))           →  k == 1
    where true                   →  (no filter)
    9223372036854775807 + 1      →  unchanged: the error must occur at the row that evaluates it

A fold keeps the type of every enclosing expression: type rules do not treat a sum of literals as a literal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.expr.evaluate import evaluate
from penstock.expr.nodes import Call, Case, Expr, Field, Literal, children, fold, with_children
from penstock.expr.typing import type_of
from penstock.ir.nodes import Attach, Body, Object, Program, Reduce, Reduction, Samples, Signals
from penstock.ir.scope import result_scope, result_types
from penstock.ir.signals import nodes as temporal
from penstock.ir.signals.scope import Schemas, reduced_types, scope

_Reduction = TypeVar("_Reduction", Reduction, temporal.WindowReduction)
Fold = Callable[[Expr], Expr]


def fold_constants(program: Program) -> Program:
    """Fold every expression of the program."""
    return Program(
        tuple(replace(obj, body=_body(obj.body, program)) for obj in program.objects), program.output
    )


def _body(body: Body, program: Program) -> Body:
    match body:
        case Samples(source=source, where=where, fields=fields):
            fold = _folding(program[source].schema)
            return Samples(source, _predicate(where, fold), _fields(fields, fold))
        case Reduce():
            return _windowed(body, program[body.source])
        case Attach():
            return _windowed(body, program[body.source])
        case Signals(sources=sources, program=signals):
            return Signals(sources, _signals(signals, [program[name].schema for name in sources]))
        case _:
            return body


def _signals(program: temporal.Program, sources: Sequence[pa.Schema]) -> temporal.Program:
    schemas = {obj.name: obj.schema for obj in program.objects}
    objects = tuple(replace(obj, body=_signal(obj, schemas, sources)) for obj in program.objects)
    return replace(program, objects=objects)


def _signal(this: temporal.Object, schemas: Schemas, sources: Sequence[pa.Schema]) -> temporal.Body:
    match this.body:
        case temporal.Sampled() as body:
            return replace(body, fields=_fields(body.fields, _folding(sources[int(body.input)])))
        case temporal.Expression() | temporal.Feedback() as body:
            reductions = tuple(
                _reduction(reduction, _folding(schemas[reduction.source])) for reduction in body.reductions
            )
            fold = _folding(scope(body, schemas, this.schema.types[0]), reduced_types(body, schemas))
            return replace(body, reductions=reductions, fields=_fields(body.fields, fold))
        case body:
            return body


def _windowed(body: Reduce | Attach, source: Object) -> Reduce | Attach:
    before = _folding(source.schema)
    reductions = tuple(_reduction(reduction, before) for reduction in body.reductions)
    after = _folding(result_scope(body, source), result_types(body, source))
    folded = replace(
        body,
        keys=_fields(body.keys, before),
        reductions=reductions,
        where=_predicate(body.where, before),
        fields=_fields(body.fields, after),
    )
    return replace(folded, having=_predicate(folded.having, after)) if isinstance(folded, Reduce) else folded


def _reduction(reduction: _Reduction, fold: Fold) -> _Reduction:
    return replace(reduction, args=tuple(map(fold, reduction.args)), where=_predicate(reduction.where, fold))


def _fields(fields: tuple[Field, ...], fold: Fold) -> tuple[Field, ...]:
    return tuple(
        field if (folded := fold(field.expr)) is field.expr else Field(field.name, folded) for field in fields
    )


def _predicate(where: Expr | None, fold: Fold) -> Expr | None:
    """Fold a filter; remove one that is always true."""
    folded = None if where is None else fold(where)
    return None if _is(folded, value=True) else folded


def _folding(schema: pa.Schema, reduced: Sequence[pa.DataType] = ()) -> Fold:
    def rule(expr: Expr, new: tuple[Expr, ...]) -> Expr:
        if not new:
            return expr
        same = new == children(expr)
        whole = expr if same else _retyped(expr, with_children(expr, new), schema, reduced)
        return _retyped(whole, _simplified(_computed(whole)), schema, reduced)

    return lambda expr: fold(expr, rule)


def _retyped(expr: Expr, candidate: Expr, schema: pa.Schema, reduced: Sequence[pa.DataType]) -> Expr:
    """Return the candidate if it has the type of the expression, else the expression."""
    if candidate is expr:
        return expr
    same = type_of(candidate, schema, reduced) == type_of(expr, schema, reduced)
    return candidate if same else expr


def _computed(expr: Expr) -> Expr:
    """Evaluate an expression of constants, unless evaluation fails."""
    inner = children(expr)
    if not inner or not all(isinstance(child, Literal) for child in inner):
        return expr
    empty = pa.schema([])
    try:
        return Literal(evaluate(expr, {}, empty), type_of(expr, empty))
    except PenstockError:
        return expr


def _simplified(expr: Expr) -> Expr:
    match expr:
        case Call(function="and"):
            return _absorbed(expr, neutral=True)
        case Call(function="or"):
            return _absorbed(expr, neutral=False)
        case Call(function="not", args=(Call(function="not", args=(inner,)),)):
            return inner
        case Case():
            return _decided(expr)
        case _:
            return expr


def _absorbed(whole: Call, *, neutral: bool) -> Expr:
    """Remove the neutral operands of `and` (true) or `or` (false); the opposite constant is the result."""
    opposite = next((arg for arg in whole.args if _is(arg, value=not neutral)), None)
    if opposite is not None:
        return opposite
    rest = tuple(arg for arg in whole.args if not _is(arg, value=neutral))
    if len(rest) == len(whole.args):
        return whole
    return Call(whole.function, rest) if len(rest) > 1 else (*rest, whole.args[0])[0]


def _decided(case: Case) -> Expr:
    """Drop branches that are never taken, and those after a branch that is always taken."""
    branches: list[tuple[Expr, Expr]] = []
    otherwise = case.otherwise
    for condition, value in case.branches:
        if _is(condition, value=True):
            otherwise = value
            break
        if not isinstance(condition, Literal):
            branches.append((condition, value))
    return Case(tuple(branches), otherwise) if branches else otherwise


def _is(expr: Expr | None, *, value: bool) -> bool:
    return isinstance(expr, Literal) and expr.value is value
