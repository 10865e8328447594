"""The conversion of codes to words and to places in hash tables, and the loops and output shared by all join kernels.

A place indexes arrays of counts or bounds. A missing word maps to a place without rows, so callers need no check. A
slot holds the mark word + 1, or 0 if it is free. The greatest word, whose mark would be 0, has an extra place after the
slots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from penstock.algorithms.hash_table.kernels import hash_word, probe, probing
from penstock.loop.abi import NEED_OUTPUT, OUTPUT, STATUS, JoinSpec
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import (
    BOOL,
    I64,
    U64,
    Bitcast,
    Buffer,
    Kernel,
    Value,
    Var,
    const,
    maximum,
    minimum,
    select,
)


def range_of() -> Kernel:
    """Extend `bounds`, the least and the greatest code, by the rows `lo … hi`."""
    k = KernelBuilder("range_of")
    codes, lo, hi, bounds = k.buffer("codes", I64), k.scalar("lo"), k.scalar("hi"), k.buffer("bounds", I64)
    least, most = k.var("least", bounds[0]), k.var("most", bounds[1])
    with k.for_(lo, hi) as i:
        k.set(least, minimum(least, codes[i]))
        k.set(most, maximum(most, codes[i]))
    k.store(bounds, 0, least)
    k.store(bounds, 1, most)
    k.ret(hi)
    return k.build()


@dataclass(frozen=True)
class CodeColumn:
    """The codes of the rows `lo … hi`, read as words."""

    k: KernelBuilder
    spec: JoinSpec
    codes: Buffer
    least: Var
    lo: Var
    hi: Var

    @staticmethod
    def declare(k: KernelBuilder, spec: JoinSpec) -> CodeColumn:
        return CodeColumn(k, spec, k.buffer("codes", I64), k.scalar("least"), k.scalar("lo"), k.scalar("hi"))

    def word(self, at: Value) -> Var:
        return self.k.var("word", Bitcast(self.codes[at] - self.least, U64).to(self.spec.word))

    @contextmanager
    def rows(self) -> Iterator[tuple[Var, Var]]:
        """Emit a loop over (row, word)."""
        with self.k.for_(self.lo, self.hi, "row") as row:
            yield row, self.word(row)


def hashed(word: Value) -> Value:
    """Return a 64-bit hash: the low bits choose a partition, the high bits a slot."""
    return hash_word(word.to(U64))


@dataclass(frozen=True)
class Pairs:
    """The output of matches: two arrays of row numbers, filled up to `used`."""

    k: KernelBuilder
    left: Buffer
    right: Buffer
    capacity: Var
    head: Buffer
    used: Var

    @staticmethod
    def declare(k: KernelBuilder) -> Pairs:
        left, right = k.buffer("out_left", I64), k.buffer("out_right", I64)
        capacity, head = k.scalar("out_capacity"), k.buffer("head", I64)
        return Pairs(k, left, right, capacity, head, k.var("used", head[OUTPUT]))

    def require(self, room: Value, position: Value) -> None:
        """Return from the kernel at `position`, before any of its effects, unless there is room for `room` more pairs."""
        with self.k.if_(self.used + room > self.capacity):
            self.stop(position)

    def stop(self, position: Value) -> None:
        self.k.store(self.head, OUTPUT, self.used)
        self.k.store(self.head, STATUS, NEED_OUTPUT)
        self.k.ret(position)

    def run(self, rows: Buffer, start: Value, stop: Value, other: Value) -> None:
        """Pair the rows at `start … stop` with one row of the other side."""
        k = self.k
        base = k.var("base", self.used - start)
        with k.for_(start, stop, "j") as j:
            k.store(self.left, base + j, rows[j].to(I64))
            k.store(self.right, base + j, other)
        k.set(self.used, base + stop)

    def add(self, left: Value, right: Value) -> None:
        self.k.store(self.left, self.used, left)
        self.k.store(self.right, self.used, right)
        self.k.set(self.used, self.used + 1)

    def finish(self, position: Value) -> None:
        self.k.store(self.head, OUTPUT, self.used)
        self.k.store(self.head, STATUS, 0)
        self.k.ret(position)


SLOTS_PER_BLOCK = 64
"""Rows whose slots are fetched together before any is used."""


@contextmanager
def blocks(k: KernelBuilder, lo: Value, hi: Value) -> Iterator[tuple[Var, Var]]:
    """Emit a loop over blocks of rows: (first, end)."""
    with k.for_(
        0, (hi - lo + (SLOTS_PER_BLOCK - 1)) >> (SLOTS_PER_BLOCK.bit_length() - 1), "block", scalar=True
    ) as block:
        first = k.var("first", lo + block * SLOTS_PER_BLOCK)
        yield first, k.var("end", minimum(first + SLOTS_PER_BLOCK, hi))


def to_place(hashed: Value, mask: Value) -> Value:
    """Return the first slot of a probe."""
    return Bitcast(hashed >> const(32, U64), I64) & mask


Find = Callable[[Value], Value]


def dense(shift: Value | None = None) -> Find:
    """Use the word as the place, without the digits that chose its partition."""
    return lambda word: word.to(I64) if shift is None else word.to(I64) >> shift


@dataclass(frozen=True)
class Slots:
    """Open addressing with linear probing, for one thread.

    A probe begins at `near`, if the caller has computed (and prefetched) it.
    """

    k: KernelBuilder
    slots: Buffer
    mask: Value

    @staticmethod
    def declare(k: KernelBuilder, spec: JoinSpec) -> Slots:
        return Slots(k, k.buffer("slots", spec.word), k.scalar("mask"))

    def near(self, word: Value) -> Value:
        """Return the first slot of a probe."""
        return to_place(hashed(word), self.mask)

    def find(self, word: Value, near: Value | None = None) -> Value:
        """Return the word's slot, or a free one."""
        return self._place(*self._search(word, near))

    def insert(self, word: Value, near: Value | None = None) -> Value:
        """Return the word's slot, and insert the word if it is missing."""
        mark, at = self._search(word, near)
        self.k.store(self.slots, at, mark)
        return self._place(mark, at)

    def _search(self, word: Value, near: Value | None) -> tuple[Var, Var]:
        mark, first = self.k.var("mark", word + 1), self.near(word) if near is None else near
        slots = self.slots
        return mark, probe(self.k, first, self.mask, lambda at: slots[at].ne(0) & slots[at].ne(mark))

    def _place(self, mark: Value, at: Value) -> Value:
        return self.k.var("place", select(mark.eq(0), self.mask + 1, at))


@dataclass(frozen=True)
class SharedSlots(Slots):
    """The same table for concurrent inserts, with an atomic maximum as the only primitive.

    Marks descend along a probe sequence: a greater mark displaces a lesser one, which moves on. The resulting table is
    independent of the order of inserts (Shun and Blelloch's phase-concurrent table, with Amble and Knuth's order).
    Marks move while the table fills, so counting starts after all inserts.
    """

    @staticmethod
    def declare(k: KernelBuilder, spec: JoinSpec) -> SharedSlots:
        return SharedSlots(k, k.buffer("slots", spec.word), k.scalar("mask"))

    def find(self, word: Value, near: Value | None = None) -> Value:
        k, slots = self.k, self.slots
        mark, first = k.var("mark", word + 1), self.near(word) if near is None else near
        at = probe(k, first, self.mask, lambda at: slots[at] > mark)
        there = select(self.slots[at].eq(mark), at, self.mask + 2)
        return k.var("place", select(mark.eq(0), self.mask + 1, there))

    def insert(self, word: Value, near: Value | None = None) -> Value:
        k = self.k
        carried, first = k.var("carried", word + 1), self.near(word) if near is None else near
        going = k.var("going", const(True, BOOL))
        with probing(k, first, self.mask, lambda at: going) as at:
            old = k.atomic("max", self.slots, at, carried, "old")
            assert old is not None
            k.set(going, old.ne(0) & old.ne(carried))
            k.set(carried, minimum(old, carried))
        return at


def table_of(k: KernelBuilder, spec: JoinSpec) -> Slots | None:
    """Declare the hash table for a specification, or None if words are dense."""
    if spec.dense:
        return None
    return SharedSlots.declare(k, spec) if spec.shared else Slots.declare(k, spec)
