"""Number the distinct values of Arrow columns, in order of first appearance, across batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from penstock.algorithms.hash_table.interner import Interner
from penstock.algorithms.hash_table.keys import HashKeys
from penstock.loop.abi import KEYS, NEED_KEYS, STATUS, WORDS, numbered
from penstock.runtime.buffers import to_arrow
from penstock.runtime.kernels import Call, TextKernels
from penstock.runtime.key_encoding import values_of, words_of
from penstock.types.arrow import has_codes


class Indexer:
    """A growing set of keys; `number` maps rows to key numbers.

    A single text key without nulls needs no hash table: its codes are dense, in order of first appearance. From the
    first null on the table numbers codes, those known so far by themselves.
    """

    def __init__(self, width: int, index: Callable[[int], Call], texts: TextKernels) -> None:
        self._call = index(width)
        self._keys = HashKeys(width, np.zeros(WORDS, np.int64), nullable=True)
        self._texts = [Interner(texts.intern) for _ in range(width)]
        self._by_code = False

    def __len__(self) -> int:
        return len(self._texts[0]) if self._by_code else int(self._keys.head[KEYS])

    def number(self, arrays: Sequence[pa.Array]) -> np.ndarray:
        """The key number of each row; new keys are added."""
        if len(arrays) == 1 and (self._by_code or not len(self)) and has_codes(arrays[0].type):
            self._by_code = _is_plain_text(arrays[0].type) and not arrays[0].null_count
            codes = self._texts[0]
            if self._by_code:
                return codes.encode(arrays[0]).astype(np.int64)
            known = np.arange(len(codes))
            numbers_of([known], np.zeros(len(known), np.int64), self._keys, self._call, self._grow)
        words = [_words(array, texts) for array, texts in zip(arrays, self._texts, strict=True)]
        nulls = np.zeros(len(arrays[0]), np.int64)
        for place, array in enumerate(arrays):
            if array.null_count:
                null = array.is_null().to_numpy(zero_copy_only=False)
                words[place] = np.where(null, np.int64(0), words[place])
                nulls |= null.astype(np.int64) << place
        return numbers_of(words, nulls, self._keys, self._call, self._grow)

    def _grow(self) -> None:
        self._keys.reserve(2 * self._keys.capacity)

    def values(self, types: Sequence[pa.DataType]) -> list[pa.Array]:
        """All keys by number, one column per component; texts are not dictionary-encoded."""
        return [self._component(place, dtype) for place, dtype in enumerate(types)]

    def _component(self, place: int, dtype: pa.DataType) -> pa.Array:
        if self._by_code:
            return self._texts[0].decode(np.arange(len(self)), pa.large_string())
        words = self._keys.words[place][: len(self)]
        there = (self._keys.nulls[: len(self)] >> place) & 1 == 0
        if has_codes(dtype):
            return self._texts[place].decode(np.where(there, words, -1), _decoded(dtype))
        return to_arrow(values_of(words, dtype), there, dtype)


def numbers_of(
    words: Sequence[np.ndarray], nulls: np.ndarray, keys: HashKeys, index: Call, grow: Callable[[], None]
) -> np.ndarray:
    """Number keys in a hash table that includes nulls; new keys are added, and `grow` is called when it is full."""
    numbers = np.empty(len(nulls), np.int64)
    inputs = {numbered("in_words", place): word for place, word in enumerate(words)}
    done = 0
    while done < len(nulls):
        given = {**inputs, "in_nulls": nulls, "out": numbers, "lo": done, "hi": len(nulls), "head": keys.head}
        done = index({**given, **keys.arguments()})
        if keys.head[STATUS] == NEED_KEYS:
            grow()
    return numbers


def _is_plain_text(dtype: pa.DataType) -> bool:
    """Whether nulls of a column are those it counts: a dictionary may hold further ones among its values."""
    return bool(pa.types.is_string(dtype) or pa.types.is_large_string(dtype))


def _decoded(dtype: pa.DataType) -> pa.DataType:
    return dtype if pa.types.is_decimal(dtype) else pa.large_string()


def _words(array: pa.Array, texts: Interner) -> np.ndarray:
    """The key words of a column; those of nulls are undefined."""
    return texts.encode(array).astype(np.int64) if has_codes(array.type) else words_of(array)
