"""Map a word to a place, the index of its rows: the word itself, or its slot in a hash table.

A place indexes arrays of counts or bounds. A missing word maps to a place without rows, so callers need no check. A
slot holds the mark word + 1, or 0 if it is free. The greatest word, whose mark would be 0, has an extra place after the
slots.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.algorithms.hash_table.probe import probe, probing
from penstock.algorithms.joins.kernels.key_words import hashed, to_place
from penstock.loop.abi import JoinSpec
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import BOOL, I64, Buffer, Value, Var, const, minimum, select

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
