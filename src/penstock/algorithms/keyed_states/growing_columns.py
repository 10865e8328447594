"""Columns that grow at their end: adding rows costs what those rows cost, and Arrow arrays view them without a copy.

Memory is never written twice where an array may view it: a column that is compacted is written anew.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import OverflowError
from penstock.runtime.buffers import longer

FEWEST_ENTRIES = 64
_MOST_TEXT = (1 << 31) - 1


class Growing:
    """Values of one type in memory that doubles."""

    def __init__(self, dtype: npt.DTypeLike = np.int64) -> None:
        self.values = np.zeros(FEWEST_ENTRIES, dtype)

    def put(self, at: int, values: np.ndarray | int, count: int) -> None:
        """Write `count` values from an index on."""
        end = at + count
        if end > len(self.values):
            self.values = longer(self.values, max(2 * len(self.values), end))
        self.values[at:end] = values


class Bits:
    """Flags, packed as in Arrow."""

    def __init__(self) -> None:
        self._packed = Growing(np.uint8)

    def put(self, at: int, flags: np.ndarray) -> None:
        first, inside = at >> 3, at & 7
        head = np.unpackbits(self._packed.values[first : first + 1], bitorder="little")[:inside]
        packed = np.packbits(np.concatenate([head, flags]), bitorder="little")
        self._packed.put(first, packed, len(packed))

    def buffer(self) -> pa.Buffer:
        return pa.py_buffer(self._packed.values)


class _Validity:
    """Which values are there; nothing is stored before the first null."""

    def __init__(self) -> None:
        self.nulls = 0
        self._bits: Bits | None = None

    def put(self, at: int, array: pa.Array) -> None:
        nulls = array.null_count
        if not nulls and self._bits is None:
            return
        if self._bits is None:
            self._bits = Bits()
            self._bits.put(0, np.ones(at, np.bool_))
        valid = array.is_valid().to_numpy(zero_copy_only=False) if nulls else np.ones(len(array), np.bool_)
        self._bits.put(at, valid)
        self.nulls += nulls

    def buffer(self) -> pa.Buffer | None:
        return None if self._bits is None else self._bits.buffer()


class GrowingColumn(Protocol):
    """One growing column."""

    def put(self, at: int, array: pa.Array) -> None:
        """Write an array from an index on."""

    def array(self, count: int) -> pa.Array:
        """View the first values."""


class _Fixed:
    """Values of a whole number of bytes."""

    def __init__(self, dtype: pa.DataType) -> None:
        self._type, self._width = dtype, dtype.bit_width // 8
        self._words = np.dtype(f"u{self._width}") if self._width in (1, 2, 4, 8) else np.dtype(np.uint8)
        self._items_per_row = self._width // self._words.itemsize
        self._values, self._validity = Growing(self._words), _Validity()

    def put(self, at: int, array: pa.Array) -> None:
        count = len(array) * self._items_per_row
        values = np.frombuffer(array.buffers()[1], self._words, count, array.offset * self._width)
        self._values.put(at * self._items_per_row, values, count)
        self._validity.put(at, array)

    def array(self, count: int) -> pa.Array:
        buffers = [self._validity.buffer(), pa.py_buffer(self._values.values)]
        return pa.Array.from_buffers(self._type, count, buffers, self._validity.nulls)


class _Booleans:
    def __init__(self, dtype: pa.DataType) -> None:
        self._type = dtype
        self._values, self._validity = Bits(), _Validity()

    def put(self, at: int, array: pa.Array) -> None:
        values = array.fill_null(False) if array.null_count else array
        self._values.put(at, values.to_numpy(zero_copy_only=False))
        self._validity.put(at, array)

    def array(self, count: int) -> pa.Array:
        buffers = [self._validity.buffer(), self._values.buffer()]
        return pa.Array.from_buffers(self._type, count, buffers, self._validity.nulls)


class _Texts:
    """Texts or byte strings: offsets, and the bytes."""

    def __init__(self, dtype: pa.DataType) -> None:
        self._type = dtype
        self._large = pa.types.is_large_string(dtype) or pa.types.is_large_binary(dtype)
        self._offsets = Growing(np.int64 if self._large else np.int32)
        self._bytes, self._validity = Growing(np.uint8), _Validity()

    def put(self, at: int, array: pa.Array) -> None:
        offsets = self._offsets.values
        given = np.frombuffer(
            array.buffers()[1], offsets.dtype, len(array) + 1, array.offset * offsets.itemsize
        )
        used, begin, end = int(offsets[at]), int(given[0]), int(given[-1])
        if not self._large and used + end - begin > _MOST_TEXT:
            raise OverflowError(
                f"the rows that a join holds do not fit one column of type {self._type}; "
                f"cast it, to large_{self._type} for example"
            )
        data = array.buffers()[2]
        if data is not None and end > begin:
            self._bytes.put(used, np.frombuffer(data, np.uint8, end - begin, begin), end - begin)
        self._offsets.put(at + 1, given[1:] + (used - begin), len(array))
        self._validity.put(at, array)

    def array(self, count: int) -> pa.Array:
        data = pa.py_buffer(self._offsets.values), pa.py_buffer(self._bytes.values)
        return pa.Array.from_buffers(
            self._type, count, [self._validity.buffer(), *data], self._validity.nulls
        )


def can_grow(dtype: pa.DataType) -> bool:
    """Whether values of a type can be held in a growing column; dictionaries are decoded."""
    if pa.types.is_dictionary(dtype):
        return can_grow(dtype.value_type)
    return (
        _is_text(dtype)
        or (pa.types.is_primitive(dtype) and not pa.types.is_interval(dtype))
        or _is_wide(dtype)
    )


def growing(dtype: pa.DataType) -> GrowingColumn:
    """Return an empty column of a type."""
    if pa.types.is_boolean(dtype):
        return _Booleans(dtype)
    return _Texts(dtype) if _is_text(dtype) else _Fixed(dtype)


def _is_text(dtype: pa.DataType) -> bool:
    checks = pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary
    return any(check(dtype) for check in checks)


def _is_wide(dtype: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(dtype) or (pa.types.is_fixed_size_binary(dtype) and dtype.byte_width > 0))
