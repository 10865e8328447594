"""Number the distinct values of Arrow columns, in order of first appearance, across batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from penstock.errors import UnsupportedError
from penstock.loop.abi import KEYS, NEED_KEYS, STATUS, WORDS, numbered
from penstock.runtime.buffers import values_view
from penstock.runtime.interner import Interner
from penstock.runtime.keys import HashKeys
from penstock.runtime.programs import Call, Texts

_CANONICAL_NAN = np.int64(0x7FF8000000000000)


class Indexer:
    """A growing set of keys; `number` tells which one each row holds."""

    def __init__(self, width: int, index: Callable[[int], Call], texts: Texts) -> None:
        self._call = index(width)
        self._keys = HashKeys(width, np.zeros(WORDS, np.int64), nullable=True)
        self._texts = [Interner(texts.intern) for _ in range(width)]

    def __len__(self) -> int:
        return int(self._keys.head[KEYS])

    def number(self, arrays: Sequence[pa.Array]) -> np.ndarray:
        """Give each row the number of its key, adding the keys that are new."""
        pairs = [_words(array, texts) for array, texts in zip(arrays, self._texts, strict=True)]
        rows = len(arrays[0])
        nulls = np.zeros(rows, np.int64)
        for place, (_, null) in enumerate(pairs):
            nulls |= null.astype(np.int64) << place
        inputs = {numbered("in_words", place): words for place, (words, _) in enumerate(pairs)}
        numbers = np.empty(rows, np.int64)
        done = 0
        while done < rows:
            limits = {"lo": done, "hi": rows, "in_nulls": nulls, "out": numbers, "head": self._keys.head}
            done = self._call({**inputs, **self._keys.arguments(), **limits})
            if self._keys.head[STATUS] == NEED_KEYS:
                self._keys.reserve(2 * self._keys.capacity)
        return numbers


def _words(array: pa.Array, texts: Interner) -> tuple[np.ndarray, np.ndarray]:
    """A column as key words and null flags (see kernels/tables/keys.py)."""
    null = array.is_null().to_numpy(zero_copy_only=False)
    dtype = array.type
    kind = dtype.value_type if pa.types.is_dictionary(dtype) else dtype
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        words = texts.encode(array).astype(np.int64)
    elif pa.types.is_boolean(dtype):
        words = array.fill_null(False).to_numpy(zero_copy_only=False).astype(np.int64)
    elif pa.types.is_floating(dtype) and not pa.types.is_float16(dtype):
        words = _float_words(values_view(array))
    elif pa.types.is_integer(dtype) or pa.types.is_temporal(dtype):
        words = values_view(array).astype(np.int64)
    else:
        raise UnsupportedError(
            f"values of type {dtype} cannot be told apart here; cast them, to string for example"
        )
    return np.where(null, np.int64(0), words), null


def _float_words(values: np.ndarray) -> np.ndarray:
    wide = values.astype(np.float64) + 0.0
    return np.where(np.isnan(wide), _CANONICAL_NAN, wide.view(np.int64))
