"""A map that forgets what was used least recently, once it has too many entries or too many bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

_Kept = TypeVar("_Kept")


class Bounded(Generic[_Kept]):
    """Values by key, within limits of entries and bytes. Callers lock it if threads share it."""

    def __init__(self, entries: int, size: int, bytes_of: Callable[[_Kept], int]) -> None:
        self._entries, self._size, self._bytes_of = entries, size, bytes_of
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: str) -> _Kept | None:
        """Find a value, which is then the one used last."""
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
        return found

    def put(self, key: str, value: _Kept) -> list[_Kept]:
        """Keep a value, even one that is too large by itself; give the values that leave."""
        left = [self._pop(key)] if key in self._kept else []
        self._kept[key] = value
        self.bytes += self._bytes_of(value)
        while len(self._kept) > 1 and (len(self._kept) > self._entries or self.bytes > self._size):
            left.append(self._pop(next(iter(self._kept))))
        return left

    def clear(self) -> list[_Kept]:
        """Forget everything; give the values that leave."""
        left = list(self._kept.values())
        self._kept.clear()
        self.bytes = 0
        return left

    def _pop(self, key: str) -> _Kept:
        value = self._kept.pop(key)
        self.bytes -= self._bytes_of(value)
        return value
