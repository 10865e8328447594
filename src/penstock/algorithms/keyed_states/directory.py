"""The keys of a stage that keeps states per key: a hash table over the words of keys, and the texts of text keys."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.algorithms.hash_table.keys import HashKeys, Interner, numbers_of
from penstock.loop.abi import KEYS, WORDS
from penstock.runtime.buffers import to_arrow
from penstock.runtime.kernels import Call, TextKernels
from penstock.runtime.key_encoding import is_text, values_of, words_of
from penstock.state.state_table import StateTable, typed

_KEY = "key:"


class KeyDirectory:
    """Number keys in order of arrival. Without key columns there is one key, number 0."""

    def __init__(self, fields: Sequence[pa.Field], index: Call | None, texts: TextKernels) -> None:
        self.fields, self._index, self._texts = tuple(fields), index, texts
        self.head = np.zeros(WORDS, np.int64)
        self.interners = {field.name: Interner(texts.intern) for field in fields if is_text(field.type)}
        self.table = HashKeys(len(self.fields), self.head, nullable=True) if fields else None
        if not fields:
            self.head[KEYS] = 1

    def __len__(self) -> int:
        return int(self.head[KEYS])

    @property
    def capacity(self) -> int:
        return 1 if self.table is None else self.table.capacity

    def arguments(self) -> dict[str, object]:
        """The kernel arguments of the key table."""
        return {} if self.table is None else self.table.arguments()

    def grow(self) -> None:
        assert self.table is not None, "without key columns there is one key"
        self.table.reserve(2 * self.table.capacity)

    def arrays(self, numbers: np.ndarray, decoded: bool = False) -> list[pa.Array]:
        """The keys of some numbers, one column per component; `decoded` texts are not dictionary-encoded."""
        if self.table is None:
            return []
        words, nulls = self.table.words_of(numbers)
        some = bool(nulls.any())
        return [
            self._column(field, word, (nulls >> place) & 1 == 0 if some else None, decoded)
            for place, (field, word) in enumerate(zip(self.fields, words, strict=True))
        ]

    def _column(
        self, field: pa.Field, words: np.ndarray, there: np.ndarray | None, decoded: bool
    ) -> pa.Array:
        """A column of keys; `there` is None if none of them is null."""
        if field.name in self.interners:
            dtype = stored(field.type) if decoded else field.type
            codes = words if there is None else np.where(there, words, -1)
            return self.interners[field.name].decode(codes, dtype)
        return to_arrow(values_of(words, field.type), there, field.type)

    def numbers(self, arrays: Sequence[pa.Array], rows: int) -> np.ndarray:
        """The numbers of keys given as columns; new ones are added."""
        if self.table is None:
            return np.zeros(rows, np.int64)
        assert self._index is not None
        words, nulls = [], np.zeros(rows, np.int64)
        for place, (field, array) in enumerate(zip(self.fields, arrays, strict=True)):
            null = array.is_null().to_numpy(zero_copy_only=False)
            texts = self.interners.get(field.name)
            word = words_of(array) if texts is None else texts.encode_wide(array)
            words.append(np.where(null, np.int64(0), word))
            nulls |= null.astype(np.int64) << place
        return numbers_of(words, nulls, self.table, self._index, self.grow)

    def rebuilt(self, kept: np.ndarray) -> KeyDirectory:
        """A directory of some keys alone, which get the numbers 0, 1, 2 …; other texts are forgotten."""
        found = KeyDirectory(self.fields, self._index, self._texts)
        found.numbers(self.arrays(kept, decoded=True), len(kept))
        return found

    # -- saved states --------------------------------------------------------------------------------

    def kept(self, numbers: np.ndarray, ranks: tuple[str, ...], columns: dict[str, pa.Array]) -> StateTable:
        """A state table of some keys, one row each, with more columns."""
        names = tuple(f"{_KEY}{field.name}" for field in self.fields)
        arrays = [*self.arrays(numbers, decoded=True), *columns.values()]
        return StateTable(pa.Table.from_arrays(arrays, names=[*names, *columns]), names, ranks)

    def loaded(self, table: pa.Table) -> np.ndarray:
        """The numbers of the keys of a saved table; new ones are added."""
        columns = [typed(table, f"{_KEY}{field.name}", stored(field.type)) for field in self.fields]
        return self.numbers(columns, table.num_rows)


def stored(dtype: pa.DataType) -> pa.DataType:
    """The type in which a key is saved: a dictionary depends on batches that are no longer present."""
    return dtype.value_type if pa.types.is_dictionary(dtype) else dtype
