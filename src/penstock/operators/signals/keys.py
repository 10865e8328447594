"""The keys of a signal's partitions: numbered on arrival, renumbered when some are dropped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from penstock.algorithms.hash_table.indexer import Indexer
from penstock.algorithms.sorted_partitions.partition import dense_numbers
from penstock.algorithms.sorted_partitions.rows import Rows
from penstock.runtime.buffers import indices, to_arrow, values_view
from penstock.state.state_table import require

ROWS_WITHOUT_LOOKUP = 1 << 12  # with fewer rows, a lookup table of keys does not pay


@dataclass
class PartitionKeys:
    """The key of each partition. A signal without keys has one partition."""

    names: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    new_index: Callable[[], Indexer]
    threads: int
    index: Indexer | None = field(init=False)

    def __post_init__(self) -> None:
        self.index = self.new_index() if self.names else None

    def __len__(self) -> int:
        return 1 if self.index is None else len(self.index)

    def number(self, rows: Rows) -> np.ndarray:
        """Return the partition of each row; new keys get new partitions."""
        if self.index is None:
            return np.zeros(len(rows), np.int64)
        columns = [rows.batch.column(name) for name in self.names]
        dense = (
            dense_numbers(columns[0], self.threads)
            if len(columns) == 1 and len(rows) > ROWS_WITHOUT_LOOKUP
            else None
        )
        return self.index.number(columns) if dense is None else self._by_table(columns[0], dense)

    def _by_table(self, column: pa.Array, dense: np.ndarray) -> np.ndarray:
        """Number the distinct values of many rows, and map the rows by a lookup table."""
        assert self.index is not None
        seen = np.bincount(dense)
        some = np.flatnonzero(seen)
        values = values_view(column)
        own = some + (int(values[0]) - int(dense[0]))
        table = np.zeros(len(seen), np.int64)
        table[some] = self.index.number([to_arrow(own.astype(values.dtype), None, column.type)])
        return dense if (table[some] == some).all() else table[dense]

    def values(self) -> list[pa.Array]:
        """Return the keys of all partitions, one column per component."""
        if self.index is None:
            return []
        found = self.index.values(self.types)
        return [as_type(key, dtype) for key, dtype in zip(found, self.types, strict=True)]

    def keep(self, partitions: np.ndarray) -> None:
        """Drop the keys of all but some partitions, and renumber these in order."""
        if self.index is not None:
            kept = [key.take(indices(partitions)) for key in self.index.values(self.types)]
            self.index = self.new_index()
            self.index.number(kept)

    def load(self, columns: Sequence[pa.Array], partitions: int) -> None:
        """Restore saved keys, one for each partition."""
        if self.index is not None:
            self.index.number(columns)
        require(len(self) == partitions, "the keys of a signal")


def as_type(column: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Cast values to an equivalent type; encode them if it is a dictionary type."""
    if column.type == dtype:
        return column
    if pa.types.is_dictionary(dtype):
        encoded = column.cast(dtype.value_type).dictionary_encode()
        return pa.DictionaryArray.from_arrays(encoded.indices.cast(dtype.index_type), encoded.dictionary)
    return column.cast(dtype)
