"""Hashes of key values that are the same in every process: they assign a key's rows to a chunk."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.runtime.buffers import values_view
from penstock.runtime.hashing import hash_keys
from penstock.runtime.key_encoding import is_text, words_of

_PRIME = np.uint64(1099511628211)


def key_hashes(columns: Sequence[pa.Array]) -> np.ndarray:
    """Hash rows of key columns; texts must not be dictionary-encoded."""
    words, nulls = [], np.zeros(len(columns[0]), np.int64)
    for place, column in enumerate(columns):
        null = column.is_null().to_numpy(zero_copy_only=False)
        found = _text_hashes(column) if is_text(column.type) else words_of(column)
        words.append(np.where(null, np.int64(0), found))
        nulls |= null.astype(np.int64) << place
    return hash_keys(words, nulls)


def _text_hashes(column: pa.Array) -> np.ndarray:
    """A polynomial hash of each text's bytes, vectorised over all texts."""
    texts = column.cast(pa.large_string())
    _, offsets, data = texts.buffers()
    bounds = (
        np.frombuffer(offsets, np.int64, len(texts) + 1, 8 * texts.offset)
        if len(texts)
        else np.zeros(1, np.int64)
    )
    first, last = int(bounds[0]), int(bounds[-1])
    if first == last:
        return np.zeros(len(texts), np.int64)
    lengths = np.diff(bounds)
    place = np.arange(last - first) - np.repeat(bounds[:-1] - first, lengths)
    powers = np.cumprod(np.full(int(lengths.max()), _PRIME))
    terms = (np.frombuffer(data, np.uint8, last - first, first) + np.uint64(1)) * powers[place]
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(terms)])[bounds - first]
    hashes: np.ndarray = np.diff(sums).view(np.int64)
    return hashes


def time_words(column: pa.Array) -> np.ndarray:
    """64-bit integers as unsigned words of the same order."""
    return values_view(column).view(np.uint64) ^ np.uint64(1 << 63)
