"""Sorting rows by whole numbers: by digits in a kernel where there are many, else by comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.runtime.programs import Call

# Below this, the passes over the digits cost more than comparisons.
FEW = 1 << 12


@dataclass(frozen=True)
class Sorter:
    """Stable sorting. `radix_pass` orders rows by one digit of `digit_bits` bits.

    `float_words` makes whole numbers of floats, in their order; `assign_ranks` numbers what is sorted.
    """

    radix_pass: Call
    digit_bits: int
    float_words: Call
    assign_ranks: Call

    def order(self, *keys: np.ndarray) -> np.ndarray:
        """The places of rows by the first key, then the next ones; equal rows keep their order."""
        if len(keys[0]) < FEW:
            return np.lexsort(keys[::-1])
        _, order = self._by(keys[0], np.arange(len(keys[0])))
        if len(keys) == 1 or _in_order([key[order] for key in keys]):
            return order  # few rows are equal in their first key, and those that are may be in order
        order = np.arange(len(keys[0]))
        for key in reversed(keys):
            _, order = self._by(key[order], order)
        return order

    def ranks(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The rank of each row among the distinct keys, and the first row of each rank."""
        rows = len(keys)
        ranks, first = np.empty(rows, np.int64), np.empty(rows, np.int64)
        if not rows:
            return ranks, first
        sorted_keys, order = self._by(keys, np.arange(rows))
        given = {
            "sorted_keys": sorted_keys,
            "sorted_order": order,
            "ranks": ranks,
            "first": first,
            "rows": rows,
        }
        return ranks, first[: self.assign_ranks(given)]

    def words(self, floats: np.ndarray) -> np.ndarray:
        """Whole numbers in the order of floats."""
        words = np.empty(len(floats), np.int64)
        self.float_words({"values": floats, "words": words, "rows": len(floats)})
        return words

    def _by(self, key: np.ndarray, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Reorder rows by a key, given in their order; give the keys in order too."""
        key = np.ascontiguousarray(key, np.int64)
        least, most = int(key.min()), int(key.max())
        now, then = (key, order), (np.empty_like(key), np.empty_like(order))
        given = {"counts": np.empty(1 << self.digit_bits, np.int64), "rows": len(key), "least": least}
        for shift in range(0, (most - least).bit_length(), self.digit_bits):
            given |= {"keys": now[0], "order": now[1], "sorted_keys": then[0], "sorted_order": then[1]}
            self.radix_pass({**given, "shift": shift})
            spare = (np.empty_like(key), np.empty_like(order)) if now[0] is key else now
            now, then = then, spare
        return now


def _in_order(keys: Sequence[np.ndarray]) -> bool:
    """Whether rows are in order of all their keys."""
    fine = keys[-1][1:] >= keys[-1][:-1]
    for key in reversed(keys[:-1]):
        fine = (key[1:] > key[:-1]) | ((key[1:] == key[:-1]) & fine)
    return bool(fine.all())
