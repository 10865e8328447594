"""Conversions between Arrow arrays, NumPy views and machine types, and memory allocation for them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.loop.nodes import I128, Type
from penstock.runtime.buffer_pool import APART, LARGEST, PAGE, SMALLEST, block_of
from penstock.types.arrow import FEW_DIGITS

# Bytes. Smaller arrays are cheap from any allocator; for larger ones, untouched zero pages are cheaper than clearing.
LARGE, TOO_LARGE = 1 << 16, 1 << 25

_BOOLEAN = pa.bool_().id
_DECIMAL = pa.decimal128(1, 0).id
PAIR = np.dtype("V16")  # two words, the low one first

_NUMPY: dict[str, np.dtype] = {
    "bool": np.dtype(np.uint8),
    "i8": np.dtype(np.int8),
    "i16": np.dtype(np.int16),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
    "i128": np.dtype(np.int64),
    "u8": np.dtype(np.uint8),
    "u16": np.dtype(np.uint16),
    "u32": np.dtype(np.uint32),
    "u64": np.dtype(np.uint64),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
}


def numpy_type(type: Type) -> np.dtype:
    """The NumPy type of a value, or of each word of a two-word cell."""
    return _NUMPY[type.name]


def column_type(type: Type) -> np.dtype:
    """The NumPy type of the values of a column that a kernel writes: one element per row."""
    return PAIR if type.bits == I128.bits else _NUMPY[type.name]


def words_per_cell(type: Type) -> int:
    """The number of words of a cell: two for 128 bits, the low word first."""
    return 2 if type.bits == I128.bits else 1


def filled(type: Type, identity: float, cells: int) -> np.ndarray:
    """Allocate cells that hold an identity.

    Zero pages from the system cost nothing until first touched, and then a page fault each. Up to TOO_LARGE bytes,
    clearing pages that were used before costs less than those faults.
    """
    size, dtype = cells * words_per_cell(type), numpy_type(type)
    if identity == 0 and not LARGE <= size * dtype.itemsize <= TOO_LARGE:
        return np.zeros(size, dtype)
    made = room(size, dtype)
    if size == cells:
        made.fill(identity)
    else:
        fill_cells(made, type, identity)
    return made


def fill_cells(cells: np.ndarray, type: Type, identity: float) -> None:
    """Set cells to an identity; of 128 bits to both of its words."""
    if words_per_cell(type) == 1:
        cells.fill(identity)
        return
    low = int(identity) & ((1 << 64) - 1)
    cells[0::2] = low - (1 << 64) if low >> 63 else low
    cells[1::2] = int(identity) >> 64


def room(count: int, dtype: npt.DTypeLike = np.int64) -> np.ndarray:
    """Allocate `count` values with undefined contents.

    Large arrays come from Arrow's memory pool, which reuses pages: fresh pages from the system cost more than most
    kernels spend on them.
    """
    dtype = np.dtype(dtype)
    size = count * dtype.itemsize
    if size < LARGE:
        return np.empty(count, dtype)
    if SMALLEST <= size <= LARGEST:
        return block_of(size).view(dtype)
    return np.frombuffer(pa.allocate_buffer(size), dtype)


def rooms(wanted: Sequence[tuple[int, np.dtype]]) -> list[np.ndarray]:
    """Allocate several arrays, in one block if it is small enough for the buffer pool.

    Allocating the block takes as long as allocating one array. Arrays begin at different offsets of a page, as blocks do
    (see `buffer_pool`).
    """
    places, end = _side_by_side(tuple(wanted))
    if end > LARGEST:
        return [room(count, dtype) for count, dtype in wanted]
    block = room(end, np.uint8)
    return [np.ndarray(count, dtype, block, begin) for begin, count, dtype in places]


@lru_cache(maxsize=64)  # repeated runs of a query allocate the same sizes
def _side_by_side(wanted: tuple[tuple[int, np.dtype], ...]) -> tuple[list[tuple[int, int, np.dtype]], int]:
    """Place arrays in a block; return (begin, count, type) of each, and the end of the block."""
    places, end = [], 0
    for count, dtype in wanted:
        places.append((end, count, dtype))
        end += -(-count * dtype.itemsize // PAGE) * PAGE + APART
    return places, end


def packed(flags: np.ndarray) -> pa.Buffer:
    """Pack bytes that are 0 or 1 into an Arrow bitmap."""
    return pa.py_buffer(np.packbits(flags.view(np.uint8), bitorder="little"))


def to_arrow(values: np.ndarray, valid: np.ndarray | None, dtype: pa.DataType) -> pa.Array:
    """View a kernel's output column as an Arrow array, without copying the values."""
    validity = None if valid is None or bool(valid.all()) else packed(valid)
    if dtype.id == _DECIMAL and values.dtype != PAIR:
        values = _widened(values)
    data = packed(values) if dtype.id == _BOOLEAN else pa.py_buffer(values)
    return pa.Array.from_buffers(dtype, len(values), [validity, data])


def _widened(digits: np.ndarray) -> np.ndarray:
    """The digits of decimals as pairs of words: the sign fills the upper word."""
    pairs = room(2 * len(digits)).reshape(-1, 2)
    pairs[:, 0] = digits
    np.right_shift(digits, 63, out=pairs[:, 1])
    return pairs.reshape(-1).view(PAIR)


def indices(places: np.ndarray) -> pa.Array:
    """Row numbers for `take`. (`pa.array` would import pandas wherever that is installed.)"""
    return to_arrow(np.ascontiguousarray(places, np.int64), None, pa.int64())


def flags(chosen: np.ndarray) -> pa.Array:
    """A mask for `filter`."""
    return to_arrow(np.ascontiguousarray(chosen), None, pa.bool_())


def time_array(ticks: np.ndarray, dtype: pa.DataType) -> pa.Array:
    """Ticks as an array of a stream's time type."""
    return to_arrow(as_stored(ticks, dtype), None, dtype)


def as_stored(words: np.ndarray, dtype: pa.DataType) -> np.ndarray:
    """Integers as a contiguous array of an Arrow type's storage type; usually without a copy."""
    goal = stored_type(dtype)
    return words if words.dtype is goal and words.flags.c_contiguous else np.ascontiguousarray(words, goal)


def ticks_of(array: pa.Array, shift: int = 0) -> np.ndarray:
    """The times of an array without nulls as 64-bit ticks plus `shift`; a view if nothing changes."""
    ticks: np.ndarray = values_view(array).astype(np.int64, copy=False)
    return ticks + shift if shift else ticks


def values_view(array: pa.Array) -> np.ndarray:
    """A view of a fixed-width array's values; values under nulls are undefined.

    Of decimals with few digits it is a copy of the lower words.
    """
    dtype = stored_type(array.type)
    buffer = array.buffers()[1]
    if buffer is None or len(array) == 0:
        return np.zeros(0, dtype)
    if array.type.id == _DECIMAL and dtype != PAIR:
        return np.ascontiguousarray(
            np.frombuffer(buffer, dtype, 2 * len(array), array.offset * PAIR.itemsize)[::2]
        )
    return np.frombuffer(buffer, dtype, len(array), array.offset * dtype.itemsize)


def stored_type(dtype: pa.DataType) -> np.dtype:
    """The NumPy type of a fixed-width Arrow type's values in memory."""
    return _STORED.get(dtype.id) or _stored_type(dtype)


def _stored_type(dtype: pa.DataType) -> np.dtype:
    if dtype.id == _DECIMAL:
        return np.dtype(np.int64) if dtype.precision <= FEW_DIGITS else PAIR
    kind = "f" if pa.types.is_floating(dtype) else "u" if pa.types.is_unsigned_integer(dtype) else "i"
    return np.dtype(f"{kind}{dtype.bit_width // 8}")


# Every task takes views of its columns, so the common types are looked up by id.
_STORED = {
    dtype.id: _stored_type(dtype)
    for dtype in (
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
        *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.float32(), pa.float64(), pa.timestamp("ns"), pa.duration("ns"), pa.date32(), pa.date64()),
    )
}


def longer(array: np.ndarray, size: int) -> np.ndarray:
    """Copy an array into a larger one; the added elements are zero."""
    larger = np.zeros(size, array.dtype)
    larger[: len(array)] = array
    return larger


def plain(column: pa.Array) -> pa.Array:
    """Decode a column that is dictionary-encoded; return others unchanged."""
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
