"""The columns that expressions of a windowed object may reference, and the types of its reductions."""

from __future__ import annotations

import pyarrow as pa

from penstock.expr.nodes import Aggregate
from penstock.expr.typing import column_type, type_of
from penstock.ir.nodes import Attach, Object, Reduce, Reduction, Windowed
from penstock.types.windows import WINDOW_END, WINDOW_START, CarriedWindow


def result_type(reduction: Reduction, schema: pa.Schema) -> pa.DataType:
    """Return the type of a reduction over samples of the schema."""
    aggregate = Aggregate(reduction.function, reduction.args, reduction.where, reduction.options)
    return type_of(aggregate, schema)


def result_types(body: Windowed, source: Object) -> tuple[pa.DataType, ...]:
    """Return the types of `Reduced(0)`, `Reduced(1)`, … in the object's fields."""
    return tuple(result_type(reduction, source.schema) for reduction in body.reductions)


def result_scope(body: Reduce | Attach, source: Object) -> pa.Schema:
    """List the columns that `fields` and `having` may reference: window bounds, then keys or source columns."""
    bounds = [pa.field(name, _bound_type(name, body, source)) for name in (WINDOW_START, WINDOW_END)]
    if isinstance(body, Reduce):
        others = [pa.field(key.name, type_of(key.expr, source.schema)) for key in body.keys]
    else:
        others = [column for column in source.schema if column.name not in {WINDOW_START, WINDOW_END}]
    return pa.schema([*bounds, *others])


def _bound_type(name: str, body: Reduce | Attach, source: Object) -> pa.DataType:
    return column_type(name, source.schema) if isinstance(body.domain, CarriedWindow) else source.time.type
