"""Buffered rows as state tables: their columns, their time, and their position among rows of equal time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.runtime.buffers import indices, plain
from penstock.state.state_table import StateTable, array_of, integers, typed

_PREFIX = "row:"  # keeps row columns distinct from the added columns


def kept_rows(rows: pa.Table, times: np.ndarray, keys: Sequence[str], **beside: pa.Array) -> StateTable:
    """Build a state table of rows sorted by time, stably, with the additional columns `beside`.

    Only positions among rows of equal time are saved: they do not change when other rows are added or removed.
    """
    order = np.argsort(times, kind="stable")
    ordered = times[order]
    number = np.arange(len(order))
    begins = np.diff(ordered, prepend=ordered[:1]) != 0
    place = number - np.maximum.accumulate(np.where(begins, number, 0))
    # Without dictionaries: their order depends on batches that are no longer present.
    columns = {f"{_PREFIX}{name}": plain(array_of(rows, name)) for name in rows.column_names} | beside
    chosen = indices(order)
    arrays = [indices(ordered), indices(place), *(column.take(chosen) for column in columns.values())]
    table = pa.Table.from_arrays(arrays, names=["time", "place", *columns])
    return StateTable(table, tuple(f"{_PREFIX}{name}" for name in keys), ("time", "place"))


def in_order(table: pa.Table) -> pa.Table:
    """Sort saved rows into their order."""
    times, places = (integers(table, name) for name in ("time", "place"))
    return table.take(indices(np.lexsort((places, times)))).combine_chunks()


def rows_of(table: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    """The rows without the additional columns."""
    arrays = [_column(table, field) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _column(table: pa.Table, field: pa.Field) -> pa.Array:
    name, dtype = f"{_PREFIX}{field.name}", field.type
    if not pa.types.is_dictionary(dtype):
        return typed(table, name, dtype)
    encoded = typed(table, name, dtype.value_type).dictionary_encode()
    return pa.DictionaryArray.from_arrays(
        encoded.indices.cast(dtype.index_type), encoded.dictionary, ordered=dtype.ordered
    )
