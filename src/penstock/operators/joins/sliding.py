"""Joins in overlapping windows: each pair of rows is found once, then emitted for every window that holds both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import gcd
from typing import Protocol

import numpy as np
import pyarrow as pa

from penstock.algorithms.joins.joiner import Pairs
from penstock.algorithms.sorted_partitions.frames import Bounds
from penstock.algorithms.sorted_partitions.reducers import ranges
from penstock.algorithms.sorted_partitions.rows import Rows
from penstock.algorithms.window_grid import Grid
from penstock.operators.joins.partitions import PartitionKernels, Ranges, find, lay, number_keys
from penstock.operators.joins.results import (
    MOST_PAIRS,
    NULL_ROW,
    Emitted,
    InWindows,
    JoinShape,
    Residual,
    Results,
    alone,
    gives_left_rows,
    left_rows,
    pairs_of,
    partnered,
    preserves,
)
from penstock.operators.joins.windows import opening_of
from penstock.runtime.stage import END_OF_TIME, START_OF_TIME, within_reach


class Overlapping(Protocol):
    """Windows by number; numbers increase with window ends."""

    def held(self, times: np.ndarray, side: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the first and last window that holds each time of a side (none: last < first)."""

    def complete(self, watermark: int) -> int:
        """Return the last window complete at a watermark."""

    def completes(self, before: int, watermark: int) -> bool:
        """Whether windows may have become complete between two watermarks."""

    def bounds(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the starts and ends of windows."""

    def opening(self, watermark: int) -> tuple[int, int]:
        """See `window_runs.OpenWindows`."""

    def reach(self) -> tuple[int, int]:
        """Return how much earlier and later than a left row a right row in the same window can be."""

    def prepare(self, left: np.ndarray, right: np.ndarray) -> None:
        """Set the range of times that later calls use."""


@dataclass(frozen=True)
class CommonEnds:
    """Windows of two grids, perhaps different, that end at the same times: base + n * step."""

    sizes: tuple[int, int]
    base: int
    step: int

    @staticmethod
    def of(left: Grid, right: Grid) -> CommonEnds:
        """Return the windows at the common ends of two grids (the plan check guarantees that there are some)."""
        one, other = left.offset + left.size, right.offset + right.size
        divisor = gcd(left.every, right.every)
        step = left.every // divisor * right.every
        # one + n * left.every = other, modulo right.every
        turns = (other - one) // divisor * pow(left.every // divisor, -1, right.every // divisor)
        base = one + (turns % (right.every // divisor)) * left.every
        return CommonEnds((left.size, right.size), base % step, step)

    def held(self, times: np.ndarray, side: int) -> tuple[np.ndarray, np.ndarray]:
        from_base = times - self.base
        return from_base // self.step + 1, (from_base + self.sizes[side]) // self.step

    def complete(self, watermark: int) -> int:
        if watermark in (START_OF_TIME, END_OF_TIME):
            return watermark
        return (watermark - self.base) // self.step

    def completes(self, before: int, watermark: int) -> bool:
        return self.complete(watermark) > self.complete(before)

    def opening(self, watermark: int) -> tuple[int, int]:
        """Return the watermark, as rows of open windows are retained, and the next end of a window."""
        return watermark, self.base + (self.complete(watermark) + 1) * self.step

    def bounds(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        end = self.base + numbers * self.step
        return end - max(self.sizes), end

    def reach(self) -> tuple[int, int]:
        return self.sizes[1] - 1, self.sizes[0] - 1

    def prepare(self, left: np.ndarray, right: np.ndarray) -> None:
        around = self.base + self.step + sum(self.sizes)
        for times in (left, right):
            within_reach(times, around, around)


class CalendarOverlap:
    """Windows on a calendar, numbered by their ends within the range set by `prepare`."""

    def __init__(self, bounds: Bounds) -> None:
        self._listed = bounds
        self._starts = self._ends = np.zeros(0, np.int64)

    def prepare(self, left: np.ndarray, right: np.ndarray) -> None:
        times = np.concatenate([left, right])
        if len(times):
            self._starts, self._ends = self._listed(int(times.min()), int(times.max()))

    def held(self, times: np.ndarray, side: int) -> tuple[np.ndarray, np.ndarray]:
        first = np.searchsorted(self._ends, times, side="right")
        return first, np.searchsorted(self._starts, times, side="right") - 1

    def complete(self, watermark: int) -> int:
        return int(np.searchsorted(self._ends, watermark, side="right")) - 1

    def completes(self, before: int, watermark: int) -> bool:
        return True

    def opening(self, watermark: int) -> tuple[int, int]:
        """Return the watermark, as rows of open windows are retained, and the next end of a window."""
        return watermark, opening_of(self._listed, watermark)[1]

    def bounds(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self._starts[numbers], self._ends[numbers]

    def reach(self) -> tuple[int, int]:
        longest = int((self._ends - self._starts).max()) if len(self._ends) else 1
        return longest - 1, longest - 1


@dataclass(frozen=True)
class WindowSpans:
    """The first and last window that holds each row of a side, among the windows to emit."""

    first: np.ndarray
    last: np.ndarray

    @property
    def counts(self) -> np.ndarray:
        several: np.ndarray = np.maximum(self.last - self.first + 1, 0)
        return several


@dataclass(frozen=True)
class _Near:
    """Candidate rows of both sides, the windows of all rows, and the right candidates near each left one."""

    now: list[WindowSpans]
    some: list[np.ndarray]
    rows: list[Rows]
    found: Ranges

    def results(self) -> int:
        """Estimate the number of results."""
        several = sum(int(span.counts.sum()) for span in self.now) / max(sum(map(len, self.some)), 1)
        return int(self.found.counts.sum() * several)

    def cuts(self) -> list[int]:
        """Return the windows to cut after, so that a part has about MOST_PAIRS results; empty if one part is
        enough.
        """
        parts = self.results() // MOST_PAIRS
        if not parts:
            return []
        first = np.sort(
            np.concatenate([span.first[some] for span, some in zip(self.now, self.some, strict=True)])
        )
        # Cut at the first windows of evenly spaced rows, so that parts hold about as many rows each.
        places = np.linspace(0, len(first) - 1, parts + 2)[1:-1].astype(int)
        found: list[int] = np.unique(first[places]).tolist()
        return found


@dataclass(frozen=True)
class SlidingMatcher(InWindows):
    """Joins in windows that overlap."""

    windows: Overlapping
    how: str
    keys: tuple[tuple[str, ...], tuple[str, ...]]
    residual: Residual | None
    shape: JoinShape
    kernels: PartitionKernels

    def completes(self, before: int, watermark: int) -> bool:
        return self.windows.completes(before, watermark)

    def emit(self, left: Rows, right: Rows, before: int, watermark: int) -> Emitted:
        self.windows.prepare(left.times, right.times)
        after, upto = self.windows.complete(before), self.windows.complete(watermark)
        held = [WindowSpans(*self.windows.held(rows.times, side)) for side, rows in enumerate((left, right))]
        kept = self.kept(left, right, held, upto, watermark)
        if after == upto or not (len(left) or len(right)):
            return [], *kept
        return self._made(left, right, held, after, upto), *kept

    def _made(
        self, left: Rows, right: Rows, held: list[WindowSpans], after: int, upto: int
    ) -> Iterator[pa.RecordBatch]:
        threads = self.kernels.threads
        if gives_left_rows(self.how):
            yield from self.shape.batches(self._chosen(left, right, held, after, upto), left, right, threads)
            return
        near = self._near(left, right, [clipped(span, after, upto) for span in held])
        cuts = near.cuts()
        if not cuts:
            yield from self.shape.batches(self._results(near), left, right, threads)
            return
        for since, until in pairwise([after, *cuts, upto]):
            near = self._near(left, right, [clipped(span, since, until) for span in held])
            yield from self.shape.batches(self._results(near), left, right, threads)

    def kept(
        self, left: Rows, right: Rows, held: list[WindowSpans], upto: int, watermark: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Retain the rows of open windows; for semi and anti joins, also the right rows that pending left rows
        may match.
        """
        open_yet = [(span.last > upto) & (span.last >= span.first) for span in held]
        if gives_left_rows(self.how):
            past, future = self.windows.reach()
            open_yet[1] |= right.times > max(watermark - past - future - 2, START_OF_TIME)
        return open_yet[0], open_yet[1]

    def are_many(self, left: Rows, right: Rows, now: list[WindowSpans]) -> bool:
        """Whether there are at least as many results as (row, window) pairs, and too many for one batch."""
        return self._near(left, right, now).results() >= max(
            MOST_PAIRS, sum(int(span.counts.sum()) for span in now)
        )

    def _results(self, near: _Near) -> Results:
        now, (own, other) = near.now, self._listed(near)
        first = np.maximum(now[0].first[own], now[1].first[other])
        last = np.minimum(now[0].last[own], now[1].last[other])
        pair = np.repeat(np.arange(len(own)), np.maximum(last - first + 1, 0))
        window = ranges(first, np.maximum(last + 1, first))
        found = [(own[pair], other[pair], window, np.zeros(len(window), np.int64))]
        for side in (0, 1):
            if preserves(self.how, side):
                found.append(unmatched_in_windows(now[side], side, found[0][side], window))
        return self._arranged(*(np.concatenate(part) for part in zip(*found, strict=True)))

    def _arranged(self, left: np.ndarray, right: np.ndarray, window: np.ndarray, kind: np.ndarray) -> Results:
        own = np.where(left == NULL_ROW, right, left)
        order = self.kernels.sorter.order(window, kind, own)
        start, end = self.windows.bounds(window[order])
        return Results(left[order], right[order], start, end)

    def _near(
        self, left: Rows, right: Rows, now: list[WindowSpans], some: list[np.ndarray] | None = None
    ) -> _Near:
        """Find the rows near enough to share a window, among rows inside a window or among `some` of each side."""
        some = some or [np.flatnonzero(span.counts) for span in now]
        rows = [
            side if len(which) == len(side) else side.chosen(which)
            for side, which in zip((left, right), some, strict=True)
        ]
        columns = [
            [row.batch.column(name) for name in names] for row, names in zip(rows, self.keys, strict=True)
        ]
        numbers = number_keys(columns[0], columns[1], (len(rows[0]), len(rows[1])), self.kernels)
        own = lay(numbers.left, numbers.partitions, rows[0].times, self.kernels)
        other = lay(numbers.right, numbers.partitions, rows[1].times, self.kernels)
        past, future = self.windows.reach()
        return _Near(now, some, rows, find(own, other, (-past, future), self.kernels))

    def _listed(self, near: _Near) -> Pairs:
        pairs = pairs_of(near.found, self.residual, near.rows[0], near.rows[1], self.kernels)
        return near.some[0][pairs[0]], near.some[1][pairs[1]]

    def _chosen(self, left: Rows, right: Rows, held: list[WindowSpans], after: int, upto: int) -> Results:
        """Return left rows whose last window is now complete and which match in some window (semi) or in none
        (anti).
        """
        mine = held[0]
        due = (mine.last > after) & (mine.last <= upto) & (mine.last >= mine.first)
        some = np.flatnonzero(due)
        own, other = self._listed(self._near(left, right, held, [some, np.arange(len(right))]))
        sharing = np.maximum(mine.first[own], held[1].first[other]) <= np.minimum(
            mine.last[own], held[1].last[other]
        )
        rows = left_rows(self.how, partnered(len(left), own[sharing])[some], some)
        return Results(*alone(rows, 0), *self.windows.bounds(mine.last[rows]))


def clipped(held: WindowSpans, after: int, upto: int) -> WindowSpans:
    first = held.first if after == START_OF_TIME else np.maximum(held.first, after + 1)
    return WindowSpans(first, np.minimum(held.last, upto))


def unmatched_in_windows(
    held: WindowSpans, side: int, rows: np.ndarray, windows: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the rows of a side in windows where they are unmatched; `rows` match in `windows`."""
    counts = held.counts
    starts = np.cumsum(counts) - counts
    free = np.ones(int(counts.sum()), np.bool_)
    free[starts[rows] + windows - held.first[rows]] = False
    row = np.repeat(np.arange(len(counts)), counts)[free]
    window = ranges(held.first, held.first + counts)[free]
    return *alone(row, side), window, np.full(len(row), side)
