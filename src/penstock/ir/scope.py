"""The columns that expressions of a windowed object may reference, and the types of its reductions."""

from __future__ import annotations

import pyarrow as pa

from penstock.expr.nodes import Aggregate
from penstock.expr.typing import column_type, type_of
from penstock.ir.nodes import Attach, Object, Reduce, Reduction, RollingJoin, Windowed
from penstock.types.time import Time
from penstock.types.windows import (
    JOIN_TIME,
    WINDOW_END,
    WINDOW_START,
    CarriedWindow,
    left_column,
    right_column,
)


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


# --- The columns that fields and conditions of joins may reference, and the types of their reductions.


def pair_scope(time: Time, left: pa.Schema, right: pa.Schema) -> pa.Schema:
    """List the columns of a pair of samples: the window's bounds, left.x, right.y, and the later time."""
    clock = time.type
    return pa.schema(
        [
            *(pa.field(name, clock) for name in (WINDOW_START, WINDOW_END)),
            *(pa.field(left_column(field.name), field.type) for field in left),
            *(pa.field(right_column(field.name), field.type) for field in right),
            pa.field(JOIN_TIME, clock),
        ]
    )


def rolling_types(body: RollingJoin, right: Object) -> tuple[pa.DataType, ...]:
    """Return the types of `Reduced(0)`, `Reduced(1)`, … in the fields of a rolling join."""
    return tuple(result_type(reduction, right.schema) for reduction in body.reductions)
