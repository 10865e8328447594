"""Rows that wait, as kept rows: their columns beside their time, and their place among those of the same time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.runtime.buffers import indices, plain
from penstock.runtime.state.state_table import StateTable, array_of, integers, typed

_PREFIX = "row:"  # what we keep beside a row never meets a column of its own


def kept_rows(rows: pa.Table, times: np.ndarray, keys: Sequence[str], **beside: pa.Array) -> StateTable:
    """Keep rows in order of time, those of one time in the order they stand in, with what stands beside them.

    Only places among rows of one time are saved: they stay as they are when other rows come and go.
    """
    order = np.argsort(times, kind="stable")
    ordered = times[order]
    number = np.arange(len(order))
    begins = np.diff(ordered, prepend=ordered[:1]) != 0
    place = number - np.maximum.accumulate(np.where(begins, number, 0))
    # Without dictionaries, whose order depends on batches long gone.
    columns = {f"{_PREFIX}{name}": plain(array_of(rows, name)) for name in rows.column_names} | beside
    chosen = indices(order)
    arrays = [indices(ordered), indices(place), *(column.take(chosen) for column in columns.values())]
    table = pa.Table.from_arrays(arrays, names=["time", "place", *columns])
    return StateTable(table, tuple(f"{_PREFIX}{name}" for name in keys), ("time", "place"))


def in_order(table: pa.Table) -> pa.Table:
    """Put kept rows back in their order."""
    times, places = (integers(table, name) for name in ("time", "place"))
    return table.take(indices(np.lexsort((places, times)))).combine_chunks()


def rows_of(table: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    """The rows themselves, without what was kept beside them."""
    arrays = [_column(table, each) for each in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _column(table: pa.Table, field: pa.Field) -> pa.Array:
    name, dtype = f"{_PREFIX}{field.name}", field.type
    if not pa.types.is_dictionary(dtype):
        return typed(table, name, dtype)
    encoded = typed(table, name, dtype.value_type).dictionary_encode()
    return pa.DictionaryArray.from_arrays(
        encoded.indices.cast(dtype.index_type), encoded.dictionary, ordered=dtype.ordered
    )
