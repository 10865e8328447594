"""The one interface through which an operator reaches the kernels of a variant."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Seen = TypeVar("Seen", bound=Hashable)
Made = TypeVar("Made")


class Variants(Generic[Seen, Made]):
    """The variants of one node by what its rows have shown, each made once.

    `make` specialises the node and returns its kernels, which are lowered and compiled on first use. Two threads may
    both make a variant; the two are equal.

    >>> squares = Variants(lambda number: number * number)
    >>> squares.get(3)
    9
    """

    def __init__(self, make: Callable[[Seen], Made]) -> None:
        self._make = make
        self._made: dict[Seen, Made] = {}
        self._preparing: dict[Hashable, bool] = {}  # whether it is done

    def get(self, seen: Seen) -> Made:
        """Return the variant for what the rows have shown so far."""
        found = self._made.get(seen)
        if found is None:
            found = self._made[seen] = self._make(seen)
        return found

    def ready(
        self, key: Hashable, prepare: Callable[[], object], start: Callable[[Callable[[], None]], None]
    ) -> bool:
        """Whether the kernels under a key are compiled; the first call has `start` prepare them, in the background."""
        if key not in self._preparing:
            self._preparing[key] = False
            start(lambda: self._prepare(key, prepare))
        return self._preparing[key]

    def _prepare(self, key: Hashable, prepare: Callable[[], object]) -> None:
        prepare()
        self._preparing[key] = True
