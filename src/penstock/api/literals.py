"""Turning Python values into literals, whose values are physical: ticks for times."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa

from penstock.errors import ExpressionTypeError
from penstock.expr.nodes import Literal
from penstock.types.arrow import kind_of, physical_values, plain_type


def literal(value: object, dtype: pa.DataType | None = None) -> Literal:
    """Make a literal of the type that fits the value, or of the type given."""
    if dtype is None and value is not None:
        dtype = _natural_type(value)
    if value is None:
        return Literal(None, dtype or pa.null())
    return Literal(_physical(value, dtype or pa.null()), dtype or pa.null())


def _natural_type(value: object) -> pa.DataType:
    match value:
        case bool():
            return pa.bool_()
        case int():
            return pa.uint64() if value > 2**63 - 1 else pa.int64()
        case float():
            return pa.float64()
        case str():
            return pa.string()
        case datetime():
            return pa.timestamp("us", None if value.tzinfo is None else "UTC")
        case date():
            return pa.date32()
        case timedelta():
            return pa.duration("us")
        case _:
            return _arrow_type(value)


def _arrow_type(value: object) -> pa.DataType:
    """Let Arrow tell the type of what is not a plain Python value, such as a NumPy scalar."""
    try:
        dtype = value.type if isinstance(value, pa.Scalar) else pa.scalar(value).type
    except (pa.ArrowException, TypeError, ValueError):
        dtype = pa.null()
    if kind_of(dtype) in ("other", "null"):
        raise ExpressionTypeError(
            f"a {type(value).__name__} cannot stand in an expression; "
            "use a number, string, bool, datetime, date, timedelta or None"
        )
    return plain_type(dtype)


def _physical(value: Any, dtype: pa.DataType) -> object:
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = value.astimezone(UTC)
    try:
        array = pa.array([value.as_py() if isinstance(value, pa.Scalar) else value], dtype)
    except (pa.ArrowException, TypeError, ValueError, OverflowError, UnicodeError) as reason:
        raise ExpressionTypeError(f"the literal {_shown(value)} does not fit {dtype}") from reason
    return physical_values(array)[0]


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
