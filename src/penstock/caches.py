"""What the process keeps between runs, in one object: `CACHES`. Compiled code has a cache of its own (`codegen/cache.py`).

Every entry can be computed again, and everything is bounded by a number of entries. `pk.clear_cache()` drops all.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Any, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedTable(dict[K, V], Generic[K, V]):
    """A dictionary that is emptied when it is full: cheaper than an order of use where entries are few and alike.

    >>> table = BoundedTable[int, str](most=2)
    >>> [table.keep(number, str(number)) for number in range(3)]
    ['0', '1', '2']
    >>> table
    {2: '2'}
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def keep(self, key: K, value: V) -> V:
        """Add an entry, and return its value."""
        if len(self) >= self.most:
            self.clear()
        self[key] = value
        return value


class Caches:
    """The results of functions and the tables that outlive a run.

    >>> caches = Caches()
    >>> @caches.results(most=2)
    ... def square(number: int) -> int:
    ...     return number * number
    >>> [square(number) for number in (1, 2, 3)]
    [1, 4, 9]
    >>> caches.entries(), caches.clear(), caches.entries()
    (2, None, 0)
    """

    def __init__(self) -> None:
        self._functions: list[Any] = []
        self._tables: list[BoundedTable[Any, Any]] = []

    def results(self, most: int) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Decorate a function of hashable arguments, whose last results are kept."""

        def decorated(function: Callable[P, R]) -> Callable[P, R]:
            kept: Any = lru_cache(maxsize=most)(function)
            self._functions.append(kept)
            return kept  # type: ignore[no-any-return]

        return decorated

    def table(self, most: int) -> BoundedTable[Any, Any]:
        """Return a new table."""
        self._tables.append(BoundedTable(most))
        return self._tables[-1]

    def entries(self) -> int:
        """Count the entries."""
        results: int = sum(kept.cache_info().currsize for kept in self._functions)
        return results + sum(map(len, self._tables))

    def clear(self) -> None:
        """Drop all entries."""
        for kept in self._functions:
            kept.cache_clear()
        for table in self._tables:
            table.clear()


CACHES = Caches()
