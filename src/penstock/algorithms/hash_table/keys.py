"""The key columns of a pane table: the mapping from keys to columns, in three kinds.

Keys are words (see algorithms/hash_table/group_kernels.py). `columns` is the number of columns the table has room for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import InitVar, dataclass, field
from functools import lru_cache
from itertools import product
from typing import ClassVar, Literal

import numpy as np

from penstock.loop.abi import KEYS, numbered
from penstock.runtime.buffers import longer
from penstock.runtime.hashing import bucket_count, buckets_for, hash_keys, probe_length

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
    @lru_cache(maxsize=64)  # repeated runs of a query sample the same ranges
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
