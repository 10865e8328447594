"""State tables: the form in which stages save their state, and validation of loaded columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

import numpy as np
import pyarrow as pa

from penstock.errors import StateError
from penstock.runtime.buffers import indices, values_view


@dataclass(frozen=True)
class StateTable:
    """Rows of a stage's state, identified by the columns of `ranks`, then `keys`.

    Rows are saved in that order, and split into chunks by the hash of `keys`, then by the first of `ranks`: 64-bit
    integers that grow with time.
    """

    table: pa.Table
    keys: tuple[str, ...] = ()
    ranks: tuple[str, ...] = ()


def scalars(**numbers: int) -> StateTable:
    """A state table of named integers, as one row.

    >>> read_scalars(scalars(watermark=7).table)
    {'watermark': 7}
    """
    arrays = [indices(np.array([number])) for number in numbers.values()]
    return StateTable(pa.Table.from_arrays(arrays, names=list(numbers)))


def read_scalars(table: pa.Table) -> dict[str, int]:
    """Read the integers that `scalars` wrote."""
    require(table.num_rows == 1, "a row of numbers")
    return {name: int(integers(table, name)[0]) for name in table.column_names}


def integers(table: pa.Table, name: str) -> np.ndarray:
    """A column of 64-bit integers."""
    return values_view(complete(table, name, pa.int64()))


def complete(table: pa.Table, name: str, dtype: pa.DataType) -> pa.Array:
    """A column of a type, without nulls."""
    return without_nulls(typed(table, name, dtype), name)


def typed(table: pa.Table, name: str, dtype: pa.DataType) -> pa.Array:
    """A column that must have the given type: kernels read its memory as such."""
    return of_type(array_of(table, name), name, dtype)


def of_type(array: pa.Array, name: str, dtype: pa.DataType) -> pa.Array:
    """Refuse a column of another type."""
    return array if array.type == dtype else _refuse(name)


def without_nulls(array: pa.Array, name: str) -> pa.Array:
    """Refuse a column with nulls."""
    return _refuse(name) if array.null_count else array


def require(holds: bool | np.bool_, what: str) -> None:
    """Refuse a saved table that violates an invariant of saved states."""
    if not holds:
        raise StateError(f"the saved state is inconsistent in {what}; start the query anew")


def require_form(same: bool | np.bool_) -> None:
    """Refuse a state that holds rows where this run holds states per key, or the other way round."""
    if not same:
        raise StateError(
            "the saved state belongs to another choice of what an operator holds, rows or states per key; "
            "open it with the aggregator= of the Engine that saved it"
        )


def numbered_from_zero(table: pa.Table, name: str) -> pa.Table:
    """Sort rows by a column that numbers them; refuse missing or duplicate numbers."""
    numbers = integers(table, name)
    order = np.argsort(numbers, kind="stable")
    require((numbers[order] == np.arange(len(order))).all(), f"the numbers of column {name!r}")
    return table.take(indices(order)).combine_chunks()


def _refuse(name: str) -> NoReturn:
    raise StateError(f"column {name!r} of a saved table is not what this query saves there")


def array_of(table: pa.Table, name: str) -> pa.Array:
    """A copy of a column in one piece, which the stage that loads it may write to."""
    return table.column(name).combine_chunks()


def seen(table: pa.Table, name: str) -> pa.Array:
    """A column in one piece for reading only: copied only if it has several chunks."""
    column = table.column(name)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
