"""The unit of input to a worker of an eager join."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

Found = tuple[np.ndarray, np.ndarray] | int
"""Pairs that are new, or how many."""


@dataclass(frozen=True)
class RowSlice:
    """The rows `lo … hi` of some codes. A row's number is base + index, or listed in `numbers` (routed rows).

    `last` is greater than any row number.
    """

    codes: np.ndarray
    lo: int
    hi: int
    base: int
    last: int
    numbers: np.ndarray | None = None

    @property
    def rows(self) -> int:
        return self.hi - self.lo

    def row_numbers(self) -> np.ndarray:
        if self.numbers is not None:
            return self.numbers[self.lo : self.hi]
        return np.arange(self.base + self.lo, self.base + self.hi, dtype=np.uint32)

    def copied(self) -> RowSlice:
        """Return the same rows with copied arrays."""
        numbers = None if self.numbers is None else self.row_numbers().copy()
        codes = self.codes[self.lo : self.hi].copy()
        return RowSlice(codes, 0, self.rows, self.base + self.lo, self.last, numbers)
