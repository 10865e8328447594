"""Evaluate expressions in plain Python: the reference semantics.

Values are physical: None is null, times are integer ticks, strings are `str`. All compiled code is tested
against this.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.errors import VerificationError
from penstock.expr.arithmetic import Setting, convert
from penstock.expr.comparison import compare
from penstock.expr.functions import FUNCTIONS
from penstock.expr.nodes import (
    Aggregate,
    Call,
    Case,
    Cast,
    Column,
    Expr,
    IsIn,
    Literal,
    Reduced,
    children,
    ordered,
)
from penstock.expr.typing import known_operands, operand_of, type_of
from penstock.types.arrow import value_type

Row = Mapping[str, Any]
Evaluator = Callable[[Row, Sequence[Any]], Any]
# A step also receives the values of shared nodes that the row has computed so far.
_Step = Callable[[Row, Sequence[Any], dict[int, Any]], Any]


def evaluate(
    expr: Expr,
    row: Row,
    schema: pa.Schema,
    reduced: Sequence[Any] = (),
    reduced_types: Sequence[pa.DataType] = (),
) -> Any:
    """Return the value of an expression for one row.

    >>> evaluate(Call("add", (Column("a"), Literal(1, pa.int64()))), {"a": 2}, pa.schema({"a": pa.int8()}))
    3
    """
    return evaluator(expr, schema, reduced_types)(row, reduced)


def evaluator(expr: Expr, schema: pa.Schema, reduced_types: Sequence[pa.DataType] = ()) -> Evaluator:
    """Resolve types once and return a function of (row, reduced values); a shared node is computed once per row."""
    nodes = ordered(expr)
    uses = Counter(id(child) for node in nodes for child in children(node))
    steps: dict[int, _Step] = {}
    for node in nodes:
        step = _step(node, _Inner(steps, schema, reduced_types))
        steps[id(node)] = _once(id(node), step) if uses[id(node)] > 1 and children(node) else step
    whole = steps[id(expr)]
    return lambda row, reduced: whole(row, reduced, {})


def _once(place: int, step: _Step) -> _Step:
    def value(row: Row, reduced: Sequence[Any], known: dict[int, Any]) -> Any:
        if place not in known:
            known[place] = step(row, reduced, known)
        return known[place]

    return value


@dataclass(frozen=True, slots=True)
class _Inner:
    """The steps and types of the nodes inside an expression."""

    steps: Mapping[int, _Step]
    schema: pa.Schema
    reduced_types: Sequence[pa.DataType]

    def step(self, expr: Expr) -> _Step:
        return self.steps[id(expr)]

    def type(self, expr: Expr) -> pa.DataType:
        return type_of(expr, self.schema, self.reduced_types)


def _step(expr: Expr, inner: _Inner) -> _Step:
    match expr:
        case Column(name=name):
            return lambda row, _reduced, _known: row[name]
        case Literal(value=value):
            return lambda _row, _reduced, _known: value
        case Reduced(index=index):
            return lambda _row, reduced, _known: reduced[index]
        case Call():
            return _call(expr, inner)
        case Cast(arg=arg, type=target):
            given, source = inner.step(arg), inner.type(arg)
            return lambda row, reduced, known: convert(given(row, reduced, known), source, target)
        case Case():
            return _case(expr, inner)
        case IsIn():
            return _membership(expr, inner)
        case Aggregate():
            raise VerificationError("an aggregate has no value for a single row")


def _call(call: Call, inner: _Inner) -> _Step:
    function = FUNCTIONS[call.function]
    args = [inner.step(arg) for arg in call.args]
    operands = [operand_of(arg, inner.type(arg)) for arg in call.args]
    types = tuple(operand.type for operand in known_operands(operands))
    setting = Setting(types, inner.type(call), dict(call.options))

    def value(row: Row, reduced: Sequence[Any], known: dict[int, Any]) -> Any:
        values = [arg(row, reduced, known) for arg in args]
        if function.strict and any(value is None for value in values):
            return None
        return function.define(setting, *values)

    return value


def _case(case: Case, inner: _Inner) -> _Step:
    target = inner.type(case)

    def part(expr: Expr) -> _Step:
        given, source = inner.step(expr), inner.type(expr)
        return lambda row, reduced, known: convert(given(row, reduced, known), source, target)

    branches = [(inner.step(test), part(value)) for test, value in case.branches]
    otherwise = part(case.otherwise)

    def value(row: Row, reduced: Sequence[Any], known: dict[int, Any]) -> Any:
        chosen = next((then for test, then in branches if test(row, reduced, known) is True), otherwise)
        return chosen(row, reduced, known)

    return value


def _membership(node: IsIn, inner: _Inner) -> _Step:
    member = inner.step(node.arg)
    source = value_type(inner.type(node.arg))

    def value(row: Row, reduced: Sequence[Any], known: dict[int, Any]) -> bool | None:
        given = member(row, reduced, known)
        if given is None:
            return None
        return any(compare(given, value.value, (source, value.type)) == 0 for value in node.values)

    return value
