"""Sorting rows by whole numbers: by digits in a kernel where there are many, else by comparison."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.runtime.programs import Call

# Below this, the passes over the digits cost more than comparisons.
FEW = 1 << 12


@dataclass(frozen=True)
class Sorter:
    """Stable sorting. `radix_pass` orders rows by one digit of `digit_bits` bits."""

    radix_pass: Call
    digit_bits: int

    def order(self, *keys: np.ndarray) -> np.ndarray:
        """The places of rows by the first key, then the next ones; equal rows keep their order."""
        if len(keys[0]) < FEW:
            return np.lexsort(keys[::-1])
        order = np.arange(len(keys[0]))
        for key in reversed(keys):
            order = self._by(np.ascontiguousarray(key, np.int64), order)
        return order

    def _by(self, key: np.ndarray, order: np.ndarray) -> np.ndarray:
        least, most = int(key.min()), int(key.max())
        counts, other = np.empty(1 << self.digit_bits, np.int64), np.empty(len(key), np.int64)
        given = {"keys": key, "counts": counts, "rows": len(key), "least": least}
        for shift in range(0, (most - least).bit_length(), self.digit_bits):
            self.radix_pass({**given, "order": order, "sorted": other, "shift": shift})
            order, other = other, order
        return order
