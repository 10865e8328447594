"""Columns from folder names: the value of `day=2026-01-01/` applies to every row of the files in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.errors import SchemaMismatchError
from penstock.sources.paths import FoundFile, Partition, partition_fields


def with_partitions(schema: pa.Schema, found: Sequence[FoundFile]) -> pa.Schema:
    """Add the columns of folders. A folder's value replaces a column of the same name in the file."""
    for field in partition_fields(found):
        place = schema.get_field_index(field.name)
        schema = schema.append(field) if place < 0 else schema.set(place, field)
    return schema


def constant(text: str | None, field: pa.Field, path: str) -> pa.Scalar:
    """Parse a folder's value as the column's type."""
    if text is None:
        return pa.nulls(1, field.type)[0]
    try:
        return _texts(text).cast(field.type)[0]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise SchemaMismatchError(
            f"the folder of {path!r} gives column {field.name!r} a value that is no {field.type}; "
            "declare it as a string with schema="
        ) from None


def _texts(text: str) -> pa.Array:
    """Return one text as an array. (`pa.array` would import pandas where it is installed.)"""
    data = text.encode()
    offsets = (0).to_bytes(4, "little") + len(data).to_bytes(4, "little")
    return pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def completed(
    batch: pa.RecordBatch, partition: Partition, schema: pa.Schema, columns: Sequence[str], path: str
) -> pa.RecordBatch:
    """Combine the columns of a file and of its folders in the requested order."""
    given = dict(partition)
    if not given.keys() & set(columns):
        return batch
    fields = [schema.field(name) for name in columns]
    arrays: list[Any] = [
        _repeated(given[field.name], field, batch.num_rows, path)
        if field.name in given
        else batch.column(field.name)
        for field in fields
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _repeated(text: str | None, field: pa.Field, rows: int, path: str) -> pa.Array:
    return pa.nulls(rows, field.type) if text is None else pa.repeat(constant(text, field, path), rows)
