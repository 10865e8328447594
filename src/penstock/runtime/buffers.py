"""Conversions between Arrow arrays, NumPy views and machine types; addresses for native code; a pool of blocks for reuse.

Allocators return freed pages to the system after some milliseconds, and fresh pages cost more than most kernels
spend on them. The pool keeps blocks of the sizes that queries use repeatedly, up to MOST bytes.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from weakref import ref

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.caches import CACHES
from penstock.loop.nodes import I128, Type
from penstock.types.arrow import FEW_DIGITS
from penstock.types.time import Time

SMALLEST, LARGEST = 1 << 18, 1 << 25  # bytes of a block: allocators reuse smaller ones; larger ones are freed
MOST_POOLED_BYTES = 1 << 26  # bytes of all pooled blocks
PAGE = 4096
# Arrays begin at different offsets of a page, APART bytes from one to the next: kernels that read several arrays in
# step then find them in different sets of the L1 cache, where a way predictor would confuse equal offsets.
APART = 25 * 64
_STEPS = cycle([APART * place % PAGE for place in range(64)])
# Blocks larger than the requested size by more than this factor are left for larger requests.
_LOOSEST = 2


class BufferPool:
    """Free blocks, oldest first.

    The garbage collector releases blocks: on any thread, inside any of these methods, and an interrupt may end a
    release at any point. So there is no lock that could stay locked, only operations that the interpreter runs atomically.
    """

    def __init__(self, most: int = MOST_POOLED_BYTES) -> None:
        self.most = most
        self._blocks: dict[int, pa.Buffer] = {}  # by address

    @property
    def held(self) -> int:
        """The number of bytes in the pool."""
        return sum([block.size for block in list(self._blocks.values())])

    def take(self, size: int) -> pa.Buffer:
        """Acquire a block of at least `size` bytes: the smallest that fits, or a new one."""
        # Not of items: their tuples may start the garbage collector, which gives blocks back meanwhile.
        waiting = list(self._blocks.values())
        fitting = [(block.size, block.address) for block in waiting if size <= block.size <= _LOOSEST * size]
        if fitting:
            found = self._blocks.pop(min(fitting)[1], None)
            if found is not None:  # None if another thread took it first
                return found
        return pa.allocate_buffer(size)

    def give(self, block: pa.Buffer) -> None:
        """Release a block into the pool; evict the oldest blocks while the pool is too large."""
        self._blocks[block.address] = block
        excess = self.held - self.most
        for oldest in list(self._blocks.values()) if excess > 0 else ():
            if excess <= 0:
                return
            self._blocks.pop(oldest.address, None)
            excess -= oldest.size


class _Lease:
    """The owner of an array's block; its deletion releases the block into the pool."""

    __slots__ = ("__array_interface__", "block", "pool")

    def __init__(self, pool: BufferPool, size: int) -> None:
        self.pool, self.block = pool, pool.take(size + PAGE)
        self.__array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (self.block.address + next(_STEPS), False),
            "version": 3,
        }

    def __del__(self) -> None:
        self.pool.give(self.block)


_POOL = BufferPool()


def block_of(size: int, pool: BufferPool = _POOL) -> np.ndarray:
    """Allocate `size` bytes with undefined contents, in a block that returns to the pool with its last view."""
    return np.asarray(_Lease(pool, size))


# Bytes. Smaller arrays are cheap from any allocator; for larger ones, untouched zero pages are cheaper than clearing.
LARGE, TOO_LARGE = 1 << 16, 1 << 25

_BOOLEAN = pa.bool_().id
_DECIMAL = pa.decimal128(1, 0).id
PAIR = np.dtype("V16")  # two words, the low one first

NUMBERED = 1 << 13  # row numbers that stay in a core's cache while they are written

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


def row_numbers(count: int, start: int = 0) -> np.ndarray:
    """Return start, start + 1 …, in memory that was used before: `np.arange` would fill fresh pages.

    >>> row_numbers(3).tolist()
    [0, 1, 2]
    """
    if count < LARGE // 8:
        return np.arange(start, start + count)
    numbers = room(count)
    block = np.arange(start, start + NUMBERED)
    for begin in range(0, count, NUMBERED):
        part = numbers[begin : begin + NUMBERED]
        np.add(block[: len(part)], begin, out=part)
    return numbers


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


@CACHES.results(most=64)  # repeated runs of a query allocate the same sizes
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


def lies_as_read(dtype: pa.DataType) -> bool:
    """Whether kernels read values of a fixed-width type from Arrow's memory: of decimals with few digits they read a copy."""
    return bool(stored_type(dtype).itemsize * 8 == dtype.bit_width)


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


# The words of a batch: the watermark before it, then after it; whether a row is behind the watermark at its arrival;
# and the address of each column's first value, 0 if it holds nulls, 1 if it holds none but has no fixed width.
WATERMARK, BEHIND, FIRST_COLUMN = range(3)
# The words of a plan: the number of columns, the place of the time column, the lateness; the width of each column's
# values in bytes, or 0.
COLUMNS, TIME, LATENESS, FIRST_WIDTH = range(4)

Words = array  # of 64-bit integers
# Fill the words of a batch by a plan. False: the times hold nulls, or there are none.
Reader = Callable[[pa.RecordBatch, "Words[int]", "Words[int]"], bool]


@dataclass(frozen=True, eq=False)
class ColumnLayout:
    """The plan by which batches of a schema are read; None if native code cannot read their times."""

    schema: pa.Schema
    plan: Words[int] | None

    @classmethod
    def of(cls, schema: pa.Schema, time: Time, lateness: int) -> ColumnLayout:
        at = schema.get_field_index(time.column)  # -1 if it is missing or there are two
        if at < 0 or not _has_ticks(schema.field(at).type):
            return cls(schema, None)
        return cls(schema, array("q", [len(schema), at, lateness, *[_width(field.type) for field in schema]]))

    def read(self, batch: pa.RecordBatch, watermark: int, reader: Reader) -> ColumnAddresses | None:
        """Read a batch. None: a row is behind the watermark, or native code cannot decide."""
        if self.plan is None:
            return None
        words = array("q", [0] * (FIRST_COLUMN + self.plan[COLUMNS]))
        words[WATERMARK] = watermark
        if not reader(batch, self.plan, words) or words[BEHIND]:
            return None
        return ColumnAddresses(self, batch, words)

    def places(self, names: tuple[str, ...]) -> list[int] | None:
        """The places of columns among the words of a batch; None if one is not a column, or has no fixed width."""
        found = [self.schema.get_field_index(name) for name in names]
        if any(at < 0 or not _width(self.schema.field(at).type) for at in found):
            return None
        return [FIRST_COLUMN + at for at in found]


@dataclass(frozen=True, slots=True, eq=False)
class ColumnAddresses:
    """The words of a batch, valid while it lives."""

    layout: ColumnLayout
    batch: pa.RecordBatch
    words: Words[int]

    @property
    def hold_nulls(self) -> bool:
        """Whether some column holds nulls; a kernel that tests for nulls may read no other part of a column."""
        return 0 in self.words[FIRST_COLUMN:]

    @property
    def watermark(self) -> int:
        """The watermark after the batch."""
        return self.words[WATERMARK]


def _has_ticks(dtype: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(dtype) or pa.types.is_int64(dtype))


def _width(dtype: pa.DataType) -> int:
    """The bytes of a value that kernels read where it lies, or 0."""
    plain = pa.types.is_primitive(dtype) and not pa.types.is_boolean(dtype)
    return dtype.bit_width // 8 if plain else 0


@dataclass(frozen=True, slots=True)
class Views:
    """The columns of a batch and NumPy views of their values, cached while the batch lives: fetching a column costs 2 µs.

    Nothing derived from values is cached: the owner of the data may write to it between two runs.
    """

    batch: ref[pa.RecordBatch]
    columns: dict[str, pa.Array] = field(default_factory=dict)
    values: dict[str, np.ndarray] = field(default_factory=dict)


_VIEWS: dict[int, Views] = {}  # by the id of the batch


def views_of(batch: pa.RecordBatch) -> Views:
    """The cached views of a batch."""
    place = id(batch)
    found = _VIEWS.get(place)
    if found is None or found.batch() is not batch:
        # Not a Python function: an interrupt raised in the callback of a weak reference is lost.
        found = _VIEWS[place] = Views(ref(batch, partial(_VIEWS.pop, place)))
    return found


def column_of(batch: pa.RecordBatch, name: str) -> pa.Array:
    """The column of a batch, fetched once."""
    columns = views_of(batch).columns
    found = columns.get(name)
    if found is None:
        found = columns[name] = batch.column(name)
    return found
