"""Pairs by a condition that bounds a right column: sort a window's right rows by the column, then search."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa

from penstock.algorithms.joins.joiner import Pairs
from penstock.errors import OverflowError
from penstock.operators.joins.algorithm_pairs import WindowRuns, in_order, slices
from penstock.operators.joins.partitions import Laid, Numbers, PartitionKernels, Ranges
from penstock.operators.joins.results import Residual, parts_of
from penstock.operators.joins.window_pairs import Batch, PartitionPairing
from penstock.runtime.buffers import values_view
from penstock.runtime.metrics import ChosenAlgorithm

BY_SORTING = ChosenAlgorithm("sorting")


Side = Callable[[pa.RecordBatch], list[pa.Array]]


@dataclass(frozen=True)
class BandValues:
    """The compared values: for each bound, those of the left rows, and those of the right rows, which increase
    with the right column.

    The first `lower` bounds are lower bounds. `known` marks left rows with no null bound.
    """

    left: list[np.ndarray]
    right: list[np.ndarray]
    lower: int
    known: np.ndarray

    def between(self, rows: slice, ordered: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return, for left rows, the range of matching rows among the ordered right rows."""
        first, last = (
            np.zeros(rows.stop - rows.start, np.int64),
            np.full(rows.stop - rows.start, len(ordered)),
        )
        for place, (mine, its) in enumerate(zip(self.left, self.right, strict=True)):
            if place < self.lower:
                first = np.maximum(first, np.searchsorted(its[ordered], mine[rows]))
            else:
                last = np.minimum(last, np.searchsorted(its[ordered], mine[rows], side="right"))
        return first, last


@dataclass(frozen=True)
class BandPairing:
    """Window by window: a left row matches right rows with `column` between its bounds, both included.

    `bounds` computes the compared values of a batch of left rows and of right rows: the lower bounds, then the
    upper ones. The condition is evaluated on every pair as well, so bounds may be too wide but not too narrow.
    Windows with rows that are not contiguous are joined by partition.
    """

    column: str
    lower: int
    bounds: tuple[Side, Side]
    residual: Residual
    partitions: PartitionPairing
    kernels: PartitionKernels
    keyed: bool = False

    def chosen(self) -> ChosenAlgorithm:
        return BY_SORTING

    def parts(self, batch: Batch) -> Iterator[Pairs]:
        windows = slices(batch.placed)
        try:
            ends = None if windows is None else self._ends(batch)
        except OverflowError:  # possibly at a row without a match; evaluating the condition decides
            ends = None
        if windows is None or ends is None:
            yield from self.partitions.parts(batch)
            return
        ranges, rows = self._ranges(batch, ends, windows), (len(batch.left), len(batch.right))
        for own, other in parts_of(ranges, self.residual, batch.left, batch.right, self.kernels):
            yield in_order(own, other, rows, self.kernels)

    def _ends(self, batch: Batch) -> BandValues:
        left, right = (
            [_numbers(bound) for bound in bounds(rows.batch)]
            for bounds, rows in zip(self.bounds, (batch.left, batch.right), strict=True)
        )
        known = reduce(np.logical_and, (there for _, there in left))
        return BandValues([values for values, _ in left], [values for values, _ in right], self.lower, known)

    def _ranges(self, batch: Batch, ends: BandValues, windows: WindowRuns) -> Ranges:
        """Find the right rows that each left row matches; right rows are listed by window, in search order."""
        values, there = _numbers(batch.right.batch.column(self.column))
        search = self._by_key(batch.numbers()) if self.keyed else _by_value
        first, last = np.zeros((2, len(batch.left)), np.int64)
        places, laid = [np.zeros(0, np.int64)], 0
        for mine, its in windows:
            some, here = its[0] + np.flatnonzero(there[slice(*its)]), slice(*mine)
            ordered, first[here], last[here] = search(ends, here, some, values[some])
            first[here] += laid
            last[here] += laid
            places.append(ordered)
            laid += len(some)
        last = np.where(ends.known, np.maximum(first, last), first)
        every = np.concatenate(places)
        return Ranges(first, last, Laid(np.array([0, laid]), every, values[every]))

    @staticmethod
    def _by_key(numbers: Numbers) -> Search:
        """Search right rows by key, then by the column, with one integer per row: the key number times
        (number of ranks + 1), plus the rank of the value in the window.
        """

        def search(
            ends: BandValues, here: slice, some: np.ndarray, values: np.ndarray
        ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            ranks, one_of_each, rank = np.unique(values, return_index=True, return_inverse=True)
            width = len(ranks) + 1
            order = numbers.right[some] * width + rank
            by_order = np.argsort(order, kind="stable")
            least, most = ends.between(here, some[one_of_each])
            own, ordered = numbers.left[here] * width, order[by_order]
            return some[by_order], np.searchsorted(ordered, own + least), np.searchsorted(ordered, own + most)

        return search


Search = Callable[[BandValues, slice, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]
"""From bounds, left rows and the right ones of their window to these in order, and where what is met begins and ends."""


def _by_value(
    ends: BandValues, here: slice, some: np.ndarray, values: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Search right rows sorted by the column."""
    ordered = some[np.argsort(values, kind="stable")]
    return ordered, *ends.between(here, ordered)


def _numbers(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return values as float64 or int64, and a validity mask; NaN is the greatest value, as in `searchsorted`."""
    wide = np.float64 if pa.types.is_floating(column.type) else np.int64
    there: np.ndarray = column.is_valid().to_numpy(zero_copy_only=False)
    return values_view(column).astype(wide), there
