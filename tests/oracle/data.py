"""Rows as plain Python values: the common ground on which results are compared.

Temporal values become integer ticks of their type, dictionaries their strings, float32 its double.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

Value = bool | int | float | str | None
Row = dict[str, Value]

_TICKS_AS_INT32 = (pa.types.is_date32, pa.types.is_time32)


def plain_type(dtype: pa.DataType) -> pa.DataType:
    """Name the Arrow type a column has once its temporal meaning is stripped."""
    if pa.types.is_dictionary(dtype):
        return dtype.value_type
    if any(test(dtype) for test in _TICKS_AS_INT32):
        return pa.int32()
    return pa.int64() if pa.types.is_temporal(dtype) else dtype


def plain_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Strip the temporal meaning, leaving ticks."""
    target = plain_type(column.type)
    return column if target == column.type else pc.cast(column, target)


def plain_table(table: pa.Table) -> pa.Table:
    return pa.table([plain_column(column) for column in table.columns], names=table.column_names)


def rows_of(table: pa.Table) -> list[Row]:
    """List the rows of a table as dictionaries of plain values."""
    columns = [plain_column(column).to_pylist() for column in table.columns]
    return [dict(zip(table.column_names, values, strict=True)) for values in zip(*columns, strict=True)]
