"""The namespace of structs, `.struct`, named as in Polars."""

from __future__ import annotations

from penstock.api.expr import Expr, call
from penstock.api.literals import shown
from penstock.errors import ExpressionTypeError
from penstock.types.arrow import require_name


class Structs:
    """Nested columns by field.

    A query over Parquet files decodes only the fields that it reads.

    >>> import pyarrow as pa, penstock as pk
    >>> rows = pa.table({"t": [1, 2], "place": [{"city": "Rome", "at": {"lat": 41.9}}, None]})
    >>> places = pk.from_arrow(rows, time="t")
    >>> places.select(pk.col("place").struct.field("city"), lat=pk.col("place").struct.field("at", "lat")).collect().to_pylist()
    [{'t': 1, 'city': 'Rome', 'lat': 41.9}, {'t': 2, 'city': None, 'lat': None}]
    """

    __slots__ = ("_expr",)

    def __init__(self, expr: Expr) -> None:
        self._expr = expr

    def field(self, *names: str) -> Expr:
        """Read a field, which is null where the struct is null; several names lead deeper. The last name names the result."""
        if not names:
            raise ExpressionTypeError("struct.field takes the name of a field, or the names on the way to it")
        found = self._expr
        for name in names:
            if not isinstance(name, str):
                raise ExpressionTypeError(f"a field of a struct is named by a text, not by {shown(name)}")
            found = call("field", found, name=require_name(name))
        return found.alias(names[-1])
