"""As-of joins: both sides are merged in order of time, and the last row of each key is retained."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.algorithms.sorted_partitions.rows import Rows
from penstock.operators.joins.partitions import Kernels, Numbers, number_keys
from penstock.operators.joins.results import NULL_ROW, Emitted, JoinShape, RowByRow, Waits
from penstock.runtime.stage import END_OF_TIME, START_OF_TIME

EVERYTHING = -1  # the kernel's value for no limit


@dataclass(frozen=True)
class AsofMatcher(RowByRow):
    """Every left row, in order, with the nearest right row. A left row is emitted when no nearer row can arrive."""

    direction: str
    tolerance: int | None
    exact: bool
    keys: tuple[tuple[str, ...], tuple[str, ...]]
    shape: JoinShape
    kernels: Kernels

    @property
    def waits(self) -> Waits:
        """Results have the time of their left row, which is buffered for a later right row unless the join is
        backward.
        """
        if self.direction == "backward":
            return 0, None
        return END_OF_TIME if self.tolerance is None else self.tolerance, None

    def emit(self, left: Rows, right: Rows, before: int, watermark: int) -> Emitted:
        columns = [
            [rows.batch.column(name) for name in names]
            for rows, names in zip((left, right), self.keys, strict=True)
        ]
        numbers = number_keys(columns[0], columns[1], (len(left), len(right)), self.kernels)
        last = np.full(numbers.partitions, NULL_ROW)
        found, final = self._found(left, right, numbers, watermark, last)
        leaving = len(left) if final is None or final.all() else int(np.argmin(final))
        made = self.shape.rows_with(left, found[:leaving], right, self.kernels.threads)
        kept = np.zeros(len(left), np.bool_)
        kept[leaving:] = True
        oldest = int(left.times[leaving]) if leaving < len(left) else watermark
        if watermark == END_OF_TIME:
            return made, kept, np.zeros(len(right), np.bool_)
        return made, kept, self._needed(left, right, numbers, oldest, last)

    def _found(
        self, left: Rows, right: Rows, numbers: Numbers, watermark: int, last: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the nearest row of each left row, and whether it is final (None: all are); write the last right row
        of each key to `last`.
        """
        if self.direction == "backward":
            return self._nearest(left, right, numbers, last, backward=True), None
        after = self._nearest(left, right, numbers, np.full(numbers.partitions, NULL_ROW), backward=False)
        final = (
            np.ones(len(left), np.bool_) if watermark == END_OF_TIME else self._final(left, after, watermark)
        )
        if self.direction == "forward":
            return after, final
        before = self._nearest(left, right, numbers, last, backward=True)
        since = _apart(_times(right, before), left.times)
        if watermark != END_OF_TIME:
            final |= (before != NULL_ROW) & (since < _apart(left.times, np.int64(watermark)))
        nearer = (before == NULL_ROW) | (
            (after != NULL_ROW) & (_apart(left.times, _times(right, after)) <= since)
        )
        return np.where(nearer, after, before), final

    def _final(self, left: Rows, after: np.ndarray, watermark: int) -> np.ndarray:
        """A next row before the watermark is final; so is its absence once the tolerance has passed."""
        final: np.ndarray = after != NULL_ROW
        if self.tolerance is not None:
            final |= left.times < max(watermark - self.tolerance, START_OF_TIME)
        return final

    def _nearest(
        self, left: Rows, right: Rows, numbers: Numbers, known: np.ndarray, *, backward: bool
    ) -> np.ndarray:
        if not len(right) or not len(left):
            return np.full(len(left), NULL_ROW)
        found = np.empty(len(left), np.int64)
        given = {"left": left.times, "left_keys": numbers.left, "right": right.times}
        given |= {"right_keys": numbers.right, "known": known, "found": found}
        reach = EVERYTHING if self.tolerance is None else self.tolerance
        sizes = {"rows": len(left), "others": len(right), "reach": reach}
        if backward:
            self.kernels.last_before(self.exact)({**given, **sizes, "begin": 0})
        else:
            self.kernels.next_after(self.exact)({**given, **sizes})
        return found

    def _needed(self, left: Rows, right: Rows, numbers: Numbers, oldest: int, last: np.ndarray) -> np.ndarray:
        """Retain right rows from the oldest pending left row on, and the last earlier row of each key."""
        kept: np.ndarray = right.times >= oldest
        if self.direction == "forward":
            return kept
        if kept.any() or not len(left):  # else `last` covers exactly the earlier rows
            earlier = np.flatnonzero(~kept)
            last = np.full(numbers.partitions, NULL_ROW)
            last[numbers.right[earlier]] = earlier  # rows are in order, so the last write is the latest row
        last = last[last != NULL_ROW]
        if self.tolerance is not None:
            last = last[right.times[last] >= max(oldest - self.tolerance, START_OF_TIME)]
        kept[last] = True
        return kept


def _apart(before: np.ndarray, after: np.ndarray | np.int64) -> np.ndarray:
    """Return the differences of times as unsigned numbers: they may exceed 63 bits."""
    return (after - before).view(np.uint64)


def _times(rows: Rows, places: np.ndarray) -> np.ndarray:
    return rows.times[np.maximum(places, 0)] if len(rows) else np.zeros(len(places), np.int64)
