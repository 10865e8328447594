"""Morsels: ranges of rows that threads claim independently."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from threading import Lock
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Morsels:
    """Rows from `begin` up to `end` in morsels of `size` rows; `taken[0]` counts claims, including failed ones.

    Native code increments the counter in place; `next` is for interpreted kernels.

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
        """The number of unclaimed morsels."""
        return max(self.many - self.taken[0], 0)

    def next(self) -> tuple[int, int] | None:
        """Claim a morsel; None if none is left."""
        with self._lock:
            lo = self.begin + self.taken[0] * self.size
            self.taken[0] += 1
        return (lo, min(lo + self.size, self.end)) if lo < self.end else None


class Progress(NamedTuple):
    """The rows processed; if the kernel stopped within a morsel, the row where it stopped and the morsel's end."""

    rows: int
    stop: tuple[int, int] | None
