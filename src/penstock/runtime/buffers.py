"""Between Arrow arrays, NumPy views and machine types."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.loop.nodes import I128, Type
from penstock.runtime.buffer_pool import APART, LARGEST, PAGE, SMALLEST, block_of

# Bytes. Fewer are cheap wherever they come from; of more, untouched zeros of the system are cheaper than cleared memory.
LARGE, TOO_LARGE = 1 << 16, 1 << 25

_BOOLEAN = pa.bool_().id

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
    """The type of a value, or of the words of a cell that takes two."""
    return _NUMPY[type.name]


def words_per_cell(type: Type) -> int:
    """A 128-bit cell takes two 64-bit words, the low one first."""
    return 2 if type.bits == I128.bits else 1


def filled(type: Type, identity: float, cells: int) -> np.ndarray:
    """Allocate cells that hold an identity.

    Many zeros come from the system untouched: they cost nothing yet, but each page does when it is touched. Up to some
    megabytes, writing them to pages that somebody has used before costs less than that.
    """
    size, dtype = cells * words_per_cell(type), numpy_type(type)
    if identity == 0 and not LARGE <= size * dtype.itemsize <= TOO_LARGE:
        return np.zeros(size, dtype)
    made = room(size, dtype)
    made.fill(identity)
    return made


def room(count: int, dtype: npt.DTypeLike = np.int64) -> np.ndarray:
    """Memory for so many values, their contents undefined.

    Large ones come from Arrow's pool: it hands out pages again that somebody has used before, while fresh ones
    from the system cost more than what most kernels do with them.
    """
    dtype = np.dtype(dtype)
    size = count * dtype.itemsize
    if size < LARGE:
        return np.empty(count, dtype)
    if SMALLEST <= size <= LARGEST:
        return block_of(size).view(dtype)
    return np.frombuffer(pa.allocate_buffer(size), dtype)


def rooms(wanted: Sequence[tuple[int, np.dtype]]) -> list[np.ndarray]:
    """Memory for several arrays of so many values each, in one block if that is not too large to be used again.

    To ask for each takes as long as for all. They begin at different places of a page, as blocks do (see `recycled`).
    """
    places, end = _side_by_side(tuple(wanted))
    if end > LARGEST:
        return [room(count, dtype) for count, dtype in wanted]
    block = room(end, np.uint8)
    return [np.ndarray(count, dtype, block, begin) for begin, count, dtype in places]


@lru_cache(maxsize=64)  # a query that is asked again asks for the same
def _side_by_side(wanted: tuple[tuple[int, np.dtype], ...]) -> tuple[list[tuple[int, int, np.dtype]], int]:
    """Where in a block to place arrays, and where it ends."""
    places, end = [], 0
    for count, dtype in wanted:
        places.append((end, count, dtype))
        end += -(-count * dtype.itemsize // PAGE) * PAGE + APART
    return places, end


def packed(flags: np.ndarray) -> pa.Buffer:
    """Pack bytes that are 0 or 1 into Arrow's bits."""
    return pa.py_buffer(np.packbits(flags.view(np.uint8), bitorder="little"))


def to_arrow(values: np.ndarray, valid: np.ndarray | None, dtype: pa.DataType) -> pa.Array:
    """View a kernel's output column as an Arrow array, without copying the values."""
    validity = None if valid is None or bool(valid.all()) else packed(valid)
    data = packed(values) if dtype.id == _BOOLEAN else pa.py_buffer(values)
    return pa.Array.from_buffers(dtype, len(values), [validity, data])


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
    """Whole numbers side by side, as an Arrow type has them in memory: mostly as they are."""
    goal = stored_type(dtype)
    return words if words.dtype is goal and words.flags.c_contiguous else np.ascontiguousarray(words, goal)


def ticks_of(array: pa.Array, shift: int = 0) -> np.ndarray:
    """The times of an array that has no nulls, as 64-bit ticks moved by some; a view where nothing changes."""
    ticks: np.ndarray = values_view(array).astype(np.int64, copy=False)
    return ticks + shift if shift else ticks


def values_view(array: pa.Array) -> np.ndarray:
    """A view of a fixed-width array's values, nulls holding whatever is stored there."""
    dtype = stored_type(array.type)
    buffer = array.buffers()[1]
    if buffer is None or len(array) == 0:
        return np.zeros(0, dtype)
    return np.frombuffer(buffer, dtype, len(array), array.offset * dtype.itemsize)


def stored_type(dtype: pa.DataType) -> np.dtype:
    """How NumPy calls the values of a fixed-width Arrow type as they lie in memory."""
    return _STORED.get(dtype.id) or _stored_type(dtype)


def _stored_type(dtype: pa.DataType) -> np.dtype:
    kind = "f" if pa.types.is_floating(dtype) else "u" if pa.types.is_unsigned_integer(dtype) else "i"
    return np.dtype(f"{kind}{dtype.bit_width // 8}")


# Every task asks for the views of its columns, so the usual types are known by their numbers.
_STORED = {
    each.id: _stored_type(each)
    for each in (
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
        *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.float32(), pa.float64(), pa.timestamp("ns"), pa.duration("ns"), pa.date32(), pa.date64()),
    )
}


def longer(array: np.ndarray, size: int) -> np.ndarray:
    """The same values in an array with more room, which is zero."""
    larger = np.zeros(size, array.dtype)
    larger[: len(array)] = array
    return larger


def plain(column: pa.Array) -> pa.Array:
    """A column without the dictionary it may be encoded with."""
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
