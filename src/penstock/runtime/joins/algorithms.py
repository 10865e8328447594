"""Pairs of large windows by a join algorithm: key codes of one window at a time, then the order that is promised."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Protocol

import numpy as np
import pyarrow as pa

from penstock.runtime.buffers import values_view
from penstock.runtime.joins.joiner import EagerJoiner, LazyJoiner, Pairs
from penstock.runtime.joins.lanes import Kernels, Numbers, lay
from penstock.runtime.joins.matching import Batch, LanePairing, Pairing, numbers_of
from penstock.runtime.joins.results import MOST_PAIRS, NOBODY, Residual, joined_pairs, satisfying
from penstock.runtime.joins.windows import Placed
from penstock.runtime.lanes.rows import Rows

FEW_ROWS = 1 << 12  # windows with fewer rows are joined all at once, in lanes
MANY_PAIRS = 16  # of equal keys for each row, before a condition is asked of them


class Ordered(LazyJoiner, Protocol):
    """A joiner whose pairs come in order, as places in 32 bits."""

    def ordered(self, left: np.ndarray, right: np.ndarray, threads: int, *, outer: bool = False) -> Pairs:
        """The pairs of equal codes; with `outer`, NOBODY beside left rows that meet nobody."""

    def parts(
        self, left: np.ndarray, right: np.ndarray, threads: int, *, outer: bool = False, most: int | None
    ) -> Iterator[Pairs]:
        """The same, about so many at a time."""

    def met(self, left: np.ndarray, right: np.ndarray, threads: int) -> np.ndarray:
        """Which left rows meet anybody."""


@dataclass(frozen=True)
class AlgorithmPairing:
    """Window by window, by a joiner; in lanes where windows are small (unless `always`) or rows of one lie apart.

    `ordered`, where there is one, is what large windows whose rows lie side by side are joined by (`runs.py`).
    """

    joiner: LazyJoiner | EagerJoiner
    ordered: Ordered | None
    always: bool
    keys: tuple[tuple[str, ...], tuple[str, ...]]
    residual: Residual | None
    lanes: LanePairing
    kernels: Kernels
    band: Pairing | None = None

    @property
    def name(self) -> str:
        """What large windows are joined by."""
        return self.joiner.name if self.ordered is None else "npj"

    def parts(self, batch: Batch) -> Iterator[Pairs]:
        windows = slices(batch.placed)
        if windows is None or not (self.always or self._are_large(batch, len(windows))):
            yield from self.lanes.parts(batch)
            return
        left, right = self._codes(batch.left, batch.right, batch.numbers)
        found = [self._window(left, right, *window) for window in windows]
        yield satisfying(joined_pairs(found), self.residual, batch.left, batch.right)

    @staticmethod
    def _are_large(batch: Batch, windows: int) -> bool:
        return len(batch.left) + len(batch.right) >= FEW_ROWS * max(windows, 1)

    def codes(self, left: Rows, right: Rows) -> Pairs:
        """A code for each key: the value itself where that is a whole number, else its number among all."""
        return self._codes(left, right, lambda: numbers_of(left, right, self.keys, self.kernels))

    def _codes(self, left: Rows, right: Rows, numbers: Callable[[], Numbers]) -> Pairs:
        sides = zip((left, right), self.keys, strict=True)
        columns = [[rows.batch.column(name) for name in names] for rows, names in sides]
        if all(_are_whole(each) for each in columns):
            one, other = (values_view(each[0]).astype(np.int64, copy=False) for each in columns)
            return one, other
        found = numbers()
        return found.left, found.right

    def pairs(self, left: Rows, right: Rows, codes: Pairs) -> Pairs:
        """The pairs of one window that satisfy the condition, in order."""
        if self.band is not None and self._are_many(codes):
            nothing = np.zeros(0, np.int64)
            zeros = [np.zeros(len(rows), np.int64) for rows in (left, right)]
            placed = [Placed(each, each, nothing) for each in zeros]
            numbers = partial(numbers_of, left, right, self.keys, self.kernels)
            return joined_pairs(list(self.band.parts(Batch(left, right, (placed[0], placed[1]), numbers))))
        if self.ordered is not None and len(left) and len(right):
            threads = self.kernels.shares(len(left) + len(right))
            found = self.ordered.ordered(*codes, threads)
        else:
            found = self._window(*codes, (0, len(left)), (0, len(right)))
        return satisfying(found, self.residual, left, right)

    def parts_of_window(self, left: Rows, right: Rows, codes: Pairs, how: str) -> Iterator[Pairs] | None:
        """The pairs of one window a part at a time, where they need not be looked at together; else None."""
        whole = how != "inner" and (how != "left" or self.residual is not None)
        if whole or self.ordered is None or not (len(left) and len(right)):
            return None
        if self.band is not None and self._are_many(codes):
            return None
        threads = self.kernels.shares(len(left) + len(right))
        several = self.ordered.parts(*codes, threads, outer=how == "left", most=MOST_PAIRS)
        return (satisfying(pairs, self.residual, left, right) for pairs in several)

    def _are_many(self, codes: Pairs) -> bool:
        """Whether keys alone make so many pairs that sorting by what the condition bounds is cheaper."""
        assert self.ordered is not None
        rows = len(codes[0]) + len(codes[1])
        count = self.ordered.join(*codes, "count", self.kernels.shares(rows))
        assert isinstance(count, int)
        return count > MANY_PAIRS * rows

    def _window(
        self, left: np.ndarray, right: np.ndarray, mine: tuple[int, int], its: tuple[int, int]
    ) -> Pairs:
        """The pairs of one window, left rows in order, each with its right rows in order."""
        one, other = left[slice(*mine)], right[slice(*its)]
        if not len(one) or not len(other):
            return one[:0], other[:0]
        own, partner = self._joined(np.ascontiguousarray(one), np.ascontiguousarray(other))
        own, partner = in_order(own, partner, (len(one), len(other)), self.kernels)
        return own + mine[0], partner + its[0]

    def _joined(self, left: np.ndarray, right: np.ndarray) -> Pairs:
        threads = self.kernels.shares(len(left) + len(right))
        if hasattr(self.joiner, "join"):
            pairs = self.joiner.join(left, right, "pairs", threads)
            assert not isinstance(pairs, int)
            return pairs
        run = self.joiner.open(threads)
        return joined_pairs([run.push_left(left), run.push_right(right), run.close()])


def _are_whole(columns: Sequence[pa.Array]) -> bool:
    return len(columns) == 1 and is_whole(columns[0].type) and not columns[0].null_count


def is_whole(dtype: pa.DataType) -> bool:
    """Whether values of a type are whole numbers inside."""
    return bool(pa.types.is_integer(dtype) or pa.types.is_temporal(dtype))


def slices(placed: tuple[Placed, Placed]) -> list[tuple[tuple[int, int], tuple[int, int]]] | None:
    """The rows of each window on both sides; None where a window's rows do not lie side by side."""
    runs = [_runs(each.end) for each in placed]
    if runs[0] is None or runs[1] is None:
        return None
    return [(rows, runs[1][end]) for end, rows in runs[0].items() if end in runs[1]]


def _runs(ends: np.ndarray) -> dict[int, tuple[int, int]] | None:
    """The rows of each window by its end, where rows lie in the order of their ends."""
    steps = np.diff(ends)
    if bool((steps < 0).any()):
        return None
    cuts = np.concatenate([[0], np.flatnonzero(steps) + 1, [len(ends)]]).tolist() if len(ends) else []
    return {int(ends[low]): (low, high) for low, high in pairwise(cuts)}


def in_order(own: np.ndarray, other: np.ndarray, rows: tuple[int, int], kernels: Kernels) -> Pairs:
    """Put pairs in the order of their left rows, then of their right ones, without comparing any."""
    if not len(own):
        return own, other
    if len(own) <= rows[0]:  # perhaps every left row has one partner at most: then its place tells the order
        partner = np.full(rows[0], NOBODY)
        partner[own] = other
        having = np.flatnonzero(partner != NOBODY)
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
