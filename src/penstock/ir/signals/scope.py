"""The columns that fields of a temporal object may reference, and their types."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from penstock.expr.nodes import Aggregate
from penstock.expr.typing import type_of
from penstock.ir.signals.nodes import DURATION, Chop, Expression, Feedback, WindowReduction, at, past

Schemas = Mapping[str, pa.Schema]


def scope(body: Expression | Feedback, schemas: Schemas, own: pa.DataType | None = None) -> pa.Schema:
    """List the columns of all accesses, then the object's own past results, which have type `own`."""
    accessed = [
        pa.field(at(i, field.name), field.type)
        for i, access in enumerate(body.accesses)
        for field in schemas[access.source]
    ]
    pasts = body.own if isinstance(body, Feedback) else ()
    return pa.schema([*accessed, *(pa.field(past(i), own) for i in range(len(pasts)))])


def reduced_types(body: Expression | Feedback, schemas: Schemas) -> tuple[pa.DataType, ...]:
    """Return the types of `Reduced(0)`, `Reduced(1)`, … in the fields."""
    return tuple(reduced_type(reduction, schemas[reduction.source]) for reduction in body.reductions)


def reduced_type(reduction: WindowReduction, schema: pa.Schema) -> pa.DataType:
    """Return the type of a reduction over samples of the schema."""
    return type_of(Aggregate(reduction.function, reduction.args, reduction.where, reduction.options), schema)


def fields_schema(body: Expression | Feedback, schemas: Schemas, own: pa.DataType | None = None) -> pa.Schema:
    """Return the schema of the fields."""
    names, types = scope(body, schemas, own), reduced_types(body, schemas)
    return pa.schema([pa.field(column.name, type_of(column.expr, names, types)) for column in body.fields])


def chopped_schema(body: Chop, source: pa.Schema) -> pa.Schema:
    """Return the source's columns and, if requested, the duration of each piece."""
    return pa.schema([*source, pa.field(DURATION, pa.int64())]) if body.durations else source
