"""Translate filters for Spark to apply before rows leave the JVM.

Only predicates that Spark certainly evaluates like Penstock are translated. The query filters again, so a filter may keep too many rows.
"""

from __future__ import annotations

from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.expr.nodes import Call, Column, Expr, IsIn, Literal, fold
from penstock.spark.order import quoted
from penstock.types.arrow import kind_of

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn

_PLAIN = frozenset({"bool", "int", "string", "decimal"})


def spark_filter(expr: Expr, schema: pa.Schema) -> SparkColumn | None:
    """Translate a predicate, or as many terms of a conjunction as possible; None if there are none."""
    return fold(expr, lambda node, parts: _translated(node, parts, schema))


def _translated(expr: Expr, parts: tuple[SparkColumn | None, ...], schema: pa.Schema) -> SparkColumn | None:
    from pyspark.sql import functions as sf  # noqa: PLC0415 - Spark loads when it is used

    known = [part for part in parts if part is not None]
    match expr:
        case Call("and"):
            return reduce(and_, known) if known else None
        case Call("or"):
            return reduce(or_, known) if len(known) == len(parts) else None
        case Call("is_null" | "is_not_null" as name, (Column(column),)) if column in schema.names:
            return sf.isnull(quoted(column)) if name == "is_null" else sf.isnotnull(quoted(column))
        case Call("eq" | "ne" | "lt" | "le" | "gt" | "ge" as name, (Column(column), Literal() as value)):
            alike = _known(column, [value], schema)
            return _compared(name, sf.col(quoted(column)), sf.lit(value.value)) if alike else None
        case IsIn(Column(column), values) if _known(column, values, schema):
            return sf.col(quoted(column)).isin([value.value for value in values])
        case _:
            return None


def _known(column: str, values: Any, schema: pa.Schema) -> bool:
    """Check that both engines compare a column and constants alike: plain types of one kind, no nulls."""
    kind = kind_of(schema.field(column).type) if column in schema.names else "other"
    return kind in _PLAIN and all(
        value.value is not None and kind_of(value.type) == kind and _fits(value.value) for value in values
    )


def _fits(value: object) -> bool:
    return not isinstance(value, int) or abs(value) < 1 << 63


def _compared(name: str, column: Any, value: Any) -> Any:
    match name:
        case "eq":
            return column == value
        case "ne":
            return column != value
        case "lt":
            return column < value
        case "le":
            return column <= value
        case "gt":
            return column > value
        case _:
            return column >= value


# --- filters of Spark on the result of a query ------------------------------------------------------------------

_ORDERED = {"LessThan": "lt", "LessThanOrEqual": "le", "GreaterThan": "gt", "GreaterThanOrEqual": "ge"}
_EXACT = frozenset({"bool", "int", "string", "timestamp", "date"})


def penstock_filter(given: Any, schema: pa.Schema) -> Expr | None:
    """Translate a filter that Spark pushes to a data source; None if it is not one that both evaluate alike.

    >>> from types import SimpleNamespace
    >>> class EqualTo(SimpleNamespace): pass
    >>> penstock_filter(EqualTo(attribute=("k",), value=3), pa.schema({"k": pa.int64()})).name
    'eq'
    """
    place: tuple[str, ...] = getattr(given, "attribute", ())
    kind = type(given).__name__
    if len(place) != 1 or place[0] not in schema.names:
        return None
    dtype = schema.field(place[0]).type
    values = given.value if kind == "In" else [getattr(given, "value", None)]
    literals = [_literal(value, dtype) for value in values]
    known = [literal for literal in literals if literal is not None]
    if len(known) < len(literals) or not known or kind_of(dtype) not in _EXACT:
        return None
    if kind == "In":
        return IsIn(Column(place[0]), tuple(known))
    name = "eq" if kind == "EqualTo" else _ORDERED.get(kind)
    return None if name is None else Call(name, (Column(place[0]), known[0]))


def _literal(value: object, dtype: pa.DataType) -> Literal | None:
    """Return a constant in the type of a column; None if it is not exactly one of its values."""
    if value is None or not _fits(value):
        return None
    try:
        exact = pa.scalar(value, dtype)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return None
    same = exact.as_py() == value and isinstance(exact.as_py(), type(value))
    return Literal(exact.value if pa.types.is_temporal(dtype) else exact.as_py(), dtype) if same else None
