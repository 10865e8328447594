"""The adaptive joiner with ordered pairs: it measures each window, chooses an algorithm by the tree, and joins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache

import numpy as np

from penstock.algorithms.joins.adapt.choose_join import JoinChooser
from penstock.algorithms.joins.adapt.tree import IN_ORDER
from penstock.algorithms.joins.adapt.window_statistics import WindowStatistics
from penstock.algorithms.joins.joiner import Pairs
from penstock.operators.joins.ordered_output import Ordered
from penstock.runtime.join_metrics import ChosenAlgorithm


class AutoInOrder:
    """Chooses an algorithm for each window; `chosen` holds the last choice and the reason.

    `joiners` returns the joiner of a name. `arrival` returns how long a number of rows took to arrive, in
    milliseconds; 0 if all were present at the start.
    """

    def __init__(
        self, joiners: Callable[[str], Ordered], chooser: JoinChooser, arrival: Callable[[int], float]
    ) -> None:
        self._joiners, self._chooser, self._arrival = cache(joiners), chooser, arrival
        self.chosen = ChosenAlgorithm("npj")

    def ordered(self, left: np.ndarray, right: np.ndarray, threads: int, *, outer: bool = False) -> Pairs:
        """Return the pairs of equal codes; with `outer`, unmatched left rows have -1."""
        return self._joiner(left, right, threads).ordered(left, right, threads, outer=outer)

    def parts(
        self, left: np.ndarray, right: np.ndarray, threads: int, *, outer: bool = False, most: int | None
    ) -> Iterator[Pairs]:
        """Yield the same pairs, about `most` at a time where the algorithm supports it."""
        joiner = self._joiner(left, right, threads)
        yield from joiner.parts(left, right, threads, outer=outer, most=most)

    def met(self, left: np.ndarray, right: np.ndarray, threads: int) -> np.ndarray:
        """Return a mask of the left rows that have a match, by one table; other algorithms would list the pairs."""
        self.chosen = ChosenAlgorithm("npj")
        return self._joiners("npj").met(left, right, threads)

    def _joiner(self, left: np.ndarray, right: np.ndarray, threads: int) -> Ordered:
        self.chosen = self._choose(left, right, threads)
        return self._joiners(self.chosen.algorithm)

    def _choose(self, left: np.ndarray, right: np.ndarray, threads: int) -> ChosenAlgorithm:
        if not len(left) or not len(right):
            return ChosenAlgorithm("npj")
        statistics = WindowStatistics(left, right, self._arrival(len(left) + len(right)), threads)
        return replace(self._chooser.choose(statistics, IN_ORDER), seen=statistics.known)
