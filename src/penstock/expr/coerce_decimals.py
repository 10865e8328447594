"""Write conversions from and to decimals into expressions, so that kernels meet operands of one kind.

price * 2          decimal and whole number: the number becomes a decimal
price * 1.5        decimal and float: both are floats
sqrt(price)        a function of floats
var(price)         an aggregate of floats
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import pyarrow as pa

from penstock.expr import decimals
from penstock.expr.nodes import Aggregate, Call, Case, Cast, Expr, IsIn, Literal, with_children
from penstock.expr.typing import operand_of, type_of
from penstock.types.arrow import kind_of, value_type

_ALIKE = frozenset({"least", "greatest", "fill_null"})
_COMPARED = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
_WHOLE = ("int", "uint")


def coerced_decimals(node: Expr, schema: pa.Schema) -> Expr:
    """Cast the operands of one node, if a decimal is among them.

    >>> from penstock.expr.nodes import Column
    >>> schema = pa.schema({"d": pa.decimal128(9, 2), "f": pa.float64()})
    >>> coerced_decimals(Call("mul", (Column("d"), Column("f"))), schema).args[0].type
    DataType(double)
    """
    match node:
        case Call(args=args) | Aggregate(args=args):
            types = [value_type(type_of(arg, schema)) for arg in args]
        case Case(branches=branches, otherwise=otherwise):
            types = [
                value_type(type_of(value, schema)) for value in (*(value for _, value in branches), otherwise)
            ]
        case IsIn(arg=arg):
            types = [value_type(type_of(arg, schema)), *(value.type for value in node.values)]
        case _:
            return node
    return _coerced(node, types, schema) if any(map(decimals.is_exact, types)) else node


def _coerced(node: Expr, types: Sequence[pa.DataType], schema: pa.Schema) -> Expr:
    match node:
        case Call():
            return _call(node, types, schema)
        case Aggregate(args=args, where=where):
            if kind_of(type_of(node, schema)) != "float":
                return node
            converted = tuple(map(_as_float, args, types))
            return with_children(node, converted if where is None else (*converted, where))
        case Case(branches=branches, otherwise=otherwise):
            goal = type_of(node, schema)
            pairs = tuple(
                (test, _as(value, dtype, goal)) for (test, value), dtype in zip(branches, types, strict=False)
            )
            return Case(pairs, _as(otherwise, types[-1], goal))
        case IsIn(arg=arg, values=values):
            return _membership(arg, values, types)
    return node


def _call(call: Call, types: Sequence[pa.DataType], schema: pa.Schema) -> Expr:
    goal = type_of(call, schema)
    if call.function in _ALIKE:
        return Call(
            call.function,
            tuple(_as(arg, dtype, goal) for arg, dtype in zip(call.args, types, strict=True)),
            call.options,
        )
    if len(call.args) != 2 and kind_of(goal) != "float":
        return call
    if kind_of(goal) == "float" or (call.function in _COMPARED and _has_float(types)):
        return Call(call.function, tuple(map(_as_float, call.args, types)), call.options)
    return Call(call.function, tuple(map(_as_decimal, call.args, types)), call.options)


def _membership(arg: Expr, values: tuple[Literal, ...], types: Sequence[pa.DataType]) -> Expr:
    if _has_float(types):
        made = [_as_float(value, value.type) for value in values]
        return IsIn(_as_float(arg, types[0]), tuple(value for value in made if isinstance(value, Literal)))
    made = [_as_decimal(value, value.type) for value in values]
    return IsIn(_as_decimal(arg, types[0]), tuple(value for value in made if isinstance(value, Literal)))


def _has_float(types: Sequence[pa.DataType]) -> bool:
    return any(kind_of(dtype) == "float" for dtype in types)


def _as(expr: Expr, dtype: pa.DataType, goal: pa.DataType) -> Expr:
    """Convert implicitly to the common type of several values."""
    if dtype == goal or kind_of(dtype) == "null":
        return expr
    return _as_float(expr, dtype) if kind_of(goal) == "float" else _rescaled(_as_decimal(expr, dtype), goal)


def _rescaled(expr: Expr, goal: pa.DataType) -> Expr:
    if isinstance(expr, Literal) and isinstance(expr.value, Decimal):
        return Literal(decimals.fit(expr.value, goal, "a literal"), goal)
    return Cast(expr, goal)


def _as_float(expr: Expr, dtype: pa.DataType) -> Expr:
    if not decimals.is_exact(dtype):
        return expr
    if isinstance(expr, Literal) and isinstance(expr.value, Decimal):
        return Literal(decimals.to_float(expr.value, dtype), pa.float64())
    return Cast(expr, pa.float64())


def _as_decimal(expr: Expr, dtype: pa.DataType) -> Expr:
    """Convert a whole number to the narrowest decimal that holds it."""
    size = decimals.size_of(operand_of(expr, dtype)) if kind_of(dtype) in _WHOLE else None
    if size is None:
        return expr
    goal = pa.decimal128(size[0], 0)
    if isinstance(expr, Literal):
        return Literal(None if expr.value is None else decimals.exact(expr.value), goal)
    return Cast(expr, goal)
