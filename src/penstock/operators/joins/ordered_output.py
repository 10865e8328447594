"""Joiners that return pairs in result order: by left row, then by right row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from penstock.algorithms.joins.joiner import Joiner, Pairs
from penstock.operators.joins.completion import unmatched, with_alone
from penstock.operators.joins.partitions import Kernels, lay
from penstock.operators.joins.results import NULL_ROW, joined_pairs
from penstock.runtime.join_metrics import ChosenAlgorithm


class Ordered(Protocol):
    """A joiner of one window at a time."""

    @property
    def chosen(self) -> ChosenAlgorithm:
        """The algorithm that joined the last window, and the reason."""

    def ordered(self, left: np.ndarray, right: np.ndarray, threads: int, *, outer: bool = False) -> Pairs:
        """Return the pairs of equal codes; with `outer`, also unmatched left rows, paired with NULL_ROW."""

    def parts(
        self, left: np.ndarray, right: np.ndarray, threads: int, *, outer: bool = False, most: int | None
    ) -> Iterator[Pairs]:
        """Yield the same pairs, about `most` at a time where the algorithm supports it."""

    def met(self, left: np.ndarray, right: np.ndarray, threads: int) -> np.ndarray:
        """Return a mask of the left rows that have a match."""


@dataclass(frozen=True)
class PutInOrder:
    """Any joiner, with its pairs ordered by a counting sort."""

    joiner: Joiner
    kernels: Kernels

    @property
    def chosen(self) -> ChosenAlgorithm:
        return ChosenAlgorithm(self.joiner.name)

    def ordered(self, left: np.ndarray, right: np.ndarray, threads: int, *, outer: bool = False) -> Pairs:
        """Return the pairs of equal codes; with `outer`, also unmatched left rows, paired with NULL_ROW."""
        rows = len(left), len(right)
        null_row = np.zeros(0, np.int64), np.zeros(0, np.int64)
        pairs = in_order(*self._joined(left, right, threads), rows, self.kernels) if all(rows) else null_row
        return with_alone_in_order(pairs, rows[0], self.kernels) if outer else pairs

    def parts(
        self, left: np.ndarray, right: np.ndarray, threads: int, *, outer: bool = False, most: int | None
    ) -> Iterator[Pairs]:
        """Yield all pairs at once: the last pair found may be the first in order."""
        yield self.ordered(left, right, threads, outer=outer)

    def met(self, left: np.ndarray, right: np.ndarray, threads: int) -> np.ndarray:
        """Return a mask of the left rows that have a match."""
        found = np.zeros(len(left), np.bool_)
        if len(left) and len(right):
            found[self._joined(left, right, threads)[0]] = True
        return found

    def _joined(self, left: np.ndarray, right: np.ndarray, threads: int) -> Pairs:
        if hasattr(self.joiner, "join"):
            pairs = self.joiner.join(left, right, "pairs", threads)
            assert not isinstance(pairs, int)
            return pairs
        run = self.joiner.open(threads)
        return joined_pairs([run.push_left(left), run.push_right(right), run.close()])


def with_alone_in_order(pairs: Pairs, rows: int, kernels: Kernels) -> Pairs:
    """Add the unmatched left rows, in order."""
    free = unmatched(rows, pairs[0])
    if not len(free):
        return pairs
    own, other = with_alone(pairs, free, 0)
    order = kernels.sorter.order(own)
    return own[order], other[order]


def in_order(own: np.ndarray, other: np.ndarray, rows: tuple[int, int], kernels: Kernels) -> Pairs:
    """Order pairs by left row, then by right row, by counting sort."""
    if not len(own):
        return own, other
    if len(own) <= rows[0]:  # if each left row has at most one match, its index gives the order
        partner = np.full(rows[0], NULL_ROW)
        partner[own] = other
        having = np.flatnonzero(partner != NULL_ROW)
        if len(having) == len(own):
            return having, partner[having]
    if bool((own[1:] < own[:-1]).any()):
        own, other = _by(own, other, rows[0], kernels)
    tied = own[1:] == own[:-1]
    if bool((tied & (other[1:] < other[:-1])).any()):
        other, own = _by(other, own, rows[1], kernels)
        own, other = _by(own, other, rows[0], kernels)
    return own, other


def _by(key: np.ndarray, value: np.ndarray, keys: int, kernels: Kernels) -> Pairs:
    laid = lay(np.ascontiguousarray(key), max(keys, 2), value, kernels)
    return np.repeat(np.arange(len(laid.bounds) - 1), np.diff(laid.bounds)), laid.values[: len(key)]
