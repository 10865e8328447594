"""Joins of rows that lie near each other in time: linear in what they give.

A pair is given when its later row is new, the left one being earlier where times are equal. So every pair is found
once, however rows are cut into batches, and comes in the order of its later row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.runtime.flow import FOREVER, NEVER
from penstock.runtime.joins.joiner import Pairs
from penstock.runtime.joins.lanes import Kernels, Laid, Ranges, find, lay, number_keys, place_pairs
from penstock.runtime.joins.results import (
    NOBODY,
    Emitted,
    Residual,
    Results,
    RowByRow,
    Shape,
    pairs_of,
    satisfying,
)
from penstock.runtime.lanes.rows import Rows

_PAIR, _LEFT, _RIGHT = 1, 2, 3  # in this order at one time


@dataclass(frozen=True)
class _Lanes:
    """Rows of both sides in the same lanes; those from `fresh` on are new."""

    left: Rows
    right: Rows
    laid: tuple[Laid, Laid]
    numbers: tuple[np.ndarray, np.ndarray]
    lanes: int

    @property
    def rows(self) -> tuple[Rows, Rows]:
        return self.left, self.right


@dataclass(frozen=True)
class IntervalMatcher(RowByRow):
    """Right rows from `lo` to `hi` after a left row, both included."""

    lo: int
    hi: int
    how: str
    keys: tuple[tuple[str, ...], tuple[str, ...]]
    residual: Residual | None
    shape: Shape
    kernels: Kernels

    def emit(self, left: Rows, right: Rows, before: int, watermark: int) -> Emitted:
        results = (
            self._results(self._lanes(left, right), before, watermark) if len(left) or len(right) else None
        )
        made = [] if results is None else self.shape.batches(results, left, right, self.kernels.threads)
        return made, *self._kept(left, right, watermark)

    def _kept(self, left: Rows, right: Rows, watermark: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows that one yet to come can meet, and those that a row still waiting for a partner may have met."""
        mine, its = max(self.hi, 0), max(-self.lo, 0)
        left_reach = self.hi + (its if self.how in ("right", "full") else 0)
        right_reach = -self.lo + (mine if self.how in ("left", "full", "semi", "anti") else 0)
        left_reach = max(left_reach, mine) if self.how != "inner" else left_reach
        right_reach = max(right_reach, its) if self.how != "inner" else right_reach
        return left.times >= _earlier(watermark, left_reach), right.times >= _earlier(watermark, right_reach)

    def _lanes(self, left: Rows, right: Rows) -> _Lanes:
        columns = [
            [rows.batch.column(name) for name in names]
            for rows, names in zip((left, right), self.keys, strict=True)
        ]
        numbers = number_keys(columns[0], columns[1], (len(left), len(right)), self.kernels)
        laid = (
            lay(numbers.left, numbers.lanes, left.times, self.kernels),
            lay(numbers.right, numbers.lanes, right.times, self.kernels),
        )
        return _Lanes(left, right, laid, (numbers.left, numbers.right), numbers.lanes)

    def _results(self, lanes: _Lanes, before: int, watermark: int) -> Results:
        if self.how in ("semi", "anti"):
            due = self._due(lanes.left, max(self.hi, 0), before, watermark)
            matched = self._matched(lanes, 0, due)
            rows = due[matched == (self.how == "semi")]
            return Results(rows, np.full(len(rows), NOBODY))
        pairs = self._new_pairs(lanes)
        if self.how == "inner":
            return Results(*pairs)
        return self._with_strays(lanes, pairs, before, watermark)

    # -- pairs ---------------------------------------------------------------------------------------

    def _new_pairs(self, lanes: _Lanes) -> Pairs:
        """The pairs whose later row is new, in the order of that row, then of the other."""
        met = [
            self._met(lanes, 0, self.lo, min(self.hi, -1)),
            self._met(lanes, 1, -self.hi, min(-self.lo, 0)),
        ]
        counts = [each.counts for each in met]
        order = np.argsort(np.concatenate([lanes.left.times, lanes.right.times]), kind="stable")
        both = np.concatenate(counts)
        starts = np.empty(len(both), np.int64)
        ends = np.cumsum(both[order])
        starts[order] = ends - both[order]
        total = int(ends[-1]) if len(ends) else 0
        own, other = np.empty(total, np.int64), np.empty(total, np.int64)
        rows = len(lanes.left)
        place_pairs(met[0], starts[:rows], (own, other), (0, rows), self.kernels)
        place_pairs(met[1], starts[rows:], (other, own), (0, len(lanes.right)), self.kernels)
        return satisfying((own, other), self.residual, lanes.left, lanes.right)

    def _met(self, lanes: _Lanes, side: int, lo: int, hi: int) -> Ranges:
        """What each new row of a side meets among the earlier rows of the other; old rows meet nobody."""
        mine, its = lanes.laid[side], lanes.laid[1 - side]
        rows = lanes.rows[side]
        if lo > hi:
            nothing = np.zeros(len(rows), np.int64)
            return Ranges(nothing, nothing, its)
        found = find(mine, its, (lo, hi), self.kernels)
        if not rows.fresh.all():
            found.last[~rows.fresh] = found.first[~rows.fresh]
        return found

    # -- rows without a partner ------------------------------------------------------------------------

    @staticmethod
    def _due(rows: Rows, wait: int, before: int, watermark: int) -> np.ndarray:
        """The rows for which it is known since the last time whom they meet."""
        since, until = _earlier(before, wait), _earlier(watermark, wait)
        low, high = np.searchsorted(rows.times, [since, until]).tolist()
        return np.arange(low, len(rows) if watermark == FOREVER else high)

    def _matched(self, lanes: _Lanes, side: int, due: np.ndarray) -> np.ndarray:
        """Which of some rows of a side have a partner at all."""
        rows, others = lanes.rows[side], lanes.rows[1 - side]
        some = rows.chosen(due)
        laid = lay(lanes.numbers[side][due], lanes.lanes, some.times, self.kernels)
        limits = (self.lo, self.hi) if side == 0 else (-self.hi, -self.lo)
        found = find(laid, lanes.laid[1 - side], limits, self.kernels)
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

    def _with_strays(self, lanes: _Lanes, pairs: Pairs, before: int, watermark: int) -> Results:
        """Put rows without a partner where it is known that none will come."""
        times = np.maximum(lanes.left.times[pairs[0]], lanes.right.times[pairs[1]])
        nothing = np.zeros(0, np.int64)
        strays = [nothing, nothing]
        waits = max(self.hi, 0), max(-self.lo, 0)
        for side, wanted in ((0, ("left", "full")), (1, ("right", "full"))):
            if self.how in wanted:
                due = self._due(lanes.rows[side], waits[side], before, watermark)
                strays[side] = due[~self._matched(lanes, side, due)]
        known = [lanes.rows[side].times[strays[side]] + waits[side] for side in (0, 1)]
        left = np.concatenate([pairs[0], strays[0], np.full(len(strays[1]), NOBODY)])
        right = np.concatenate([pairs[1], np.full(len(strays[0]), NOBODY), strays[1]])
        kind = np.repeat([_PAIR, _LEFT, _RIGHT], [len(times), len(strays[0]), len(strays[1])])
        order = self.kernels.sorter.order(np.concatenate([times, *known]), kind)
        return Results(left[order], right[order])


def _earlier(time: int, by: int) -> int:
    """A time so much earlier, where time has ends."""
    return time if time in (NEVER, FOREVER) else max(time - by, NEVER)
