"""One worker of the symmetric hash join: a hash table with chains of rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.algorithms.joins.memory import Kernels, PairsOut, Spare, nothing, slots_for
from penstock.algorithms.joins.row_slice import Found, RowSlice
from penstock.loop.abi import DONE, KEYS, NEED_KEYS, OUTPUT, STATUS, JoinSpec

FIRST_SLOTS = 1 << 10


class SymmetricHash:
    """Takes rows of either side at any time, and returns their matches at once."""

    def __init__(self, kernels: Kernels, spec: JoinSpec, spare: Spare) -> None:
        self._kernels, self._spec, self._spare = kernels, spec, spare
        self._table = spare.arena.zeros("table", 2 * max(spare.slots, FIRST_SLOTS), np.uint64)
        self._next = [np.empty(0, np.uint32), np.empty(0, np.uint32)]
        self._keys = 0

    def push(self, side: int, piece: RowSlice) -> Found:
        """Insert the rows of a piece, and return their matches."""
        call = self._kernels("shj_push_left" if side == 0 else "shj_push_right", self._spec)
        out = PairsOut(2 * piece.rows if self._spec.pairs else 1)
        values = self._arguments(side, piece)
        out.head[KEYS] = self._keys
        at = piece.lo
        while True:
            slots = len(self._table) // 2
            table = {"table": self._table, "mask": slots - 1, "key_capacity": slots // 2}
            at = call({**values, **table, **out.arguments, "lo": at})
            if out.head[STATUS] == DONE:
                break
            self._grow() if out.head[STATUS] == NEED_KEYS else out.grow()
        self._keys = int(out.head[KEYS])
        return out.taken if self._spec.pairs else int(out.head[OUTPUT])

    def close(self) -> Found:
        self._spare.arena.keep("table", self._table)
        self._spare.slots = slots_for(self._keys)
        return nothing() if self._spec.pairs else 0

    def _arguments(self, side: int, piece: RowSlice) -> dict[str, Any]:
        values: dict[str, Any] = {"codes": piece.codes, "hi": piece.hi, "base": piece.base}
        if self._spec.pairs:
            self._reach(side, piece.last)
            values |= {"own_next": self._next[side], "other_next": self._next[1 - side]}
            values["numbers"] = piece.numbers
        return values

    def _reach(self, side: int, rows: int) -> None:
        """Make room for the chains of rows up to this number."""
        old = self._next[side]
        if len(old) < rows:
            self._next[side] = np.empty(max(rows, 2 * len(old)), np.uint32)
            self._next[side][: len(old)] = old

    def _grow(self) -> None:
        """Rehash into a table four times as large: rare growth matters more than untouched memory."""
        slots = len(self._table) // 2
        larger = np.zeros(8 * slots, np.uint64)
        grow = self._kernels("shj_grow", JoinSpec())
        grow({"table": self._table, "slots": slots, "larger": larger, "mask": 4 * slots - 1})
        self._table = larger
