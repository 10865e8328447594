"""Pairs of a window in result order, by a named join algorithm or by the one chosen for each window."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Protocol

import numpy as np
import pyarrow as pa

from penstock.algorithms.joins.adapt.tree import IN_ORDER, JoinChooser
from penstock.algorithms.joins.adapt.window_statistics import WindowStatistics
from penstock.algorithms.joins.joiner import Joiner, LazyJoiner, Pairs
from penstock.algorithms.sorted_partitions.rows import Rows
from penstock.operators.joins.partitions import Numbers, PartitionKernels, lay
from penstock.operators.joins.results import (
    MOST_PAIRS,
    NULL_ROW,
    Residual,
    gives_left_rows,
    joined_pairs,
    preserves,
    satisfying,
    unmatched,
    with_alone,
)
from penstock.operators.joins.window_pairs import Batch, Pairing, PartitionPairing, numbers_of
from penstock.operators.joins.windows import Placed
from penstock.runtime.buffers import values_view
from penstock.runtime.metrics import ChosenAlgorithm


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
    kernels: PartitionKernels

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


def with_alone_in_order(pairs: Pairs, rows: int, kernels: PartitionKernels) -> Pairs:
    """Add the unmatched left rows, in order."""
    free = unmatched(rows, pairs[0])
    if not len(free):
        return pairs
    own, other = with_alone(pairs, free, 0)
    order = kernels.sorter.order(own)
    return own[order], other[order]


def in_order(own: np.ndarray, other: np.ndarray, rows: tuple[int, int], kernels: PartitionKernels) -> Pairs:
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


def _by(key: np.ndarray, value: np.ndarray, keys: int, kernels: PartitionKernels) -> Pairs:
    laid = lay(np.ascontiguousarray(key), max(keys, 2), value, kernels)
    return np.repeat(np.arange(len(laid.bounds) - 1), np.diff(laid.bounds)), laid.values[: len(key)]


ROWS_JOINED_BY_PARTITION = 1 << 12  # windows with fewer rows are joined in one call, by partition
MANY_PAIRS = 16  # pairs with equal keys per row, above which the condition's bounds are searched


@dataclass(frozen=True)
class Sorting:
    """A pairing that sorts by the column that the condition bounds, and a joiner that counts pairs of equal keys."""

    pairing: Pairing
    counter: LazyJoiner


@dataclass
class AlgorithmPairing:
    """Join window by window with a joiner; by partition if windows are small (unless `always`) or not contiguous."""

    ordered: Ordered
    always: bool
    keys: tuple[tuple[str, ...], tuple[str, ...]]
    residual: Residual | None
    partitions: PartitionPairing
    kernels: PartitionKernels
    band: Sorting | None = None
    instead: Pairing | None = field(default=None, init=False)  # replaced the joiner in the last window

    def chosen(self) -> ChosenAlgorithm:
        """Return the algorithm that joined the last window."""
        return self.ordered.chosen if self.instead is None else self.instead.chosen()

    def parts(self, batch: Batch) -> Iterator[Pairs]:
        windows, self.instead = slices(batch.placed), None
        if windows is None or not (self.always or self._are_large(batch, len(windows))):
            self.instead = self.partitions
            yield from self.partitions.parts(batch)
            return
        left, right = self._codes(batch.left, batch.right, batch.numbers)
        found = [self._window(left, right, *window) for window in windows]
        yield satisfying(joined_pairs(found), self.residual, batch.left, batch.right)

    @staticmethod
    def _are_large(batch: Batch, windows: int) -> bool:
        return len(batch.left) + len(batch.right) >= ROWS_JOINED_BY_PARTITION * max(windows, 1)

    def codes(self, left: Rows, right: Rows) -> Pairs:
        """Return a code for each key: an integer value itself, else the number of the key among all keys."""
        return self._codes(left, right, lambda: numbers_of(left, right, self.keys, self.kernels))

    def _codes(self, left: Rows, right: Rows, numbers: Callable[[], Numbers]) -> Pairs:
        sides = zip((left, right), self.keys, strict=True)
        columns = [[rows.batch.column(name) for name in names] for rows, names in sides]
        if all(_are_whole(column) for column in columns):
            one, other = (values_view(column[0]).astype(np.int64, copy=False) for column in columns)
            return one, other
        found = numbers()
        return found.left, found.right

    def pairs(self, left: Rows, right: Rows, codes: Pairs) -> Pairs:
        """Return the pairs of one window that satisfy the condition, in order."""
        if self.band is not None and self._are_many(codes):
            return joined_pairs(list(self._sorted(self.band.pairing, left, right)))
        found = self._window(*codes, (0, len(left)), (0, len(right)))
        return satisfying(found, self.residual, left, right)

    def _sorted(self, pairing: Pairing, left: Rows, right: Rows) -> Iterator[Pairs]:
        nothing = np.zeros(0, np.int64)
        zeros = [np.zeros(len(rows), np.int64) for rows in (left, right)]
        placed = [Placed(zero, zero, nothing) for zero in zeros]
        numbers = partial(numbers_of, left, right, self.keys, self.kernels)
        return pairing.parts(Batch(left, right, (placed[0], placed[1]), numbers))

    def parts_of_window(self, left: Rows, right: Rows, codes: Pairs, how: str) -> Iterator[Pairs] | None:
        """Return the pairs of one window in parts, if the parts are independent; else None.

        Unmatched left rows are in order among the pairs, if `how` preserves them.
        """
        if gives_left_rows(how) or not (len(left) and len(right)):
            return None
        if self.band is not None and self._are_many(codes):
            inner = not preserves(how, 0)  # other joins need the left rows that are in no part
            return self._sorted(self.band.pairing, left, right) if inner else None
        outer, threads = preserves(how, 0), self.kernels.shares(len(left) + len(right))
        several = self.ordered.parts(*codes, threads, outer=outer, most=MOST_PAIRS)
        if self.residual is None:
            return several
        return (self._satisfying(pairs, left, right, outer) for pairs in several)

    def _satisfying(self, pairs: Pairs, left: Rows, right: Rows, outer: bool) -> Pairs:
        """Return the pairs that satisfy the condition; with `outer`, also left rows without such a pair, with
        NULL_ROW.
        """
        if not outer:
            return satisfying(pairs, self.residual, left, right)
        own, other = pairs
        some = other != NULL_ROW
        kept = satisfying((own[some], other[some]), self.residual, left, right)
        first = int(own[0])
        alone = with_alone_in_order((kept[0] - first, kept[1]), int(own[-1]) - first + 1, self.kernels)
        return alone[0] + first, alone[1]

    def _are_many(self, codes: Pairs) -> bool:
        """Whether equal keys make so many pairs that sorting by the bounded column is cheaper."""
        if self.band is None:
            return False
        rows = len(codes[0]) + len(codes[1])
        count = self.band.counter.join(*codes, "count", self.kernels.shares(rows))
        assert isinstance(count, int)
        self.instead = self.band.pairing if count > MANY_PAIRS * rows else None
        return self.instead is not None

    def _window(
        self, left: np.ndarray, right: np.ndarray, mine: tuple[int, int], its: tuple[int, int]
    ) -> Pairs:
        """Return the pairs of one window, by left row, then by right row."""
        one, other = left[slice(*mine)], right[slice(*its)]
        if not len(one) or not len(other):
            return one[:0], other[:0]
        threads = self.kernels.shares(len(one) + len(other))
        own, partner = self.ordered.ordered(np.ascontiguousarray(one), np.ascontiguousarray(other), threads)
        return _shifted(own, mine[0]), _shifted(partner, its[0])


def _shifted(places: np.ndarray, by: int) -> np.ndarray:
    """Add an offset to row indices; the sum may need 64 bits."""
    return places.astype(np.int64) + by if by else places


def _are_whole(columns: Sequence[pa.Array]) -> bool:
    return len(columns) == 1 and is_whole(columns[0].type) and not columns[0].null_count


def is_whole(dtype: pa.DataType) -> bool:
    """Whether values of a type are stored as integers."""
    return bool(pa.types.is_integer(dtype) or pa.types.is_temporal(dtype))


@dataclass(frozen=True, slots=True)
class WindowRuns:
    """The rows of each window on both sides, where rows are in the order of window ends: `begins[side]` and `stops[side]`."""

    begins: tuple[np.ndarray, np.ndarray]
    stops: tuple[np.ndarray, np.ndarray]

    def __len__(self) -> int:
        return len(self.begins[0])

    def __iter__(self) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
        left, right = (
            list(zip(begins.tolist(), stops.tolist(), strict=True))
            for begins, stops in zip(self.begins, self.stops, strict=True)
        )
        return zip(left, right, strict=True)


def slices(placed: tuple[Placed, Placed]) -> WindowRuns | None:
    """Return the windows that hold rows of both sides; None if a window's rows are not contiguous.

    Nothing is done window by window: there may be as many as rows.
    """
    left, right = (_cuts(side.end) for side in placed)
    if left is None or right is None:
        return None
    ends, others = placed[0].end[left[:-1]], placed[1].end[right[:-1]]
    place = np.searchsorted(others, ends)
    met = np.flatnonzero(others[np.minimum(place, len(others) - 1)] == ends) if len(others) else place[:0]
    there = place[met]
    return WindowRuns((left[met], right[there]), (left[met + 1], right[there + 1]))


def _cuts(ends: np.ndarray) -> np.ndarray | None:
    """Return the first row of each window, and the number of rows; None if rows are not in the order of window ends."""
    if bool((ends[1:] < ends[:-1]).any()):
        return None
    changes = np.flatnonzero(ends[1:] != ends[:-1]) + 1
    return np.concatenate([np.zeros(min(len(ends), 1), np.int64), changes, [len(ends)]])


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
