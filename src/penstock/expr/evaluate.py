"""Evaluate expressions in plain Python: the reference semantics.

Values are physical: None is null, times are integer ticks, strings are `str`. All compiled code is tested
against this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from penstock.errors import VerificationError
from penstock.expr.arithmetic import Setting
from penstock.expr.conversion import convert
from penstock.expr.functions import FUNCTIONS
from penstock.expr.nodes import Aggregate, Call, Case, Cast, Column, Expr, IsIn, Literal, Reduced
from penstock.expr.order import compare
from penstock.expr.typing import known_operands, operand_of, type_of
from penstock.types.arrow import value_type

Row = Mapping[str, Any]
Evaluator = Callable[[Row, Sequence[Any]], Any]


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
    """Resolve types once and return a function of (row, reduced values)."""
    match expr:
        case Column(name=name):
            return lambda row, _reduced: row[name]
        case Literal(value=value):
            return lambda _row, _reduced: value
        case Reduced(index=index):
            return lambda _row, reduced: reduced[index]
        case Call():
            return _call(expr, schema, reduced_types)
        case Cast(arg=arg, type=target):
            inner, source = evaluator(arg, schema, reduced_types), type_of(arg, schema, reduced_types)
            return lambda row, reduced: convert(inner(row, reduced), source, target)
        case Case():
            return _case(expr, schema, reduced_types)
        case IsIn():
            return _membership(expr, schema, reduced_types)
        case Aggregate():
            raise VerificationError("an aggregate has no value for a single row")


def _call(call: Call, schema: pa.Schema, reduced_types: Sequence[pa.DataType]) -> Evaluator:
    function = FUNCTIONS[call.function]
    args = [evaluator(arg, schema, reduced_types) for arg in call.args]
    operands = [operand_of(arg, type_of(arg, schema, reduced_types)) for arg in call.args]
    types = tuple(each.type for each in known_operands(operands))
    setting = Setting(types, type_of(call, schema, reduced_types), dict(call.options))

    def value(row: Row, reduced: Sequence[Any]) -> Any:
        values = [arg(row, reduced) for arg in args]
        if function.strict and any(each is None for each in values):
            return None
        return function.define(setting, *values)

    return value


def _case(case: Case, schema: pa.Schema, reduced_types: Sequence[pa.DataType]) -> Evaluator:
    target = type_of(case, schema, reduced_types)

    def part(expr: Expr) -> Evaluator:
        inner, source = evaluator(expr, schema, reduced_types), type_of(expr, schema, reduced_types)
        return lambda row, reduced: convert(inner(row, reduced), source, target)

    branches = [(evaluator(test, schema, reduced_types), part(value)) for test, value in case.branches]
    otherwise = part(case.otherwise)

    def value(row: Row, reduced: Sequence[Any]) -> Any:
        chosen = next((then for test, then in branches if test(row, reduced) is True), otherwise)
        return chosen(row, reduced)

    return value


def _membership(node: IsIn, schema: pa.Schema, reduced_types: Sequence[pa.DataType]) -> Evaluator:
    inner = evaluator(node.arg, schema, reduced_types)
    source = value_type(type_of(node.arg, schema, reduced_types))

    def value(row: Row, reduced: Sequence[Any]) -> bool | None:
        given = inner(row, reduced)
        if given is None:
            return None
        return any(compare(given, each.value, (source, each.type)) == 0 for each in node.values)

    return value
