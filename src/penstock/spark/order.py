"""The row order of a DataFrame, which has none: by time, sequence, then the values of the columns that the query reads.

Spark sorts partitions and Arrow sorts tables. Both must produce the same order, so both are defined here:
nulls first, NaN last, texts by their bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.runtime.buffers import indices, ticks_of
from penstock.spark.decode_dictionaries import decoded
from penstock.types.arrow import kind_of

if TYPE_CHECKING:
    from pyspark.sql import Column


def ranked(time: str, sequence: str | None, schema: pa.Schema) -> list[str]:
    """List the columns that order rows, most significant first. Types without an order are left out."""
    first = [time, *([sequence] if sequence else [])]
    names = [name for name in dict.fromkeys([*first, *schema.names]) if name in schema.names]
    return [name for name in names if kind_of(schema.field(name).type) not in ("other", "null")]


def in_order(table: pa.Table, time: str, sequence: str | None, by: Sequence[str] | None = None) -> pa.Table:
    """Sort rows in Spark's order, by the values of all columns or of those in `by`."""
    import pyarrow.compute as pc  # noqa: PLC0415 - loads when rows of a DataFrame are sorted

    keys: dict[str, pa.ChunkedArray] = {}
    looked_at = table.schema if by is None else table.select(list(by)).schema
    for place, name in enumerate(ranked(time, sequence, looked_at)):
        column = decoded(table.column(name))
        keys[f"{place} there"] = pc.is_valid(column)  # false sorts first
        if kind_of(column.type) == "float":
            keys[f"{place} nan"] = pc.is_nan(column)
        keys[f"{place}"] = column
    if not keys or table.num_rows < 2:
        return table
    order = pc.sort_indices(pa.table(keys), sort_keys=[(name, "ascending") for name in keys])
    return table.take(order)


def latest_first(table: pa.Table, time: str) -> pa.Table:
    """Sort rows by descending time. Rows of equal time keep their order.

    >>> latest_first(pa.table({"t": [1, 2, 1], "v": [3, 4, 5]}), "t")["v"].to_pylist()
    [4, 3, 5]
    """
    times = ticks_of(table.column(time).combine_chunks())[::-1]
    return table.take(indices(len(times) - 1 - np.argsort(times, kind="stable")[::-1]))


def ties(ordered: pa.Table, time: str, sequence: str | None) -> int:
    """Count the rows with the same time and sequence as the row before: only their values order them.

    >>> ties(pa.table({"t": [1, 1, 2], "v": [3, 4, 4]}), "t", None)
    1
    """
    import pyarrow.compute as pc  # noqa: PLC0415 - loads when rows of a DataFrame are sorted

    before, after = ordered.slice(0, max(ordered.num_rows - 1, 0)), ordered.slice(1)
    same = pc.equal(before.column(time), after.column(time))
    if sequence is not None:
        same = pc.and_(same, _same_values(before.column(sequence), after.column(sequence)))
    return int(pc.sum(same).as_py() or 0)


def _same_values(first: pa.ChunkedArray, second: pa.ChunkedArray) -> pa.ChunkedArray:
    """Compare two columns; two nulls are equal."""
    import pyarrow.compute as pc  # noqa: PLC0415

    neither = pc.and_(pc.is_null(first), pc.is_null(second))
    return pc.or_(neither, pc.fill_null(pc.equal(decoded(first), decoded(second)), False))


def spark_order(names: Sequence[str]) -> list[Column]:
    """Return the columns that Spark sorts by."""
    from pyspark.sql import functions as sf  # noqa: PLC0415 - Spark loads when it is used

    return [sf.col(quoted(name)).asc_nulls_first() for name in names]


def quoted(name: str) -> str:
    """Quote a column name for Spark."""
    return "`" + name.replace("`", "``") + "`"
