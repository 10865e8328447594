"""The columns that fields and conditions of joins may reference, and the types of their reductions."""

from __future__ import annotations

import pyarrow as pa

from penstock.ir.joins import RollingJoin
from penstock.ir.nodes import Object
from penstock.ir.scope import result_type
from penstock.types.time import Time
from penstock.types.windows import JOIN_TIME, WINDOW_END, WINDOW_START, left_column, right_column


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
