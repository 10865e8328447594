"""Joins in overlapping windows, one window at a time: for a named algorithm, or a condition that can be
searched.

A pair is found, and emitted, once for every window that holds both rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.algorithms.sorted_partitions.reducers import ranges
from penstock.algorithms.sorted_partitions.rows import Rows
from penstock.operators.joins.large_windows import OneWindow
from penstock.operators.joins.results import Emitted, InWindows
from penstock.operators.joins.sliding import SlidingMatcher, WindowSpans, clipped
from penstock.operators.joins.windows import WindowRows

ROWS_WORTH_A_SORT = 16  # new rows, on average: with fewer, sorting each window costs more than it saves


@dataclass(frozen=True)
class OverlapMatcher(InWindows):
    """Join windows one by one with `join`; with `plain` if windows have fewer rows than `least`, unless
    `always`.

    With `if_many`, use `join` only if finding each pair once saves nothing and the pairs need too much memory
    at once.
    """

    plain: SlidingMatcher
    join: OneWindow
    always: bool = False
    least: int = ROWS_WORTH_A_SORT
    if_many: bool = False

    def completes(self, before: int, watermark: int) -> bool:
        return self.plain.completes(before, watermark)

    def emit(self, left: Rows, right: Rows, before: int, watermark: int) -> Emitted:
        windows = self.plain.windows
        windows.prepare(left.times, right.times)
        after, upto = windows.complete(before), windows.complete(watermark)
        held = [WindowSpans(*windows.held(rows.times, side)) for side, rows in enumerate((left, right))]
        now = [clipped(run, after, upto) for run in held]
        numbers = np.unique(np.concatenate([ranges(span.first, span.first + span.counts) for span in now]))
        small = len(numbers) * self.least > len(left) + len(right)
        if not self.always and (small or (self.if_many and not self.plain.are_many(left, right, now))):
            return self.plain.emit(left, right, before, watermark)
        join = self.join.over(left, right)
        made = (batch for run in self._runs(numbers, now) for batch in join(run))
        return made, *self.plain.kept(left, right, held, upto, watermark)

    def _runs(self, numbers: np.ndarray, held: list[WindowSpans]) -> list[WindowRows]:
        """Return the rows of each window: the first and the last window that holds a row both increase with its
        time.
        """
        cuts = [
            (
                np.searchsorted(span.last, numbers).tolist(),
                np.searchsorted(span.first, numbers, "right").tolist(),
            )
            for span in held
        ]
        starts, ends = (bound.tolist() for bound in self.plain.windows.bounds(numbers))
        spans = [list(zip(*cut, strict=True)) for cut in cuts]
        return [WindowRows(*row) for row in zip(starts, ends, *spans, strict=True)]
