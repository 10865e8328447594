"""The hash table in kernels: the one probe loop, the group of a row's key by arithmetic or by hash, and numbers of keys.

A key is a tuple of 64-bit words, one per `by` column of any type: integers unchanged, floats as canonical bits,
strings as codes of the interner. A null is the word 0 with its bit set in the key's null mask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from penstock.algorithms.expressions.cells import Cell, is_nan
from penstock.loop.abi import DONE, KEYS, NEED_KEYS, STATUS
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import (
    BOOL,
    F64,
    I32,
    I64,
    U64,
    Bitcast,
    Buffer,
    Kernel,
    Value,
    Var,
    const,
    maximum,
    select,
)

# Odd 64-bit constants with well-mixed bits (splitmix64's and a golden-ratio multiplier).
_MIX = 0xBF58476D1CE4E5B9
_GOLDEN = 0x9E3779B97F4A7C15


def hash_word(word: Value) -> Value:
    """Mix 64 bits (as unsigned) so that the low bits depend on all."""
    x = (Bitcast(word, U64) if word.type == I64 else word.to(U64)) * const(_GOLDEN, U64)
    return (x ^ (x >> 32)) * const(_MIX, U64)


def combine(seed: Value, word: Value) -> Value:
    """Fold one more word into a hash."""
    return hash_word((seed ^ (seed >> 29)) + hash_word(word))


@contextmanager
def probing(k: KernelBuilder, first: Value, mask: Value, going: Callable[[Value], Value]) -> Iterator[Var]:
    """Emit the loop of linear probing: the body runs at each place, from `first`, while `going(place)` holds."""
    place = k.var("place", first)
    with k.while_(going(place)):
        yield place
        k.set(place, (place + 1) & mask)


def probe(k: KernelBuilder, first: Value, mask: Value, taken: Callable[[Value], Value]) -> Var:
    """Return the first place that is not `taken`: that of the key, or a free one. No table is ever full."""
    with probing(k, first, mask, taken) as place:
        pass
    return place


def first_place(hashed: Value, mask: Value) -> Value:
    """Return where the probe of a 64-bit hash begins."""
    return Bitcast(hashed ^ (hashed >> 32), I64) & mask


def find_or_insert(
    k: KernelBuilder,
    hashed: Value,
    buckets: Buffer,
    bucket_mask: Value,
    matches: Callable[[Value], Value],
    insert: Callable[[], Value],
) -> Var:
    """Find the entry of a key, or insert one: `matches(entry)` compares, `insert()` returns a new entry.

    A bucket holds entry + 1, or 0 if empty.
    """

    def other(place: Value) -> Value:
        held = buckets[place].to(I64)
        return held.ne(0) & ~matches(maximum(held - 1, const(0, I64)))

    place = probe(k, first_place(hashed, bucket_mask), bucket_mask, other)
    entry = k.var("entry", buckets[place].to(I64) - 1)
    with k.if_(entry < 0):
        k.set(entry, insert())
        k.store(buckets, place, (entry + 1).to(buckets.type))
    return entry


_CANONICAL_NAN = 0x7FF8000000000000


def key_word(value: Value) -> Value:
    """Return the 64-bit word of a key value; words are equal exactly if the keys are."""
    if value.type.is_float:
        wide = value.to(F64) + 0.0  # -0.0 + 0.0 is 0.0: both zeros are the same key
        return select(is_nan(wide), const(_CANONICAL_NAN, I64), Bitcast(wide, I64))
    return Bitcast(value, I64) if value.type == U64 else value.to(I64)


class KeyTable(Protocol):
    """The interface of a key table in the fold kernel."""

    def locate(self, k: KernelBuilder, cells: Sequence[Cell]) -> tuple[Value, Value | None]:
        """Return the key's group, and the condition that it is outside the table (None: never)."""


class OneGroup:
    """A global aggregate: one group."""

    def locate(self, k: KernelBuilder, cells: Sequence[Cell]) -> tuple[Value, Value | None]:
        return const(0, I64), None


@dataclass
class DenseGroups:
    """Mixed-radix arithmetic: digit 0 of each component is null, digit d the word base + d - 1."""

    bases: tuple[Var, ...]
    sizes: tuple[Var, ...]

    @staticmethod
    def declare(k: KernelBuilder, width: int) -> DenseGroups:
        bases = tuple(k.scalar("key_base") for _ in range(width))
        sizes = tuple(k.scalar("key_size") for _ in range(width))
        return DenseGroups(bases, sizes)

    def locate(self, k: KernelBuilder, cells: Sequence[Cell]) -> tuple[Value, Value | None]:
        place: Value = const(0, I64)
        outside: Value = const(False, BOOL)
        for cell, base, size in zip(cells, self.bases, self.sizes, strict=True):
            digit = k.var("digit", key_word(cell.value) - base + 1)
            if cell.valid is not None:
                k.set(digit, select(cell.valid, digit, 0))
            # Digit 0 of a valid value would be the null's group: subtracting 1 first makes it huge (unsigned).
            lowest = digit - 1 if cell.valid is None else select(cell.valid, digit - 1, 0)
            beyond = Bitcast(lowest, U64) >= Bitcast(size - 1, U64)
            outside = beyond if len(cells) == 1 else outside | beyond
            place = digit if len(cells) == 1 else place * size + digit
        return place, outside


@dataclass
class HashGroups:
    """A hash table with open addressing; groups are numbered in order of arrival."""

    head: Buffer
    words: tuple[Buffer, ...]
    nulls: Buffer
    buckets: Buffer
    bucket_mask: Var

    @staticmethod
    def declare(k: KernelBuilder, head: Buffer, width: int) -> HashGroups:
        words = tuple(k.buffer("key_words", I64) for _ in range(width))
        return HashGroups(
            head, words, k.buffer("key_nulls", I64), k.buffer("buckets", I32), k.scalar("bucket_mask")
        )

    def locate(self, k: KernelBuilder, cells: Sequence[Cell]) -> tuple[Value, Value | None]:
        mask = self._null_mask(k, cells)
        words = [k.var("word", word_of(cell)) for cell in cells]
        hashed: Value = hash_word(words[0])
        for word in (*words[1:], *([] if mask is None else [mask])):
            hashed = combine(hashed, word)
        entry = find_or_insert(
            k,
            k.var("hash", hashed),
            self.buckets,
            self.bucket_mask,
            lambda at: self._matches(at, words, mask),
            lambda: self._insert(k, words, mask),
        )
        return entry, None

    def _null_mask(self, k: KernelBuilder, cells: Sequence[Cell]) -> Var | None:
        bits = null_bits(cells)
        return None if bits is None else k.var("nulls", bits)

    def _matches(self, at: Value, words: Sequence[Value], mask: Value | None) -> Value:
        """Compare with a stored key. Without nullable components no stored key has a null."""
        same = self.words[0][at].eq(words[0])
        for stored, word in zip(self.words[1:], words[1:], strict=True):
            same = same & stored[at].eq(word)
        return same if mask is None else same & self.nulls[at].eq(mask)

    def _insert(self, k: KernelBuilder, words: Sequence[Value], mask: Value | None) -> Value:
        new = k.var("new_key", self.head[KEYS])
        for stored, word in zip(self.words, words, strict=True):
            k.store(stored, new, word)
        k.store(self.nulls, new, 0 if mask is None else mask)
        k.store(self.head, KEYS, new + 1)
        return new


def null_bits(cells: Sequence[Cell]) -> Value | None:
    """A bit for each null component of a key; None if none can be null."""
    bits: Value | None = None
    for place, cell in enumerate(cells):
        if cell.valid is not None:
            bit = select(cell.valid, const(0, I64), const(1 << place, I64))
            bits = bit if bits is None else bits | bit
    return bits


def word_of(cell: Cell) -> Value:
    """The word of a key; 0 for a null."""
    word = key_word(cell.value)
    return word if cell.valid is None else select(cell.valid, word, 0)


@dataclass
class KeyReader:
    """The inverse mapping: from a group to its key's words, and whether each is null."""

    dense: DenseGroups | None = None
    words: tuple[Buffer, ...] = ()
    nulls: Buffer | None = None
    hidden: int = 0  # components before the key: the pane, in a sparse table

    @staticmethod
    def declare(k: KernelBuilder, kind: str, width: int) -> KeyReader:
        """Declare the parameters of a table of the given kind."""
        if width == 0:
            return KeyReader()
        if kind == "dense":
            return KeyReader(DenseGroups.declare(k, width))
        hidden = 1 if kind == "sparse" else 0
        words = tuple(k.buffer("key_words", I64) for _ in range(width + hidden))
        return KeyReader(None, words[hidden:], k.buffer("key_nulls", I64), hidden)

    def read(self, k: KernelBuilder, column: Value) -> list[tuple[Value, Value]]:
        """Return (word, is null) for each component of a group's key."""
        if self.dense is not None:
            return _digits(k, self.dense, column)
        if self.nulls is None:
            return []
        mask = k.var("nulls", self.nulls[column] >> self.hidden)
        return [
            (k.var("word", words[column]), ((mask >> place) & 1).ne(0))
            for place, words in enumerate(self.words)
        ]


def _digits(k: KernelBuilder, table: DenseGroups, column: Value) -> list[tuple[Value, Value]]:
    """Invert the mixed-radix arithmetic, last component first."""
    found: list[tuple[Value, Value]] = []
    rest = column
    for place in reversed(range(len(table.bases))):
        digit = rest if place == 0 else k.var("digit", rest.rem(table.sizes[place]))
        null = digit.eq(0)
        found.append((k.var("word", select(null, const(0, I64), digit - 1 + table.bases[place])), null))
        rest = rest if place == 0 else k.var("rest", rest.div(table.sizes[place]))
    return found[::-1]


def index_kernel(width: int) -> Kernel:
    """Write the number of each row's key to `out`, and insert new keys.

    Buffers hold the words and null masks of `width` components. The kernel stops before the table could overflow.
    """
    k = KernelBuilder("index")
    lo, hi, capacity = k.scalar("lo"), k.scalar("hi"), k.scalar("key_capacity")
    head = k.buffer("head", I64)
    table = HashGroups.declare(k, head, width)
    inputs = [k.buffer("in_words", I64) for _ in range(width)]
    nulls = k.buffer("in_nulls", I64)
    out = k.buffer("out", I64)
    with k.for_(lo, hi, "row") as row:
        with k.if_(head[KEYS] >= capacity):
            k.store(head, STATUS, NEED_KEYS)
            k.ret(row)
        cells = [Cell(words[row], ((nulls[row] >> c) & 1).eq(0)) for c, words in enumerate(inputs)]
        place, _ = table.locate(k, cells)
        k.store(out, row, place)
    k.store(head, STATUS, DONE)
    k.ret(hi)
    return k.build()
