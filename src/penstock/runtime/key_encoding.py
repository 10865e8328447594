"""Keys as 64-bit words, and the kernels' hash functions in NumPy, to rebuild a table's buckets after it has grown."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.errors import UnsupportedError
from penstock.runtime.buffers import as_stored, values_view
from penstock.types.arrow import kind_of

_NOT_WHOLE = {dtype.id for dtype in (pa.bool_(), pa.float16(), pa.float32(), pa.float64())}
_CANONICAL_NAN = np.int64(0x7FF8000000000000)


def is_text(dtype: pa.DataType) -> bool:
    """Whether values are texts, plain or dictionary-encoded: their words are interner codes."""
    kind = dtype.value_type if pa.types.is_dictionary(dtype) else dtype
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def words_of(array: pa.Array) -> np.ndarray:
    """The words of values that are not texts; words of nulls are undefined."""
    dtype = array.type
    if pa.types.is_boolean(dtype):
        words: np.ndarray = array.fill_null(False).to_numpy(zero_copy_only=False).astype(np.int64)
        return words
    if pa.types.is_floating(dtype) and not pa.types.is_float16(dtype):
        wide = values_view(array).astype(np.float64) + 0.0  # maps -0.0 to 0.0: both are one key
        return np.where(np.isnan(wide), _CANONICAL_NAN, wide.view(np.int64))
    if pa.types.is_integer(dtype) or pa.types.is_temporal(dtype) or kind_of(dtype) == "decimal":
        return values_view(array).astype(np.int64)
    raise UnsupportedError(
        f"values of type {dtype} cannot be distinguished here; cast them, to string for example"
    )


def values_of(words: np.ndarray, dtype: pa.DataType) -> np.ndarray:
    """The values of words, as an array for `to_arrow`."""
    if dtype.id not in _NOT_WHOLE:
        return as_stored(words, dtype)
    if pa.types.is_boolean(dtype):
        return words.astype(np.uint8)
    values = np.ascontiguousarray(words).view(np.float64)
    return values.astype(np.float32) if dtype.bit_width == 32 else values


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xBF58476D1CE4E5B9)
_ONES = (1 << 64) - 1


def hash_words(words: np.ndarray) -> np.ndarray:
    """`kernels.tables.probe.hash_word` over an array."""
    x = words.view(np.uint64) * _GOLDEN
    return (x ^ (x >> np.uint64(32))) * _MIX


def hash_keys(words: Sequence[np.ndarray], nulls: np.ndarray | None) -> np.ndarray:
    """The hash of key tuples; `nulls` is hashed only if the kernels include nulls."""
    hashed = hash_words(words[0])
    for word in (*words[1:], *([] if nulls is None else [nulls])):
        hashed = hash_words(((hashed ^ (hashed >> np.uint64(29))) + hash_words(word)).view(np.int64))
    return hashed


def buckets_for(hashes: np.ndarray, size: int) -> np.ndarray:
    """Place entries 0, 1, 2 … into `size` buckets (a power of two) by linear probing.

    All entries probe at once; of those that reach the same free bucket the first takes it, and the others move on.
    An entry passes only occupied buckets, so later lookups find it.
    """
    buckets = np.zeros(size, np.int32)
    waiting = np.arange(len(hashes))
    place = first_places(hashes, size)
    while len(waiting):
        free = buckets[place] == 0
        spots, winners = np.unique(place[free], return_index=True)
        buckets[spots] = waiting[free][winners] + 1
        lost = buckets[place] != waiting + 1
        waiting, place = waiting[lost], (place[lost] + 1) & (size - 1)
    return buckets


def first_places(hashes: np.ndarray, size: int) -> np.ndarray:
    """The buckets at which searches begin, among `size`."""
    places: np.ndarray = ((hashes ^ (hashes >> np.uint64(32))) & np.uint64(size - 1)).astype(np.int64)
    return places


def probe_length(buckets: np.ndarray, hashes: np.ndarray, entries: np.ndarray) -> float:
    """How many buckets a search for these entries reads on average.

    >>> hashes = hash_words(np.arange(8))
    >>> probe_length(buckets_for(hashes, 1 << 20), hashes, np.arange(8))
    1.0
    """
    place, waiting, reads = first_places(hashes, len(buckets)), entries + 1, 0
    for _ in range(len(buckets)):  # a search never reads a bucket twice
        reads += len(waiting)
        others = buckets[place] != waiting
        place, waiting = (place[others] + 1) & (len(buckets) - 1), waiting[others]
        if not len(waiting):
            break
    return reads / max(len(entries), 1)


def bucket_of(buckets: np.ndarray, word: int, entry: int) -> int | None:
    """Find the bucket of an entry whose key is one word; None if it is in no bucket."""
    place, last = home(word, len(buckets)), len(buckets) - 1
    while (held := int(buckets[place])) != entry + 1:
        if held == 0:
            return None
        place = (place + 1) & last
    return place


def home(word: int, size: int) -> int:
    """The bucket at which the search for a word begins, among `size`."""
    x = (word & _ONES) * int(_GOLDEN) & _ONES
    hashed = (x ^ (x >> 32)) * int(_MIX) & _ONES
    return (hashed ^ (hashed >> 32)) & (size - 1)


def empty_bucket(buckets: np.ndarray, hole: int, words: np.ndarray) -> None:
    """Empty a bucket, and move later entries back so that searches for them do not end there.

    `words` are the keys of entries 0, 1, 2 …
    """
    last, place = len(buckets) - 1, hole
    while True:
        place = (place + 1) & last
        entry = int(buckets[place]) - 1
        if entry < 0:
            break
        passed = (place - home(int(words[entry]), len(buckets))) & last
        if passed >= (place - hole) & last:  # its search begins at the hole or before it
            buckets[hole], hole = entry + 1, place
    buckets[hole] = 0


def bucket_count(entries: int) -> int:
    """The power of two that keeps a table at most half full."""
    return max(16, 1 << (2 * max(entries, 1) - 1).bit_length())
