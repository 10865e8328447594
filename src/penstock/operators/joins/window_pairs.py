"""Pairs of rows in non-overlapping windows, and their results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
import pyarrow as pa

from penstock.algorithms.joins.joiner import Pairs
from penstock.algorithms.sorted_partitions.rows import Rows
from penstock.operators.joins.completion import alone, completed, gives_left_rows, left_rows, partnered
from penstock.operators.joins.partitions import Kernels, Numbers, find, lay, number_keys
from penstock.operators.joins.reduce_sides import reduced_sides
from penstock.operators.joins.results import (
    NULL_ROW,
    Emitted,
    InWindows,
    JoinShape,
    Residual,
    Results,
    joined_pairs,
    parts_of,
)
from penstock.operators.joins.window_report import WindowReport
from penstock.operators.joins.windows import Placed, WindowKind
from penstock.runtime.join_metrics import ChosenAlgorithm
from penstock.runtime.stage import END_OF_TIME, START_OF_TIME

IN_PARTITIONS = ChosenAlgorithm("partitions")


@dataclass(frozen=True)
class Batch:
    """The rows of complete windows: both sides, the rows' windows, and the numbers of their keys."""

    left: Rows
    right: Rows
    placed: tuple[Placed, Placed]
    numbers: Callable[[], Numbers]


class Pairing(Protocol):
    """Finds the pairs of rows with equal keys in a window, by left row."""

    def parts(self, batch: Batch) -> Iterator[Pairs]:
        """Yield pairs in parts, by left row."""

    def chosen(self) -> ChosenAlgorithm:
        """Return the algorithm that found the last pairs."""


@dataclass(frozen=True)
class PartitionPairing:
    """Pairs as ranges of partitions. With `carried`, windows are among the keys, so a partition is one window."""

    residual: Residual | None
    carried: bool
    kernels: Kernels

    def chosen(self) -> ChosenAlgorithm:
        return IN_PARTITIONS

    def parts(self, batch: Batch) -> Iterator[Pairs]:
        kernels, numbers = self.kernels, batch.numbers()
        left = lay(numbers.left, numbers.partitions, batch.left.times, kernels)
        right = lay(numbers.right, numbers.partitions, batch.right.times, kernels)
        if self.carried:
            limits = np.full(left.rows, START_OF_TIME), np.full(left.rows, END_OF_TIME)
        else:
            own = batch.placed[0]
            limits = own.start[left.places], own.end[left.places] - 1
        return parts_of(find(left, right, limits, kernels), self.residual, batch.left, batch.right, kernels)


@dataclass(frozen=True)
class WindowMatcher(InWindows):
    """Joins in non-overlapping windows."""

    windows: WindowKind
    pairing: Pairing
    how: str
    keys: tuple[tuple[str, ...], tuple[str, ...]]
    shape: JoinShape
    kernels: Kernels
    watch: WindowReport

    def emit(self, left: Rows, right: Rows, before: int, watermark: int) -> Emitted:
        known: list[Numbers] = []

        def numbers() -> Numbers:
            if not known:
                known.append(self._numbers(left, right))
            return known[0]

        placed = self.windows.place(left, right, numbers)
        done = [side.inside & self.windows.complete(side.end, watermark) for side in placed]
        kept = [side.inside & ~now for side, now in zip(placed, done, strict=True)]
        made = self._results(left, right, placed, done, numbers) if any(mask.any() for mask in done) else []
        return made, kept[0], kept[1]

    def completes(self, before: int, watermark: int) -> bool:
        return self.windows.completes(before, watermark)

    def _numbers(self, left: Rows, right: Rows) -> Numbers:
        return numbers_of(left, right, self.keys, self.kernels)

    def _results(
        self,
        left: Rows,
        right: Rows,
        placed: tuple[Placed, Placed],
        done: list[np.ndarray],
        numbers: Callable[[], Numbers],
    ) -> Iterable[pa.RecordBatch]:
        chosen = self._chosen(left, right, done)
        if chosen is None:
            batch = Batch(left, right, placed, numbers)
        else:
            left, right = left.chosen(chosen[0]), right.chosen(chosen[1])
            placed = placed[0].chosen(chosen[0]), placed[1].chosen(chosen[1])
            batch = Batch(left, right, placed, partial(self._numbers, left, right))
        found = arranged_parts(self.pairing.parts(batch), placed, self.how, self.kernels)
        windows = _how_many(placed)
        for results in self.watch.parts(len(left) + len(right), self.pairing.chosen, found, windows):
            yield from self.shape.batches(results, left, right, self.kernels.threads)

    def _chosen(self, left: Rows, right: Rows, done: list[np.ndarray]) -> list[np.ndarray] | None:
        """Select the rows of complete windows that may have a partner; None if these are all."""
        kept = reduced_sides(left, right, self.keys, self.how)
        if all(side.all() for side in done) and all(rows is None for rows in kept):
            return None
        return [
            np.flatnonzero(side) if rows is None else rows[side[rows]]
            for side, rows in zip(done, kept, strict=True)
        ]


def _how_many(placed: tuple[Placed, Placed]) -> int:
    """Count the windows of rows in order of time, on the side that has more."""
    return max(int(np.count_nonzero(np.diff(side.end))) + min(len(side.end), 1) for side in placed)


def numbers_of(
    left: Rows, right: Rows, keys: tuple[tuple[str, ...], tuple[str, ...]], kernels: Kernels
) -> Numbers:
    """Number the keys of both sides."""
    columns = [
        [rows.batch.column(name) for name in names] for rows, names in zip((left, right), keys, strict=True)
    ]
    return number_keys(columns[0], columns[1], (len(left), len(right)), kernels)


def arranged_parts(
    parts: Iterator[Pairs], placed: tuple[Placed, Placed], how: str, kernels: Kernels
) -> Iterator[Results]:
    """Yield the results of pairs part by part, if no result depends on another part; else all at once."""
    if how == "inner" and _sorted((placed[0].end, placed[0].start)):
        yield from (arranged(pairs, placed, how, kernels) for pairs in parts)
    else:
        yield arranged(joined_pairs(list(parts)), placed, how, kernels)


def arranged(pairs: Pairs, placed: tuple[Placed, Placed], how: str, kernels: Kernels) -> Results:
    """Add the unmatched rows and order all results by window, rows with a left row first."""
    own, other = placed
    if gives_left_rows(how):
        rows = left_rows(how, partnered(len(own.start), pairs[0]))
        results = Results(*alone(rows, 0), own.start[rows], own.end[rows])
        return _in_order(results, np.zeros(len(rows), np.int64), kernels)
    (left, right), free, unmatched_rows = completed(how, pairs, (len(own.start), len(other.start)))
    start, end = (
        np.concatenate([mine[pairs[0]], mine[free], its[unmatched_rows]])
        for mine, its in ((own.start, other.start), (own.end, other.end))
    )
    return _in_order(Results(left, right, start, end), (left == NULL_ROW).astype(np.int64), kernels)


def _in_order(results: Results, kind: np.ndarray, kernels: Kernels) -> Results:
    """Sort by window end and start, then results with a left row first, then by row; the sort is stable."""
    assert results.start is not None and results.end is not None
    own = np.where(results.left == NULL_ROW, results.right, results.left)
    keys = results.end, results.start, kind, own
    if _sorted(keys):
        return results
    return results.chosen(kernels.sorter.order(*keys))


def _sorted(keys: tuple[np.ndarray, ...]) -> bool:
    """Whether rows are in the order of several keys."""
    tied = np.ones(max(len(keys[0]) - 1, 0), np.bool_)
    for key in keys:
        if bool((tied & (key[1:] < key[:-1])).any()):
            return False
        tied &= key[1:] == key[:-1]
    return True
