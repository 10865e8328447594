"""The pane side of the pane table: a hash table from pane numbers to slots."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.algorithms.hash_table.probe import find_or_insert, hash_word
from penstock.algorithms.monoids import Monoid
from penstock.loop.abi import SLOTS
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import I32, I64, Buffer, Value, Var, const


@dataclass
class PaneSlots:
    """The slots of the table. A slot is a row of `width` cells per state; the runtime allocates slots in advance.

    If the free slots are `dirty`, the kernel clears a slot when it takes it, in the cache of the thread that fills it.
    """

    head: Buffer
    width: Value
    monoids: Sequence[Monoid]
    states: tuple[tuple[Buffer, ...], ...]
    panes: Buffer
    buckets: Buffer
    bucket_mask: Var
    capacity: Var
    dirty: Var

    @staticmethod
    def declare(k: KernelBuilder, head: Buffer, width: Value, monoids: Sequence[Monoid]) -> PaneSlots:
        return PaneSlots(
            head,
            width,
            monoids,
            tuple(tuple(k.buffer("state", state.type) for state in monoid.states) for monoid in monoids),
            k.buffer("panes", I64),
            k.buffer("pane_buckets", I32),
            k.scalar("pane_mask"),
            k.scalar("pane_capacity"),
            k.scalar("pane_dirty"),
        )

    def find(self, k: KernelBuilder, pane: Value, stop: Callable[[], None]) -> Var:
        """Return the slot of a pane, and take a new one if there is none; call `stop` if no slot is free."""
        return find_or_insert(
            k,
            k.var("pane_hash", hash_word(pane)),
            self.buckets,
            self.bucket_mask,
            lambda at: self.panes[at].eq(pane),
            lambda: self._insert(k, pane, stop),
        )

    def _insert(self, k: KernelBuilder, pane: Value, stop: Callable[[], None]) -> Value:
        slot = k.var("new_slot", self.head[SLOTS])
        with k.if_(slot >= self.capacity):
            stop()
        with k.if_(self.dirty.ne(0)):
            self._clear(k, k.var("begin", slot * self.width))
        k.store(self.panes, slot, pane)
        k.store(self.head, SLOTS, slot + 1)
        return slot

    def _clear(self, k: KernelBuilder, begin: Value) -> None:
        for monoid, buffers in zip(self.monoids, self.states, strict=True):
            for state, buffer in zip(monoid.states, buffers, strict=True):
                with k.for_(0, self.width, "cell") as cell:
                    k.store(buffer, begin + cell, const(state.identity, state.type))
