"""The rows of the pane table: which slot holds which pane of time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.kernels.tables.probe import find_or_insert, hash_word
from penstock.loop.abi import SLOTS
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import I32, I64, Buffer, Value, Var


@dataclass
class PaneSlots:
    """A slot is a row of the table, `width` columns long; the runtime keeps room for more slots ready."""

    head: Buffer
    panes: Buffer
    buckets: Buffer
    bucket_mask: Var
    capacity: Var

    @staticmethod
    def declare(k: KernelBuilder, head: Buffer) -> PaneSlots:
        return PaneSlots(
            head,
            k.buffer("panes", I64),
            k.buffer("pane_buckets", I32),
            k.scalar("pane_mask"),
            k.scalar("pane_capacity"),
        )

    def find(self, k: KernelBuilder, pane: Value, stop: Callable[[], None]) -> Var:
        """Give the slot of a pane, taking a new one if need be; out of slots, `stop`."""
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
        with k.if_(slot.eq(self.capacity)):
            stop()
        k.store(self.panes, slot, pane)
        k.store(self.head, SLOTS, slot + 1)
        return slot
