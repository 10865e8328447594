"""The rows that a join holds of both sides between pushes, the numbers of their keys, and what is stored per key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from penstock.algorithms.keyed_states.row_store import NULL_KEY, KeyNumbers, RowStore
from penstock.algorithms.sorted_partitions.rows import Rows
from penstock.operators.joins.partitions import Kernels
from penstock.operators.joins.results import JoinShape, Results
from penstock.runtime.buffers import room

NONE = -1


@dataclass
class HeldSides:
    """Two stores of rows with common numbers of keys, and one word of each of `per_key` for each key.

    A key with a null has no number, unless `null_keys` are keys like others.
    """

    schemas: tuple[pa.Schema, pa.Schema]
    keys: tuple[tuple[str, ...], tuple[str, ...]]
    kernels: Kernels
    per_key: tuple[str, ...]
    null_keys: bool = False
    stores: tuple[RowStore, RowStore] = field(init=False)
    words: dict[str, np.ndarray] = field(init=False)
    _numbers: KeyNumbers = field(init=False)

    def __post_init__(self) -> None:
        self.stores = RowStore(self.schemas[0]), RowStore(self.schemas[1])
        width = len(self.keys[0])
        self._numbers = KeyNumbers(self.kernels.new_index(width) if width else None)
        self.reset()

    def reset(self) -> None:
        """Give all keys the word NONE."""
        size = max(len(self._numbers), 1)
        self.words = {name: np.full(size, NONE) for name in self.per_key}

    def number(self, side: int, rows: Rows) -> np.ndarray:
        """The numbers of the keys of rows of a side; every key has its words."""
        columns = [rows.batch.column(name) for name in self.keys[side]]
        numbers = self._numbers.of(columns, len(rows), self.null_keys)
        keys = len(self._numbers)
        for name, words in self.words.items():
            if len(words) < keys:
                larger = np.full(max(2 * len(words), keys), NONE)
                larger[: len(words)] = words
                self.words[name] = larger
        return numbers

    def add(self, side: int, rows: Rows) -> None:
        """Append rows of a side."""
        if len(rows):
            self.stores[side].add(rows, self.number(side, rows))

    @property
    def crowded(self) -> bool:
        """Whether so many keys have come that it is worth a search for obsolete ones."""
        return self._numbers.crowded

    def forget_keys(self) -> None:
        """Forget the keys of which no row is held. Their words are void, and so are those of all others."""
        used = np.unique(np.concatenate([store.keys[store.first : store.end] for store in self.stores]))
        types = [self.schemas[0].field(name).type for name in self.keys[0]]
        moved = self._numbers.forget(used[used != NULL_KEY], types, self.kernels.new_index(len(types)))
        for store in self.stores:
            store.renumber(moved)
        self.reset()


@dataclass(frozen=True)
class JoinOutput:
    """Result batches from rows without dictionaries."""

    shape: JoinShape
    schema: pa.Schema
    threads: int

    @staticmethod
    def of(shape: JoinShape, threads: int) -> JoinOutput:
        fields = [pa.field(column.name, _value_type(column.type)) for column in shape.schema]
        return JoinOutput(replace(shape, schema=pa.schema(fields)), shape.schema, threads)

    def batches(self, results: Results, left: Rows, right: Rows) -> Iterator[pa.RecordBatch]:
        """Return the result batches of pairs of rows."""
        made = self.shape.batches(results, left, right, self.threads)
        return made if self.shape.schema.equals(self.schema) else map(self._encoded, made)

    def _encoded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        arrays = [
            _encoded(array, column.type) for array, column in zip(batch.columns, self.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def encoded(rows: Rows, schema: pa.Schema) -> Rows:
    """The same rows with the dictionaries of a schema."""
    if rows.batch.schema.equals(schema):
        return rows
    arrays = [_encoded(array, column.type) for array, column in zip(rows.batch.columns, schema, strict=True)]
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    return Rows(batch, rows.times, rows.sequence, rows.branch, rows.fresh)


def _value_type(dtype: pa.DataType) -> pa.DataType:
    return dtype.value_type if pa.types.is_dictionary(dtype) else dtype


def _encoded(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    if not pa.types.is_dictionary(dtype):
        return array
    encoded = array.dictionary_encode()
    codes = encoded.indices.cast(dtype.index_type)
    return pa.DictionaryArray.from_arrays(codes, encoded.dictionary, ordered=dtype.ordered)


def fitting(buffers: Sequence[np.ndarray], most: int) -> list[np.ndarray]:
    """Buffers of four times the size, up to a limit."""
    return [room(min(4 * len(buffer), most)) for buffer in buffers]
