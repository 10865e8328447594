"""Rows held between pushes, in order of time, each with the number of its key.

Rows enter at the end. The oldest leave by a step of `first`; those that are left are copied once as many have gone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.algorithms.hash_table.indexer import Indexer
from penstock.algorithms.keyed_states.growing_columns import Growing, can_grow, growing
from penstock.algorithms.sorted_partitions.rows import Rows, taken
from penstock.runtime.buffers import indices, plain

FEWEST_DEAD = 1 << 12
NULL_KEY = -1
MOST_NEW_KEYS = 1 << 10


def can_hold(schema: pa.Schema) -> bool:
    """Whether rows of a schema can be held in a store."""
    return all(can_grow(field.type) for field in schema)


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
