"""Find the expressions that never fail on any row; passes may evaluate those anywhere.

Other expressions (integer overflow, casts out of range) must not be evaluated on rows that a filter before
them drops.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.expr.nodes import Call, Case, Cast, Expr, fold
from penstock.expr.rules import zone_of
from penstock.expr.typing import type_of
from penstock.types.arrow import kind_of, value_type

_ALWAYS = frozenset(
    {
        "field",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "and",
        "or",
        "xor",
        "not",
        "is_null",
        "is_not_null",
        "is_nan",
    }
    | {"div", "pow", "sign", "floor", "ceil", "round", "sqrt", "exp", "log", "log2", "log10"}
    | {"sin", "cos", "tan", "epoch_ticks", "str_len_chars", "str_len_bytes"}
    | {"starts_with", "ends_with", "contains", "to_lower", "to_upper", "to_title", "strip"}
    | {
        "strip_start",
        "strip_end",
        "strip_prefix",
        "strip_suffix",
        "head",
        "tail",
        "reverse",
        "matches",
        "slice",
    }
)
_IF_UTC = frozenset(
    {"year", "month", "day", "quarter", "weekday", "ordinal_day", "week", "iso_year"}
    | {"hour", "minute", "second", "millisecond", "microsecond", "nanosecond"}
)
_IF_FLOAT = frozenset({"add", "sub", "mul", "floordiv", "neg", "abs"})
_IF_ALIKE = frozenset({"fill_null", "least", "greatest"})


def is_total(expr: Expr, schema: pa.Schema, reduced: Sequence[pa.DataType] = ()) -> bool:
    """Return whether the expression can be evaluated for every row of the schema."""
    return fold(expr, lambda node, below: all(below) and _step_is_total(node, schema, reduced))


def _step_is_total(expr: Expr, schema: pa.Schema, reduced: Sequence[pa.DataType]) -> bool:
    match expr:
        case Call(function=function) if function in _IF_FLOAT:
            return kind_of(type_of(expr, schema, reduced)) == "float"
        case Call(function="mod" | "remainder"):
            return kind_of(type_of(expr, schema, reduced)) in {"int", "uint", "float"}
        case Call(function=function, args=args) if function in _IF_UTC:
            return zone_of(value_type(type_of(args[0], schema, reduced))) is None
        case Call(function=function, args=args) if function in _IF_ALIKE:
            return _fit(args, expr, schema, reduced)
        case Call(function=function):
            return function in _ALWAYS
        case Cast(arg=arg):
            return _fit((arg,), expr, schema, reduced)
        case Case(branches=branches, otherwise=otherwise):
            return _fit((*(value for _, value in branches), otherwise), expr, schema, reduced)
        case _:
            return True


def _fit(parts: Sequence[Expr], whole: Expr, schema: pa.Schema, reduced: Sequence[pa.DataType]) -> bool:
    """Return whether every value of the parts' types can be converted to the type of the whole."""
    target = value_type(type_of(whole, schema, reduced))
    return all(_converts(value_type(type_of(part, schema, reduced)), target) for part in parts)


def _converts(source: pa.DataType, target: pa.DataType) -> bool:
    if source == target or kind_of(source) == "null":
        return True
    match kind_of(source), kind_of(target):
        case ("bool" | "int" | "uint" | "float", "float" | "bool") | ("bool", "int" | "uint"):
            return True
        case ("int", "int") | ("uint", "uint"):
            return bool(source.bit_width <= target.bit_width)
        case ("uint", "int"):
            return bool(source.bit_width < target.bit_width)
        case ("string", "string"):
            return True
        case _:
            return False
