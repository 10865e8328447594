"""Find expressions that are defined even where all their inputs are null, such as `or_else(0)`."""

from __future__ import annotations

from penstock.errors import PenstockError
from penstock.expr.evaluate import evaluate
from penstock.ir.signals.nodes import Expression
from penstock.ir.signals.scope import Schemas, reduced_types, scope


def is_lenient(body: Expression, schemas: Schemas) -> bool:
    """Return whether a field is not null where every input is null.

    >>> import pyarrow as pa
    >>> from penstock.expr.nodes import Call, Column, Field, Literal
    >>> from penstock.ir.signals.nodes import At
    >>> filled = Call("fill_null", (Column("0.v"), Literal(0.0, pa.float64())))
    >>> is_lenient(Expression((At("x"),), (), (Field("v", filled),)), {"x": pa.schema({"v": pa.float64()})})
    True
    """
    names, types = scope(body, schemas), reduced_types(body, schemas)
    nothing = dict.fromkeys(names.names)
    try:
        values = [evaluate(field.expr, nothing, names, (None,) * len(types), types) for field in body.fields]
    except PenstockError:
        return True  # a failing expression computes a value too
    return any(value is not None for value in values)
