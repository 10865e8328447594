"""Merge long spans from short ones: the reduction of n entries from a few reductions of fewer.

    f_n[i] = f_h[i - (r - 1) h] ⊕ … ⊕ f_h[i - h] ⊕ f_h[i]        n = r h

A span of n entries costs about log n combinations of whole arrays, each a vectorisable loop. The order of
combinations depends on n alone, not on the start of a block: results do not depend on block bounds, and the
error of a float sum grows with log n only. No entry is ever subtracted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

MOST_PARTS = 8


@dataclass(frozen=True, slots=True)
class DoubledSpan:
    """The reduction of `length` entries that end `back` entries ago."""

    length: int
    back: int


Parts = tuple[DoubledSpan, ...]


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost to read and merge a part, and to write an array: their ratio determines the best number of parts."""

    part: float = 1.0
    array: float = 3.0


LIGHT = Cost()
HEAVY = Cost(part=6.0)  # states of several words, merged by more than one instruction


def chain(lengths: Iterable[int], cost: Cost = LIGHT, idempotent: bool = False) -> dict[int, Parts]:
    """Plan the parts of each length, oldest part first, shorter lengths before longer ones.

    >>> {n: [(part.length, part.back) for part in parts] for n, parts in chain([21]).items()}
    {7: [(1, 6), (1, 5), (1, 4), (1, 3), (1, 2), (1, 1), (1, 0)], 21: [(7, 14), (7, 7), (7, 0)]}
    """
    search = _Search(cost, idempotent)
    for length in sorted(set(lengths)):
        search.make(length)
    return dict(sorted(search.made.items()))


@dataclass
class _Search:
    """Finds the cheapest plan for a length; lengths made before are free."""

    cost: Cost
    idempotent: bool
    made: dict[int, Parts] = field(default_factory=dict)

    def make(self, length: int) -> None:
        self._take(length, {})

    def _take(self, length: int, known: dict[int, tuple[float, int]]) -> None:
        if length > 1 and length not in self.made:
            _, ways = self._best(length, known)
            self._take(self._base(length, ways), known)
            self.made[length] = self._parts(length, ways)

    def _best(self, length: int, known: dict[int, tuple[float, int]]) -> tuple[float, int]:
        """The least cost of a length, and the number of parts at that cost."""
        if length == 1 or length in self.made:
            return 0.0, 1
        if length not in known:
            known[length] = min(
                self._way(length, parts, known) for parts in range(2, min(length, MOST_PARTS) + 1)
            )
        return known[length]

    def _way(self, length: int, parts: int, known: dict[int, tuple[float, int]]) -> tuple[float, int]:
        base = self._base(length, parts)
        rest = 0 if self.idempotent else length - base * parts
        return self._best(base, known)[0] + self.cost.part * (parts + rest) + self.cost.array, parts

    def _base(self, length: int, parts: int) -> int:
        """The length of a part. Parts overlap if the reduction is idempotent; otherwise single entries remain."""
        return -(-length // parts) if self.idempotent else length // parts

    def _parts(self, length: int, parts: int) -> Parts:
        base = self._base(length, parts)
        single = (
            ()
            if self.idempotent
            else tuple(DoubledSpan(1, back) for back in reversed(range(base * parts, length)))
        )
        return *single, *(DoubledSpan(base, min(i * base, length - base)) for i in reversed(range(parts)))
