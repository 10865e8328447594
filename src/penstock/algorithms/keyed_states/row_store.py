"""Rows held between pushes in order of time, each with the number of its key, in columns that grow at their end.

Rows enter at the end. The oldest leave by a step of `first`; those that are left are copied once as many have gone.

Memory is never written twice where an array may view it: a column that is compacted is written anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.algorithms.hash_table.keys import Indexer
from penstock.algorithms.sorted_partitions.rows import Rows, taken
from penstock.errors import OverflowError
from penstock.runtime.buffers import indices, longer, plain

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


FEWEST_DEAD = 1 << 12
NULL_KEY = -1
MOST_NEW_KEYS = 1 << 10


class RowStore:
    """Rows of one schema, whose dictionaries are decoded. `links` and `flags` belong to the operator."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = pa.schema([pa.field(field.name, _decoded(field.type)) for field in schema])
        self._clear()

    def _clear(self) -> None:
        self._columns = [growing(field.type) for field in self.schema]
        self._times, self._keys, self._links = Growing(), Growing(), Growing()
        self._flags = Growing(np.uint8)
        self.first = self.end = 0

    def __len__(self) -> int:
        return self.end - self.first

    @property
    def times(self) -> np.ndarray:
        """The times, and room for more."""
        return self._times.values

    @property
    def keys(self) -> np.ndarray:
        return self._keys.values

    @property
    def links(self) -> np.ndarray:
        """For each row, the next one in a list of the operator."""
        return self._links.values

    @property
    def flags(self) -> np.ndarray:
        """For each row, a byte that is 0 at first."""
        return self._flags.values

    def add(self, rows: Rows, keys: np.ndarray) -> None:
        """Append rows, which are later than all others, with the numbers of their keys."""
        at, count = self.end, len(rows)
        if not count:
            return
        for column, array in zip(self._columns, rows.batch.columns, strict=True):
            column.put(at, plain(array))
        self._times.put(at, rows.times, count)
        self._keys.put(at, keys, count)
        self._links.put(at, -1, count)
        self._flags.put(at, 0, count)
        self.end = at + count

    def rows(self) -> Rows:
        """All rows since the last compaction, without a copy; those before `first` are obsolete."""
        arrays = [column.array(self.end) for column in self._columns]
        seen = np.broadcast_to(np.False_, self.end)
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        return Rows(batch, self.times[: self.end], None, None, seen)

    def place_of(self, time: int, begin: int) -> int:
        """The first row from `begin` on that is not before a time. Found by steps that double: mostly few rows leave."""
        step, low = 1, begin
        while low + step < self.end and self.times[low + step - 1] < time:
            low, step = low + step, 2 * step
        high = min(low + step, self.end)
        return low + int(np.searchsorted(self.times[low:high], time))

    @property
    def crowded(self) -> bool:
        """Whether obsolete rows take more room than the others."""
        return self.first > len(self) + FEWEST_DEAD

    def keep(self, kept: np.ndarray) -> None:
        """Forget all rows but some, which get the places 0, 1, 2 …; their links are void."""
        rows, keys, flags = self.rows(), self.keys[kept], self.flags[kept]
        chosen = Rows(taken(rows.batch, kept), rows.times[kept], None, None, rows.fresh[kept])
        self._clear()
        self.add(chosen, keys)
        self.flags[: self.end] = flags

    def renumber(self, numbers: np.ndarray) -> None:
        """Give keys other numbers."""
        keys = self.keys[: self.end]
        known = keys != NULL_KEY
        keys[known] = numbers[keys[known]]


def encoded(rows: Rows, schema: pa.Schema) -> Rows:
    """The same rows with the dictionaries of a schema."""
    if rows.batch.schema.equals(schema):
        return rows
    arrays = [
        encoded_array(array, column.type) for array, column in zip(rows.batch.columns, schema, strict=True)
    ]
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    return Rows(batch, rows.times, rows.sequence, rows.branch, rows.fresh)


def encoded_array(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    """The same values as a dictionary, if the type is one."""
    if not pa.types.is_dictionary(dtype):
        return array
    encoded = array.dictionary_encode()
    codes = encoded.indices.cast(dtype.index_type)
    return pa.DictionaryArray.from_arrays(codes, encoded.dictionary, ordered=dtype.ordered)


class KeyNumbers:
    """The numbers of keys of both sides of a join. A key with a null has none."""

    def __init__(self, index: Indexer | None) -> None:
        self._index = index
        self._settled = MOST_NEW_KEYS

    def __len__(self) -> int:
        return 1 if self._index is None else len(self._index)

    def of(self, columns: Sequence[pa.Array], rows: int, null_keys: bool = False) -> np.ndarray:
        """The number of the key of each row; new keys are added."""
        if self._index is None:
            return np.zeros(rows, np.int64)
        numbers = self._index.number(list(columns))
        for column in columns:
            if column.null_count and not null_keys:
                numbers[column.is_null().to_numpy(zero_copy_only=False)] = NULL_KEY
        return numbers

    @property
    def crowded(self) -> bool:
        """Whether so many keys have come that it is worth a search for obsolete ones."""
        return self._index is not None and len(self._index) > 2 * self._settled

    def forget(self, used: np.ndarray, types: Sequence[pa.DataType], empty: Indexer) -> np.ndarray:
        """Forget all keys but some; return the new number of each old one."""
        assert self._index is not None
        moved = np.full(len(self._index), NULL_KEY)
        columns = [column.take(indices(used)) for column in self._index.values(types)]
        moved[used] = empty.number(columns) if len(used) else used
        self._index, self._settled = empty, max(len(used), MOST_NEW_KEYS)
        return moved


def _decoded(dtype: pa.DataType) -> pa.DataType:
    return dtype.value_type if pa.types.is_dictionary(dtype) else dtype
