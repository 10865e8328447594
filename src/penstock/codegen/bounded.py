"""A map that evicts the least recently used values once it has too many entries or too many bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

_Kept = TypeVar("_Kept")


class Bounded(Generic[_Kept]):
    """Values by key, with limits on entries and bytes. Not thread-safe: callers lock it."""

    def __init__(self, entries: int, size: int, bytes_of: Callable[[_Kept], int]) -> None:
        self._entries, self._size, self._bytes_of = entries, size, bytes_of
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: str) -> _Kept | None:
        """Look up a value and mark it as most recently used."""
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
        return found

    def put(self, key: str, value: _Kept) -> list[_Kept]:
        """Insert a value, even one above the limit by itself; return the values evicted or replaced."""
        left = [self._pop(key)] if key in self._kept else []
        self._kept[key] = value
        self.bytes += self._bytes_of(value)
        while len(self._kept) > 1 and (len(self._kept) > self._entries or self.bytes > self._size):
            left.append(self._pop(next(iter(self._kept))))
        return left

    def clear(self) -> list[_Kept]:
        """Remove all values; return them."""
        left = list(self._kept.values())
        self._kept.clear()
        self.bytes = 0
        return left

    def _pop(self, key: str) -> _Kept:
        value = self._kept.pop(key)
        self.bytes -= self._bytes_of(value)
        return value
