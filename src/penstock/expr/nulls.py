"""Infer the types of untyped nulls from their context."""

from __future__ import annotations

import pyarrow as pa

from penstock.expr.nodes import Aggregate, Call, Case, Column, Expr, Literal, children, with_children
from penstock.expr.typing import known_operands, operand_of, type_of
from penstock.types.arrow import kind_of


def typed_nulls(node: Expr, schema: pa.Schema) -> Expr:
    """Give the untyped nulls among a node's operands the type of the other operands."""
    match node:
        case Call(args=args) if any(is_untyped(arg, schema) for arg in args):
            known = known_operands([operand_of(arg, type_of(arg, schema)) for arg in args])
            typed = [null_as(arg, each.type, schema) for arg, each in zip(args, known, strict=True)]
            return with_children(node, tuple(typed))
        case Case(branches=branches, otherwise=otherwise):
            dtype = type_of(node, schema)
            pairs = tuple((condition, null_as(value, dtype, schema)) for condition, value in branches)
            return Case(pairs, null_as(otherwise, dtype, schema))
        case Aggregate(args=args, where=where) if any(is_untyped(child, schema) for child in children(node)):
            type_of(node, schema)  # most aggregates reject untyped nulls; counts take any type
            counted = tuple(null_as(arg, pa.int64(), schema) for arg in args)
            condition = () if where is None else (null_as(where, pa.bool_(), schema),)
            return with_children(node, (*counted, *condition))
        case _:
            return node


def is_untyped(expr: Expr, schema: pa.Schema) -> bool:
    """Return whether an expression is an untyped null: a literal, or a column of type null."""
    return isinstance(expr, Literal | Column) and kind_of(type_of(expr, schema)) == "null"


def null_as(expr: Expr, dtype: pa.DataType, schema: pa.Schema) -> Expr:
    """Return a null of the given type for an untyped null; other expressions unchanged."""
    return Literal(None, dtype) if is_untyped(expr, schema) else expr
