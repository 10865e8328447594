"""Interval joins: a left row matches right rows within a time range around it. Linear in rows and results.

A pair is emitted when its later row is new; at equal times the left row counts as the earlier one. So every
pair is found once, however rows are cut into batches, and pairs are in the order of their later rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from penstock.algorithms.joins.joiner import Pairs
from penstock.algorithms.sorted_partitions.rows import Rows
from penstock.operators.joins.partitions import (
    Laid,
    PartitionKernels,
    Ranges,
    find,
    lay,
    number_keys,
    place_pairs,
)
from penstock.operators.joins.results import (
    MOST_PAIRS,
    Emitted,
    JoinShape,
    Residual,
    Results,
    RowByRow,
    Waits,
    alone,
    gives_left_rows,
    left_rows,
    pairs_of,
    preserves,
    satisfying,
    with_alone,
)
from penstock.runtime.stage import END_OF_TIME, START_OF_TIME, moved

_PAIR, _LEFT, _RIGHT = 1, 2, 3  # sort order among results at one time
_NOTHING = np.zeros(0, np.int64), np.zeros(0, np.int64)


@dataclass(frozen=True)
class _Partitions:
    """Rows of both sides in the same partitions; `Rows.fresh` marks the new ones."""

    left: Rows
    right: Rows
    laid: tuple[Laid, Laid]
    numbers: tuple[np.ndarray, np.ndarray]
    partitions: int

    @property
    def rows(self) -> tuple[Rows, Rows]:
        return self.left, self.right


@dataclass(frozen=True)
class IntervalMatcher(RowByRow):
    """Match right rows from `lo` to `hi` after a left row, both included."""

    lo: int
    hi: int
    how: str
    keys: tuple[tuple[str, ...], tuple[str, ...]]
    residual: Residual | None
    shape: JoinShape
    kernels: PartitionKernels

    @property
    def waits(self) -> Waits:
        """A pair has the time of its later row, which is new; a pending row may be emitted later as unmatched."""
        mine, its = max(self.hi, 0), max(-self.lo, 0)
        if gives_left_rows(self.how):
            return mine, None
        return mine if preserves(self.how, 0) else 0, its if preserves(self.how, 1) else 0

    def emit(self, left: Rows, right: Rows, before: int, watermark: int) -> Emitted:
        made = self._made(left, right, before, watermark) if len(left) or len(right) else []
        return made, *self._kept(left, right, watermark)

    def _made(self, left: Rows, right: Rows, before: int, watermark: int) -> Iterator[pa.RecordBatch]:
        for results in self._results(self._partitions(left, right), before, watermark):
            yield from self.shape.batches(results, left, right, self.kernels.threads)

    def _kept(self, left: Rows, right: Rows, watermark: int) -> tuple[np.ndarray, np.ndarray]:
        """Retain rows that a future row may match, and rows that a still undecided row may have matched."""
        mine, its = max(self.hi, 0), max(-self.lo, 0)
        decides_left = preserves(self.how, 0) or gives_left_rows(self.how)
        left_reach = self.hi + (its if preserves(self.how, 1) else 0)
        right_reach = -self.lo + (mine if decides_left else 0)
        left_reach = max(left_reach, mine) if self.how != "inner" else left_reach
        right_reach = max(right_reach, its) if self.how != "inner" else right_reach
        return left.times >= _earlier(watermark, left_reach), right.times >= _earlier(watermark, right_reach)

    def _partitions(self, left: Rows, right: Rows) -> _Partitions:
        columns = [
            [rows.batch.column(name) for name in names]
            for rows, names in zip((left, right), self.keys, strict=True)
        ]
        numbers = number_keys(columns[0], columns[1], (len(left), len(right)), self.kernels)
        laid = (
            lay(numbers.left, numbers.partitions, left.times, self.kernels),
            lay(numbers.right, numbers.partitions, right.times, self.kernels),
        )
        return _Partitions(left, right, laid, (numbers.left, numbers.right), numbers.partitions)

    def _results(self, partitions: _Partitions, before: int, watermark: int) -> Iterator[Results]:
        if gives_left_rows(self.how):
            due = self._due(partitions.left, max(self.hi, 0), before, watermark)
            matched = self._matched(partitions, 0, due)
            yield Results(*alone(left_rows(self.how, matched, due), 0))
        elif self.how == "inner":
            yield from (Results(*pairs) for pairs, _ in self._new_pairs(partitions))
        else:
            yield from self._with_unmatched(partitions, before, watermark)

    # -- pairs ---------------------------------------------------------------------------------------

    def _new_pairs(self, partitions: _Partitions) -> Iterator[tuple[Pairs, int]]:
        """Yield the pairs whose later row is new, in the order of that row, then of the other.

        Each part comes with an exclusive upper bound on the times of the later rows of its pairs.
        """
        met = [
            self._met(partitions, 0, self.lo, min(self.hi, -1)),
            self._met(partitions, 1, -self.hi, min(-self.lo, 0)),
        ]
        both = np.concatenate([ranges.counts for ranges in met])
        times = np.concatenate([partitions.left.times, partitions.right.times])
        order = np.argsort(times, kind="stable")
        ends, times = np.cumsum(both[order]), times[order]
        starts, rows = np.empty(len(both), np.int64), len(partitions.left)
        starts[order] = ends - both[order]
        for begin, end in pairwise([0, *_cuts(times, ends), len(order)]):
            mine, its = (_between(row.times, times[begin], times[end - 1]) for row in partitions.rows)
            before = int(ends[begin] - both[order[begin]])
            own, other = (np.empty(int(ends[end - 1]) - before, np.int64) for _ in range(2))
            place_pairs(met[0], starts[:rows] - before, (own, other), mine, self.kernels)
            place_pairs(met[1], starts[rows:] - before, (other, own), its, self.kernels)
            pairs = satisfying((own, other), self.residual, partitions.left, partitions.right)
            yield pairs, int(times[end]) if end < len(times) else END_OF_TIME

    def _met(self, partitions: _Partitions, side: int, lo: int, hi: int) -> Ranges:
        """Find the earlier rows of the other side that each new row of a side matches; old rows match none."""
        mine, its = partitions.laid[side], partitions.laid[1 - side]
        rows = partitions.rows[side]
        if lo > hi:
            nothing = np.zeros(len(rows), np.int64)
            return Ranges(nothing, nothing, its)
        found = find(mine, its, (lo, hi), self.kernels)
        if not rows.fresh.all():
            found.last[~rows.fresh] = found.first[~rows.fresh]
        return found

    # -- unmatched rows --------------------------------------------------------------------------------

    @staticmethod
    def _due(rows: Rows, wait: int, before: int, watermark: int) -> np.ndarray:
        """Return the rows whose matches became final since the watermark `before`."""
        since, until = _earlier(before, wait), _earlier(watermark, wait)
        low, high = np.searchsorted(rows.times, [since, until]).tolist()
        return np.arange(low, len(rows) if watermark == END_OF_TIME else high)

    def _matched(self, partitions: _Partitions, side: int, due: np.ndarray) -> np.ndarray:
        """Return a mask of the given rows of a side that have any match."""
        rows, others = partitions.rows[side], partitions.rows[1 - side]
        some = rows.chosen(due)
        laid = lay(partitions.numbers[side][due], partitions.partitions, some.times, self.kernels)
        limits = (self.lo, self.hi) if side == 0 else (-self.hi, -self.lo)
        found = find(laid, partitions.laid[1 - side], limits, self.kernels)
        if self.residual is None:
            matched: np.ndarray = found.counts > 0
            return matched
        matched = np.zeros(len(due), np.bool_)
        if side == 0:
            matched[pairs_of(found, self.residual, some, others, self.kernels)[0]] = True
        else:
            plain = pairs_of(found, None, some, others, self.kernels)
            matched[satisfying(plain[::-1], self.residual, others, some)[1]] = True
        return matched

    def _with_unmatched(self, partitions: _Partitions, before: int, watermark: int) -> Iterator[Results]:
        """Yield pairs and unmatched rows; an unmatched row is placed at the time at which no match can follow."""
        unmatched_rows = [
            self._unmatched_rows(partitions, side, before, watermark)
            if preserves(self.how, side)
            else _NOTHING
            for side in (0, 1)
        ]
        done = [0, 0]
        for pairs, upto in self._new_pairs(partitions):
            some = []
            for side, (rows, known) in enumerate(unmatched_rows):
                end = len(rows) if upto == END_OF_TIME else int(np.searchsorted(known, upto))
                some.append((rows[done[side] : end], known[done[side] : end]))
                done[side] = end
            yield self._among(partitions, pairs, some)

    def _unmatched_rows(
        self, partitions: _Partitions, side: int, before: int, watermark: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the unmatched rows of a side, and the times at which they became final."""
        wait = max(self.hi, 0) if side == 0 else max(-self.lo, 0)
        due = self._due(partitions.rows[side], wait, before, watermark)
        rows = due[~self._matched(partitions, side, due)]
        return rows, moved(partitions.rows[side].times[rows], wait)

    def _among(
        self, partitions: _Partitions, pairs: Pairs, unmatched_rows: list[tuple[np.ndarray, np.ndarray]]
    ) -> Results:
        """Merge pairs and unmatched rows in order of time."""
        times = np.maximum(partitions.left.times[pairs[0]], partitions.right.times[pairs[1]])
        (free, left_known), (others, right_known) = unmatched_rows
        left, right = with_alone(with_alone(pairs, free, 0), others, 1)
        kind = np.repeat([_PAIR, _LEFT, _RIGHT], [len(times), len(free), len(others)])
        order = self.kernels.sorter.order(np.concatenate([times, left_known, right_known]), kind)
        return Results(left[order], right[order])


def _between(times: np.ndarray, first: int, last: int) -> tuple[int, int]:
    """Return the range of rows from one time to another, both included."""
    return int(np.searchsorted(times, first)), int(np.searchsorted(times, last, side="right"))


def _cuts(times: np.ndarray, ends: np.ndarray) -> list[int]:
    """Return cuts through rows in order of time, about MOST_PAIRS pairs apart; rows of one time stay in one part."""
    if ends[-1] <= MOST_PAIRS:
        return []
    some = np.searchsorted(ends, np.arange(MOST_PAIRS, int(ends[-1]), MOST_PAIRS))
    cuts = np.unique(np.searchsorted(times, times[some]))
    found: list[int] = cuts[cuts > 0].tolist()
    return found


def _earlier(time: int, by: int) -> int:
    """Subtract from a time; START_OF_TIME and END_OF_TIME stay fixed."""
    return time if time in (START_OF_TIME, END_OF_TIME) else max(time - by, START_OF_TIME)
