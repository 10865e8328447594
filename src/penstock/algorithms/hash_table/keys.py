"""The keys of a table: three kinds of key columns, texts interned as codes, and numbers of distinct values.

Keys are words (see algorithms/hash_table/kernels.py). `columns` is the number of columns the table has room for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from itertools import product
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa

from penstock.caches import CACHES
from penstock.loop.abi import DONE, KEYS, NEED_KEYS, STATUS, WORDS, numbered
from penstock.runtime.buffers import longer, room, to_arrow, values_view
from penstock.runtime.kernels import Call, TextKernels
from penstock.runtime.key_encoding import (
    bucket_count,
    buckets_for,
    hash_keys,
    probe_length,
    values_of,
    words_of,
)
from penstock.types.arrow import has_codes

# A dense table may have SPARSEST_KEYS columns per row seen, and always SMALL.
SMALL = 1 << 16
SPARSEST_KEYS = 4
LARGEST_TABLE = 1 << 27
# Initial key capacity of a hash table; small, because window operations process the full capacity.
FEWEST, MOST_AT_FIRST = 1 << 6, 1 << 12


@dataclass
class NoKeys:
    kind: ClassVar[Literal["none"]] = "none"
    columns = 1

    def arguments(self) -> dict[str, object]:
        return {}

    def words_of(self, columns: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
        return [], np.zeros(len(columns), np.int64)


@dataclass(frozen=True)
class DenseKeys:
    """Component c holds words bases[c] … bases[c] + sizes[c] - 2, and null as its digit 0."""

    bases: tuple[int, ...]
    sizes: tuple[int, ...]
    columns: int = field(init=False)
    kind: ClassVar[Literal["dense"]] = "dense"

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", math.prod(self.sizes))

    @classmethod
    @CACHES.results(most=64)  # repeated runs of a query sample the same ranges
    def of_sample(cls, lows: tuple[int, ...], highs: tuple[int, ...]) -> DenseKeys:
        """A table for keys of which a sample lies in these ranges."""
        return cls((0,) * len(lows), (1,) * len(lows)).covering(lows, highs)

    def arguments(self) -> dict[str, object]:
        return {
            **{numbered("key_base", c): base for c, base in enumerate(self.bases)},
            **{numbered("key_size", c): size for c, size in enumerate(self.sizes)},
        }

    def words_of(self, columns: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
        """The words and null bits of the keys of columns."""
        if len(self.sizes) == 1:
            word, none = (columns - 1) + self.bases[0], np.zeros(len(columns), np.int64)
            if len(columns) and int(columns.min()) == 0:
                null = columns == 0
                word[null], none[null] = 0, 1
            return [word], none
        digits = np.unravel_index(columns, self.sizes)
        words = [np.where(d == 0, 0, d - 1 + base) for d, base in zip(digits, self.bases, strict=True)]
        nulls = sum(
            ((d == 0).astype(np.int64) << c for c, d in enumerate(digits)), np.zeros(len(columns), np.int64)
        )
        return words, nulls

    def columns_of(self, words: Sequence[np.ndarray], nulls: np.ndarray) -> np.ndarray:
        """The columns of keys inside the ranges."""
        if len(words) == 1 and not nulls.any():
            return words[0] - self.bases[0] + 1
        place = np.zeros(len(nulls), np.int64)
        for c, (word, base, size) in enumerate(zip(words, self.bases, self.sizes, strict=True)):
            place = place * size + np.where((nulls >> c) & 1, 0, word - base + 1)
        return place

    def move(self, before: np.ndarray, after: np.ndarray, target: DenseKeys) -> None:
        """Copy cells (slot, column, word) to their columns in a covering table: in blocks, digit 0 separately."""
        old = before.reshape(len(before), *self.sizes, before.shape[-1])
        new = after.reshape(len(after), *target.sizes, after.shape[-1])
        shifts = [base - larger for base, larger in zip(self.bases, target.bases, strict=True)]
        parts = [
            ((slice(0, 1), slice(0, 1)), (slice(1, size), slice(1 + shift, size + shift)))
            for size, shift in zip(self.sizes, shifts, strict=True)
        ]
        for choice in product(*parts):
            here, there = tuple(pair[0] for pair in choice), tuple(pair[1] for pair in choice)
            new[(slice(None), *there)] = old[(slice(None), *here)]

    def covering(self, lows: Sequence[int], highs: Sequence[int]) -> DenseKeys:
        """A table that also covers other ranges, with spare room where it has to grow."""
        spans = [
            _span(base, size, low, high)
            for base, size, low, high in zip(self.bases, self.sizes, lows, highs, strict=True)
        ]
        return DenseKeys(tuple(base for base, _ in spans), tuple(size for _, size in spans))


def _span(base: int, size: int, low: int, high: int) -> tuple[int, int]:
    """The base and size that cover a component's old range and [low, high]."""
    top = base + size - 2
    if size > 1 and base <= low and high <= top:
        return base, size
    first, last = (low, high) if size <= 1 else (min(base, low), max(top, high))
    # A sample misses the rarest keys at both ends; a range that has grown once tends to grow again.
    room = (last - first) // (64 if size <= 1 else 8)
    first, last = max(first - room, -(1 << 63)), min(last + room, (1 << 63) - 1)
    return first, last - first + 2


def dense_allowed(columns: int, rows: int) -> bool:
    """Whether a dense table of this size is worthwhile for the rows seen."""
    return columns <= min(max(SMALL, SPARSEST_KEYS * rows), LARGEST_TABLE)


@dataclass
class HashKeys:
    """Keys in order of arrival. `head[KEYS]` counts them; kernels read and write these arrays."""

    width: int
    head: np.ndarray
    nullable: bool
    capacity: int = 0
    words: list[np.ndarray] = field(default_factory=list)
    nulls: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    buckets: np.ndarray = field(default_factory=lambda: np.zeros(16, np.int32))
    sparse: bool = False  # the first component is the pane
    rows: InitVar[int] = MOST_AT_FIRST  # expected rows, which bound the number of new keys

    @property
    def kind(self) -> Literal["sparse", "hash"]:
        return "sparse" if self.sparse else "hash"

    def __post_init__(self, rows: int) -> None:
        if not self.words:
            self.words = [np.zeros(0, np.int64) for _ in range(self.width)]
            self.reserve(min(max(1 << (rows - 1).bit_length(), FEWEST), MOST_AT_FIRST))

    @property
    def columns(self) -> int:
        return self.capacity

    @property
    def count(self) -> int:
        return int(self.head[KEYS])

    @property
    def occupancy(self) -> float:
        """The share of buckets in use."""
        return self.count / len(self.buckets)

    def probe_length(self, sample: int = 256) -> float:
        """How many buckets a look-up reads on average, of keys spread over the table; 0 without keys.

        >>> HashKeys(1, np.zeros(16, np.int64), False).probe_length()
        0.0
        """
        if not self.count:
            return 0.0
        entries = np.unique(np.linspace(0, self.count - 1, min(sample, self.count)).astype(np.int64))
        nulls = self.nulls[entries] if self.nullable else None
        return probe_length(self.buckets, hash_keys([words[entries] for words in self.words], nulls), entries)

    def arguments(self) -> dict[str, object]:
        return {
            **{numbered("key_words", c): words for c, words in enumerate(self.words)},
            "key_nulls": self.nulls,
            "buckets": self.buckets,
            "bucket_mask": len(self.buckets) - 1,
            "key_capacity": self.capacity,
        }

    def words_of(self, columns: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
        return [words[columns] for words in self.words], self.nulls[columns]

    def reserve(self, capacity: int) -> None:
        """Make room for more keys; columns stay where they are."""
        self.words = [longer(words, capacity) for words in self.words]
        self.nulls = longer(self.nulls, capacity)
        self.capacity = capacity
        self.rehash()

    def rehash(self) -> None:
        count = self.count
        nulls = self.nulls[:count] if self.nullable else None
        hashes = hash_keys([words[:count] for words in self.words], nulls)
        self.buckets = buckets_for(hashes, bucket_count(self.capacity))


Keys = NoKeys | DenseKeys | HashKeys


InternCall = Callable[[Mapping[str, object]], int]
InternKernel = Callable[..., InternCall]  # (large offsets, nullable, codes of 64 bits) → kernel

MOST_TEXT = 1 << 24  # bytes of unused texts that may be kept: all texts of a stream would not fit
_ENTRY = 24  # bytes of overhead per text


class Interner:
    """Number distinct texts 0, 1, 2 … in order of first appearance.

    Each worker has a separate interner, so there is no lock; `translate` maps the codes of another interner.
    """

    def __init__(self, kernel: InternKernel) -> None:
        self._kernel = kernel
        self._head = np.zeros(WORDS, np.int64)
        self._capacity = 64
        self._offsets = np.zeros(self._capacity + 1, np.int64)
        self._hashes = np.zeros(self._capacity, np.uint64)
        self._text = np.zeros(1024, np.uint8)
        self._buckets = np.zeros(bucket_count(self._capacity), np.int32)

    def __len__(self) -> int:
        return int(self._head[KEYS])

    @property
    def nbytes(self) -> int:
        """The approximate size of the texts in bytes."""
        return int(self._offsets[len(self)]) + _ENTRY * len(self)

    def encode(self, array: pa.Array) -> np.ndarray:
        """The code of each text, -1 for null; new texts are added."""
        return self._encode(array, wide=False)

    def encode_wide(self, array: pa.Array) -> np.ndarray:
        """The codes as 64-bit numbers, without a copy of them."""
        codes = self._encode(array, wide=True)
        return codes.astype(np.int64) if codes.dtype != np.int64 else codes

    def _encode(self, array: pa.Array, wide: bool) -> np.ndarray:
        if pa.types.is_dictionary(array.type):
            return self._encode_dictionary(array)
        if pa.types.is_decimal(array.type):
            array = array.cast(pa.large_string())
        codes = room(len(array), np.int64 if wide else np.int32)
        arguments = _text_arguments(array)
        large, nullable = pa.types.is_large_string(array.type), "validity" in arguments
        call = self._kernel(large, nullable, True) if wide else self._kernel(large, nullable)
        done = 0
        while done < len(array):
            done = call({**arguments, **self._arguments(), "lo": done, "hi": len(array), "out": codes})
            if self._head[STATUS] != DONE:
                self._grow(arguments, done)
        return codes

    def code_of(self, text: str) -> int:
        data = text.encode()
        offsets = pa.py_buffer(np.array([0, len(data)], np.int64))
        return int(
            self.encode(pa.Array.from_buffers(pa.large_string(), 1, [None, offsets, pa.py_buffer(data)]))[0]
        )

    def texts(self) -> pa.Array:
        """All texts, by code."""
        count = len(self)
        end = int(self._offsets[count])
        offsets, data = self._offsets[: count + 1].copy(), self._text[:end].copy()
        return pa.Array.from_buffers(
            pa.large_string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        )

    def arena(self, role: str) -> np.ndarray:
        """The buffers in which kernels compare texts: "text_offsets" or "text"."""
        return self._offsets if role == "text_offsets" else self._text

    def decode(self, codes: np.ndarray, dtype: pa.DataType) -> pa.Array:
        """The texts of codes; negative codes become null."""
        index = to_arrow(codes.astype(np.int64), codes >= 0, pa.int64())
        found = self.texts().take(index)
        if pa.types.is_dictionary(dtype):
            return found.cast(dtype.value_type).dictionary_encode().cast(dtype)
        return found.cast(dtype)

    def translate(self, other: Interner, codes: np.ndarray) -> np.ndarray:
        """Map codes of another interner to this one, adding only the texts that occur."""
        if len(codes) == 0:
            return codes
        used, place = np.unique(codes, return_inverse=True)
        return self.encode(other.decode(used, pa.large_string()))[place]

    def _encode_dictionary(self, array: pa.DictionaryArray) -> np.ndarray:
        """Intern the dictionary, not the rows. If its indices equal the codes, return a view of the indices."""
        known = self.encode(array.dictionary.cast(pa.large_string()))
        index = array.indices.cast(pa.int32())
        if not index.null_count and bool((known == np.arange(len(known))).all()):
            return values_view(index)
        codes = to_arrow(known, known >= 0, pa.int32()).take(index)
        return values_view(codes.fill_null(-1))

    def _arguments(self) -> dict[str, object]:
        return {
            "head": self._head,
            "buckets": self._buckets,
            "bucket_mask": len(self._buckets) - 1,
            "key_capacity": self._capacity,
            "text_capacity": len(self._text),
            "hashes": self._hashes,
            "text_offsets": self._offsets,
            "text": self._text,
        }

    def _grow(self, arguments: dict[str, object], row: int) -> None:
        """At least double what is full: the entries, or the bytes for the text that did not fit."""
        offsets = arguments["offsets"]
        assert isinstance(offsets, np.ndarray)
        needed = int(self._offsets[len(self)]) + int(offsets[row + 1] - offsets[row])
        if needed > len(self._text):
            self._text = longer(self._text, max(2 * len(self._text), needed))
        if len(self) == self._capacity:
            self._capacity *= 2
            self._offsets = longer(self._offsets, self._capacity + 1)
            self._hashes = longer(self._hashes, self._capacity)
            self._buckets = buckets_for(self._hashes[: len(self)], bucket_count(self._capacity))


def text_bytes(interners: Mapping[str, Interner]) -> int:
    """The approximate size of the texts of all columns in bytes."""
    return sum([interner.nbytes for interner in interners.values()])


def _text_arguments(array: pa.Array) -> dict[str, object]:
    validity, offsets, data = array.buffers()
    width = np.int64 if pa.types.is_large_string(array.type) else np.int32
    found: dict[str, object] = {
        "offsets": np.frombuffer(offsets, width, len(array) + 1, array.offset * np.dtype(width).itemsize)
        if offsets is not None and len(offsets)
        else np.zeros(1, width),
        "bytes": np.frombuffer(data, np.uint8) if data is not None and len(data) else np.zeros(1, np.uint8),
    }
    if array.null_count:
        found["validity"] = np.frombuffer(validity, np.uint8)
        found["shift"] = array.offset
    return found


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
                return codes.encode_wide(arrays[0])
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
    numbers = room(len(nulls))
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
    return texts.encode_wide(array) if has_codes(array.type) else words_of(array)
