"""Ranks of values: 0 for the smallest distinct value, so that kernels are independent of types."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
import pyarrow as pa

from penstock.algorithms.sort.sorting import Sorter
from penstock.runtime.buffers import PAIR, indices, plain, to_arrow, values_view

_Values = TypeVar("_Values")

# Integers in a range of at most SPARSEST_RANKS times the number of rows are ranked by subtraction.
SPARSEST_RANKS = 2


def ranked(column: pa.Array, counts: np.ndarray | None, sorter: Sorter) -> tuple[np.ndarray, pa.Array]:
    """The rank of each row's value, -1 if the row is not selected, and the values by rank.

    NaN is one value and the largest; -0.0 becomes 0.0.
    """
    return _where(counts, plain(column), lambda known: _numbered(known, sorter))


def placed(
    column: pa.Array, counts: np.ndarray | None, sorter: Sorter
) -> tuple[np.ndarray, tuple[np.ndarray, bool]]:
    """The position of each row in sort order, -1 if the row is not selected, and the number at each position.

    Integers in a narrow range need no sorting: their positions are ranks, which equal values share; the flag is True then.
    """

    def numbers(known: pa.Array) -> tuple[np.ndarray, tuple[np.ndarray, bool]]:
        values = _numbers(known)
        narrow = _narrowly(values, np.int32)
        if narrow is not None:
            return narrow[0], (narrow[1].astype(np.float64), True)
        places, in_order = sorter.placed(values.astype(np.float64, copy=False))
        return places, (in_order, False)

    return _where(counts, plain(column), numbers)


def _where(
    counts: np.ndarray | None, column: pa.Array, number: Callable[[pa.Array], tuple[np.ndarray, _Values]]
) -> tuple[np.ndarray, _Values]:
    """Number the selected rows, and give the others -1."""
    if counts is None:
        return number(column)
    rows = np.flatnonzero(counts)
    known, values = number(column.take(indices(rows)))
    numbers = np.full(len(column), -1, known.dtype)
    numbers[rows] = known
    return numbers, values


def _numbered(column: pa.Array, sorter: Sorter) -> tuple[np.ndarray, pa.Array]:
    """Rank non-null values."""
    dtype = column.type
    if pa.types.is_string(dtype) or pa.types.is_large_string(dtype):
        return _of_texts(column)
    values = _numbers(column)
    if values.dtype == PAIR:
        return _of_pairs(values, dtype)
    narrow = _narrowly(values, np.int64)
    if narrow is not None:
        return narrow[0], to_arrow(narrow[1], None, dtype)
    return _of_numbers(values, dtype, sorter)


def _narrowly(values: np.ndarray, dtype: type[np.generic]) -> tuple[np.ndarray, np.ndarray] | None:
    """Rank integers by subtraction, and list the value of each rank, if their range is narrow."""
    if values.dtype.kind == "f" or not len(values):
        return None
    least, most = values.min(), values.max()
    span = int(most) - int(least)
    if span > SPARSEST_RANKS * len(values):
        return None
    ranks = values.astype(np.int64) - least.astype(np.int64)  # the difference may overflow their type
    return ranks.astype(dtype, copy=False), np.arange(span + 1).astype(values.dtype) + least


def _numbers(column: pa.Array) -> np.ndarray:
    if pa.types.is_boolean(column.type):
        bits: np.ndarray = column.to_numpy(zero_copy_only=False)
        return bits.astype(np.uint8)
    return values_view(column)


def _of_numbers(values: np.ndarray, dtype: pa.DataType, sorter: Sorter) -> tuple[np.ndarray, pa.Array]:
    ranks, first = sorter.ranks(_ordered_words(values, sorter))
    found = values[first]
    if found.dtype.kind == "f":
        found = found + 0.0  # turns -0.0 into 0.0, and changes nothing else
    return ranks, to_arrow(found, None, dtype)


def _ordered_words(values: np.ndarray, sorter: Sorter) -> np.ndarray:
    """Integers in the order of the values."""
    if values.dtype.kind == "f":
        return sorter.words(values.astype(np.float64, copy=False))
    if values.dtype.kind == "u" and values.dtype.itemsize == 8:
        flipped: np.ndarray = (values ^ np.uint64(1 << 63)).view(np.int64)
        return flipped
    return values.astype(np.int64, copy=False)


def _of_pairs(values: np.ndarray, dtype: pa.DataType) -> tuple[np.ndarray, pa.Array]:
    """Rank decimals of two words: by the upper one, then by the lower one without its sign."""
    words = values.view(np.int64).reshape(-1, 2)
    order = np.lexsort((words[:, 0].view(np.uint64), words[:, 1]))
    ordered = words[order]
    new = np.ones(len(order), np.bool_)
    new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.cumsum(new) - 1
    return ranks, to_arrow(np.ascontiguousarray(values[order[new]]), None, dtype)


def _of_texts(column: pa.Array) -> tuple[np.ndarray, pa.Array]:
    import pyarrow.compute as pc  # noqa: PLC0415 - takes 50 ms to load, and texts are rarely ranked

    coded = column.dictionary_encode()
    order = pc.sort_indices(coded.dictionary)  # by bytes
    rank = np.empty(len(order), np.int64)
    rank[order.to_numpy()] = np.arange(len(order))
    return rank[coded.indices.to_numpy()], coded.dictionary.take(order)
