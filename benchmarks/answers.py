"""Compare answers: rows in any order, floats within what different orders of adding explain."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

TOLERANCE = 1e-9
"""Contenders add floats in different orders; the largest number of a column is the yardstick."""


def normalise(table: pa.Table) -> pa.Table:
    """Sort rows by all columns but the last, drop chunking and metadata: equal answers compare equal.

    An answer of one column is in the order of its rows: there is nothing to sort it by.
    """
    keys = [(name, "ascending") for name in table.column_names[:-1]]
    ordered = table.sort_by(keys) if keys else table
    return ordered.replace_schema_metadata(None).combine_chunks()


def agree(answer: pa.Table, standard: pa.Table) -> bool:
    """Tell whether two normalised answers are equal, floats nearly so."""
    if answer.schema != standard.schema or answer.num_rows != standard.num_rows:
        return False
    return all(alike(answer.column(name), standard.column(name)) for name in standard.column_names)


def alike(column: pa.ChunkedArray, standard: pa.ChunkedArray) -> bool:
    """Compare two columns of one type and length."""
    if not pa.types.is_floating(standard.type):
        return bool(column.equals(standard))
    if not column.is_null().equals(standard.is_null()):
        return False
    values, expected = floats(column), floats(standard)
    scale = np.abs(expected[np.isfinite(expected)]).max(initial=0.0)
    return bool(np.allclose(values, expected, rtol=TOLERANCE, atol=TOLERANCE * scale, equal_nan=True))


def floats(column: pa.ChunkedArray) -> npt.NDArray[np.float64]:
    """Give a column as NumPy floats, NaN where it is null."""
    return np.asarray(column.to_numpy(), np.float64)
