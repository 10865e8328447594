"""Rows that threads take share by share, without waiting for each other."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from threading import Lock
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Morsels:
    """Rows from `begin` up to `end` in shares of so many; `taken[0]` counts those that somebody has taken, or wanted to.

    Native code adds to the counter where it lies; `next` is for kernels that are interpreted.

    >>> shares = Morsels(10, 15, 3)
    >>> shares.many, shares.next(), shares.next(), shares.next(), shares.left
    (2, (10, 13), (13, 15), None, 0)
    """

    begin: int
    end: int
    size: int
    taken: array[int] = field(default_factory=lambda: array("q", [0]))
    _lock: Lock = field(default_factory=Lock)

    @property
    def many(self) -> int:
        return -(-(self.end - self.begin) // self.size)

    @property
    def left(self) -> int:
        """How many shares nobody has taken yet."""
        return max(self.many - self.taken[0], 0)

    def next(self) -> tuple[int, int] | None:
        """Take a share, if one is left."""
        with self._lock:
            lo = self.begin + self.taken[0] * self.size
            self.taken[0] += 1
        return (lo, min(lo + self.size, self.end)) if lo < self.end else None


class Progress(NamedTuple):
    """How far a kernel went: through so many rows; if it stopped within a share, where, and where that ends."""

    rows: int
    stop: tuple[int, int] | None
