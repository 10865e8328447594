"""Joins of large windows, one at a time: rows are in order of time, so a window's rows are contiguous.

A window is two ranges of rows, found by binary search for its bounds. Pairs are found in result order and each
window makes separate batches, so results are neither sorted nor concatenated afterwards.

A pair is found, and emitted, once for every window that holds both rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import cycle, groupby
from typing import Protocol

import numpy as np
import pyarrow as pa

from penstock.algorithms.joins.joiner import Pairs
from penstock.algorithms.sorted_partitions.reducers import ranges
from penstock.algorithms.sorted_partitions.rows import Rows
from penstock.operators.joins.algorithm_pairs import ROWS_JOINED_BY_PARTITION, AlgorithmPairing
from penstock.operators.joins.partitions import PartitionKernels
from penstock.operators.joins.results import (
    NULL_ROW,
    Emitted,
    InWindows,
    JoinShape,
    Results,
    alone,
    gives_left_rows,
    left_rows,
    preserves,
    unmatched,
    with_alone,
)
from penstock.operators.joins.sliding import SlidingMatcher, WindowSpans, clipped
from penstock.operators.joins.window_pairs import (
    Batch,
    Pairing,
    WindowMatcher,
    WindowReport,
    arranged,
    arranged_parts,
    numbers_of,
    reduced_sides,
    run_of,
)
from penstock.operators.joins.windows import Placed, WindowRows
from penstock.runtime.buffers import room
from penstock.runtime.stage import END_OF_TIME
from penstock.runtime.threads import ahead

LARGE = 1 << 20  # rows of a window that justify all threads

JoinRun = Callable[[WindowRows], Iterator[pa.RecordBatch]]


class OneWindow(Protocol):
    """Joins windows one at a time."""

    def over(self, left: Rows, right: Rows) -> JoinRun:
        """Take the rows of all windows; return a function that joins one window."""


@dataclass(frozen=True)
class WindowJoin:
    """Joins one window by an algorithm, and reports the algorithm."""

    pairing: AlgorithmPairing
    how: str
    shape: JoinShape
    watch: WindowReport
    alone: Callable[[], AlgorithmPairing]  # makes an equal pairing for one thread
    made: list[AlgorithmPairing] = field(default_factory=list)  # made so far; their buffers are reused

    def over(self, left: Rows, right: Rows) -> JoinRun:
        codes = self.pairing.codes(left, right)
        return lambda run: self.batches(run, left, right, codes)

    def several(
        self, runs: Sequence[WindowRows], left: Rows, right: Rows, codes: Pairs
    ) -> Iterator[pa.RecordBatch]:
        """Yield the results of windows in order; join several windows concurrently where that is faster."""
        if not self._side_by_side(runs):
            yield from (batch for run in runs for batch in self.batches(run, left, right, codes))
            return
        threads = self.pairing.kernels.threads
        # A window uses the buffers of its pairing until its last batch is consumed, so each window in flight
        # needs its own pairing.
        self.made.extend(self.alone() for _ in range(threads + 1 - len(self.made)))
        joins = [replace(self, pairing=pairing) for pairing in self.made]
        found = (join.batches(run, left, right, codes) for join, run in zip(cycle(joins), runs, strict=False))
        yield from ahead(found, threads)

    def _side_by_side(self, runs: Sequence[WindowRows]) -> bool:
        """Whether one thread per window is faster than all threads per window, which synchronise often."""
        many = len(runs) >= self.pairing.kernels.threads > 1 and self.pairing.residual is None
        return many and all(run.rows < LARGE for run in runs)

    def batches(self, run: WindowRows, left: Rows, right: Rows, codes: Pairs) -> Iterator[pa.RecordBatch]:
        """Yield the results of a window with contiguous rows; `codes` covers all rows."""
        one, other = left.part(*run.left), right.part(*run.right)
        mine, its = codes[0][slice(*run.left)], codes[1][slice(*run.right)]
        found = self._parts(one, other, (np.ascontiguousarray(mine), np.ascontiguousarray(its)))
        for results in self.watch.parts(run.rows, self.pairing.chosen, found):
            yield from framed(results, run, one, other, self.shape, self.pairing.kernels.threads)

    def _parts(self, left: Rows, right: Rows, codes: Pairs) -> Iterator[Results]:
        """Yield the results of one window, in order; in parts of bounded size where the pairing supports it."""
        parts = self.pairing.parts_of_window(left, right, codes, self.how)
        if parts is None:
            yield self._joined(left, right, codes)
            return
        unmatched_rows = preserves(self.how, 1)
        met = np.zeros(len(right) if unmatched_rows else 0, np.bool_)
        for own, other in parts:
            if unmatched_rows:
                met[other[other != NULL_ROW]] = True
            yield Results(own, other)
        rows = np.flatnonzero(~met)
        if len(rows):
            yield Results(*alone(rows, 1))

    def _joined(self, left: Rows, right: Rows, codes: Pairs) -> Results:
        """Return the results of one window, in order."""
        how, pairing = self.how, self.pairing
        if pairing.residual is not None:
            pairs = pairing.pairs(left, right, codes)
            return arranged(pairs, (one_window(len(left)), one_window(len(right))), how, pairing.kernels)
        threads = pairing.kernels.shares(len(left) + len(right))
        if gives_left_rows(how):
            return Results(*alone(left_rows(how, pairing.ordered.met(*codes, threads)), 0))
        pairs = pairing.ordered.ordered(*codes, threads, outer=preserves(how, 0))
        if not preserves(how, 1):
            return Results(*pairs)
        met = pairs[1][pairs[1] != NULL_ROW] if preserves(how, 0) else pairs[1]
        unmatched_rows = unmatched(len(right), met).astype(pairs[1].dtype)
        return Results(*with_alone(pairs, unmatched_rows, 1))


@dataclass(frozen=True)
class PairingJoin:
    """Joins one window by any pairing."""

    pairing: Pairing
    how: str
    keys: tuple[tuple[str, ...], tuple[str, ...]]
    shape: JoinShape
    kernels: PartitionKernels
    watch: WindowReport

    def over(self, left: Rows, right: Rows) -> JoinRun:
        return lambda run: self.batches(run, left, right)

    def batches(self, run: WindowRows, left: Rows, right: Rows) -> Iterator[pa.RecordBatch]:
        """Yield the results of a window."""
        one, other = left.part(*run.left), right.part(*run.right)
        placed = one_window(len(one)), one_window(len(other))
        numbers = partial(numbers_of, one, other, self.keys, self.kernels)
        parts = self.pairing.parts(Batch(one, other, placed, numbers))
        found = arranged_parts(parts, placed, self.how, self.kernels)
        for results in self.watch.parts(run.rows, self.pairing.chosen, found):
            yield from framed(results, run, one, other, self.shape, self.kernels.threads)


@dataclass(frozen=True)
class RunMatcher(InWindows):
    """Joins in non-overlapping windows; `plain` joins windows that are small or whose rows are not contiguous."""

    plain: WindowMatcher
    join: WindowJoin

    def completes(self, before: int, watermark: int) -> bool:
        return self.plain.completes(before, watermark)

    def emit(self, left: Rows, right: Rows, before: int, watermark: int) -> Emitted:
        always = self.join.pairing.always
        runs = self.plain.windows.runs(left, right, always=always)
        if runs is None:
            return self.plain.emit(left, right, before, watermark)
        ends = np.array([run.end for run in runs], np.int64)
        complete = self.plain.windows.complete(ends, watermark).tolist()
        kept = np.zeros(len(left), np.bool_), np.zeros(len(right), np.bool_)
        for run, done in zip(runs, complete, strict=True):
            if not done:
                kept[0][slice(*run.left)] = kept[1][slice(*run.right)] = True
        due = [run for run, done in zip(runs, complete, strict=True) if done]
        return self._results(due, left, right), *kept

    def _results(self, runs: Sequence[WindowRows], left: Rows, right: Rows) -> Iterator[pa.RecordBatch]:
        kept = self._reduced(left, right)
        if any(rows is not None for rows in kept):
            left, right = (
                side if rows is None else side.chosen(rows)
                for side, rows in zip((left, right), kept, strict=True)
            )
            runs = [run_of(run, kept) for run in runs]
        codes: Pairs | None = None
        always = self.join.pairing.always
        for large, some in groupby(runs, lambda run: always or run.rows >= ROWS_JOINED_BY_PARTITION):
            if not large:
                yield from self._together(list(some), left, right)
                continue
            codes = codes or self.join.pairing.codes(left, right)
            yield from self.join.several(list(some), left, right, codes)

    def _reduced(self, left: Rows, right: Rows) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Return the rows that may have a partner, unless the user chose the algorithm that is to join all rows."""
        if self.join.pairing.always:
            return None, None
        return reduced_sides(left, right, self.plain.keys, self.join.how)

    def _together(self, runs: list[WindowRows], left: Rows, right: Rows) -> Iterable[pa.RecordBatch]:
        """Join small consecutive windows in one call."""
        one, other = (
            left.part(*_around(run.left for run in runs)),
            right.part(*_around(run.right for run in runs)),
        )
        made, _, _ = self.plain.emit(one, other, 0, END_OF_TIME)
        return made


def _around(spans: Iterator[tuple[int, int]]) -> tuple[int, int]:
    """Return the range from the first to the last row of adjacent ranges, some of which are empty."""
    some = [span for span in spans if span[0] < span[1]]
    return (some[0][0], some[-1][1]) if some else (0, 0)


def framed(
    results: Results, run: WindowRows, left: Rows, right: Rows, shape: JoinShape, threads: int
) -> Iterator[pa.RecordBatch]:
    """Return the results of one window as batches, with the window's bounds."""
    results.start, results.end = (_constant(bound, len(results)) for bound in (run.start, run.end))
    return shape.batches(results, left, right, threads)


def one_window(rows: int) -> Placed:
    """Place all rows in one window."""
    zeros = np.zeros(rows, np.int64)
    return Placed(zeros, zeros, np.ones(rows, np.bool_))


def _constant(value: int, rows: int) -> np.ndarray:
    made = room(rows)
    made.fill(value)
    return made


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
