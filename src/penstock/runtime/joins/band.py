"""Pairs by a condition that bounds a right column: the right rows of a window are sorted by it, and searched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa

from penstock.errors import OverflowError
from penstock.runtime.adapt.tree import Chosen
from penstock.runtime.buffers import values_view
from penstock.runtime.joins.algorithms import slices
from penstock.runtime.joins.joiner import Pairs
from penstock.runtime.joins.lanes import Kernels, Laid, Ranges
from penstock.runtime.joins.matching import Batch, LanePairing
from penstock.runtime.joins.orderly import in_order
from penstock.runtime.joins.results import Residual, parts_of

BY_SORTING = Chosen("sorting")


@dataclass(frozen=True)
class BandPairing:
    """Window by window: a left row meets the right rows whose `column` lies between its bounds, both included.

    `bounds` gives them for a batch of left rows: the lower ones, then the upper ones. The condition is asked again
    of every pair, so bounds only have to be wide enough. In lanes, where rows of a window lie apart.
    """

    column: str
    lower: int
    bounds: Callable[[pa.RecordBatch], list[pa.Array]]
    residual: Residual
    lanes: LanePairing
    kernels: Kernels
    keyed: bool = False

    def chosen(self) -> Chosen:
        return BY_SORTING

    def parts(self, batch: Batch) -> Iterator[Pairs]:
        windows = slices(batch.placed)
        try:
            ends = None if windows is None else self._ends(batch.left.batch)
        except OverflowError:  # perhaps of a row that meets nobody: the condition itself will tell
            ends = None
        if windows is None or ends is None:
            yield from self.lanes.parts(batch)
            return
        ranges, rows = self._ranges(batch, ends, windows), (len(batch.left), len(batch.right))
        for own, other in parts_of(ranges, self.residual, batch.left, batch.right, self.kernels):
            yield in_order(own, other, rows, self.kernels)

    def _ends(self, rows: pa.RecordBatch) -> tuple[np.ndarray | None, np.ndarray | None, np.ndarray]:
        """The tightest bounds of each left row, and whether it has them all."""
        columns = [_numbers(each) for each in self.bounds(rows)]
        known = reduce(np.logical_and, (there for _, there in columns))
        lower = [each for each, _ in columns[: self.lower]]
        upper = [each for each, _ in columns[self.lower :]]
        most = reduce(np.fmax, lower) if lower else None
        return most, (reduce(np.fmin, upper) if upper else None), known

    def _ranges(
        self,
        batch: Batch,
        ends: tuple[np.ndarray | None, np.ndarray | None, np.ndarray],
        windows: list[tuple[tuple[int, int], tuple[int, int]]],
    ) -> Ranges:
        """What each left row meets: right rows lie window by window, sorted by the column."""
        if self.keyed:
            return self._keyed_ranges(batch, ends, windows)
        lower, upper, known = ends
        values, there = _numbers(batch.right.batch.column(self.column))
        first, last = np.zeros((2, len(batch.left)), np.int64)
        places, laid = [np.zeros(0, np.int64)], 0
        for mine, its in windows:
            some = its[0] + np.flatnonzero(there[slice(*its)])
            places.append(some[np.argsort(values[some], kind="stable")])
            ordered, here = values[places[-1]], slice(*mine)
            first[here] = laid + (0 if lower is None else np.searchsorted(ordered, lower[here]))
            most = len(some) if upper is None else np.searchsorted(ordered, upper[here], side="right")
            last[here] = laid + most
            laid += len(some)
        last = np.where(known, np.maximum(first, last), first)
        every = np.concatenate(places)
        return Ranges(first, last, Laid(np.array([0, laid]), every, values[every]))

    def _keyed_ranges(
        self,
        batch: Batch,
        ends: tuple[np.ndarray | None, np.ndarray | None, np.ndarray],
        windows: list[tuple[tuple[int, int], tuple[int, int]]],
    ) -> Ranges:
        """The same with keys: right rows lie window by window, key by key, sorted by the column.

        A row's place in that order is one number: that of its key, then the rank of its value among the window's.
        """
        lower, upper, known = ends
        values, there = _numbers(batch.right.batch.column(self.column))
        numbers = batch.numbers()
        first, last = np.zeros((2, len(batch.left)), np.int64)
        places, laid = [np.zeros(0, np.int64)], 0
        for mine, its in windows:
            some = its[0] + np.flatnonzero(there[slice(*its)])
            ranks = np.unique(values[some])
            width, here = len(ranks) + 1, slice(*mine)
            order = numbers.right[some] * width + np.searchsorted(ranks, values[some])
            by_order = np.argsort(order, kind="stable")
            places.append(some[by_order])
            own, ordered = numbers.left[here] * width, order[by_order]
            least = 0 if lower is None else np.searchsorted(ranks, lower[here])
            most = len(ranks) if upper is None else np.searchsorted(ranks, upper[here], side="right")
            first[here] = laid + np.searchsorted(ordered, own + least)
            last[here] = laid + np.searchsorted(ordered, own + most)
            laid += len(some)
        last = np.where(known, np.maximum(first, last), first)
        every = np.concatenate(places)
        return Ranges(first, last, Laid(np.array([0, laid]), every, values[every]))


def _numbers(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Values as wide machine numbers, and which are there; NaN is the greatest, as it is where arrays are searched."""
    wide = np.float64 if pa.types.is_floating(column.type) else np.int64
    there: np.ndarray = column.is_valid().to_numpy(zero_copy_only=False)
    return values_view(column).astype(wide), there
