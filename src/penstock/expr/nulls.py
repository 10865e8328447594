"""Nulls without a type take one from where they stand."""

from __future__ import annotations

import pyarrow as pa

from penstock.expr.nodes import Aggregate, Call, Case, Column, Expr, Literal, children, with_children
from penstock.expr.typing import known_operands, operand_of, type_of
from penstock.types.arrow import kind_of


def typed_nulls(node: Expr, schema: pa.Schema) -> Expr:
    """Give every untyped null directly beside other values the type it takes from them."""
    match node:
        case Call(args=args) if any(is_untyped(arg, schema) for arg in args):
            known = known_operands([operand_of(arg, type_of(arg, schema)) for arg in args])
            typed = [null_as(arg, each.type, schema) for arg, each in zip(args, known, strict=True)]
            return with_children(node, tuple(typed))
        case Case(branches=branches, otherwise=otherwise):
            dtype = type_of(node, schema)
            pairs = tuple((condition, null_as(value, dtype, schema)) for condition, value in branches)
            return Case(pairs, null_as(otherwise, dtype, schema))
        case Aggregate(args=args, where=where) if any(is_untyped(each, schema) for each in children(node)):
            type_of(node, schema)  # most take no null without a type; to those that count, any type will do
            counted = tuple(null_as(arg, pa.int64(), schema) for arg in args)
            condition = () if where is None else (null_as(where, pa.bool_(), schema),)
            return with_children(node, (*counted, *condition))
        case _:
            return node


def is_untyped(expr: Expr, schema: pa.Schema) -> bool:
    """Find nulls without a type: literals, and columns that hold nothing else."""
    return isinstance(expr, Literal | Column) and kind_of(type_of(expr, schema)) == "null"


def null_as(expr: Expr, dtype: pa.DataType, schema: pa.Schema) -> Expr:
    """Give an expression the type if it is an untyped null."""
    return Literal(None, dtype) if is_untyped(expr, schema) else expr
