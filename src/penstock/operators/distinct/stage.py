"""The distinct stages: one row for each value in order of time, or one of each run of equal rows within a duration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.algorithms.hash_table.keys import Indexer
from penstock.algorithms.sort.sorting import Sorter
from penstock.algorithms.sorted_partitions.frames import Released
from penstock.algorithms.sorted_partitions.partitions import SortedPartitions
from penstock.algorithms.sorted_partitions.rows import HeldRows, Rows
from penstock.loop.abi import numbered
from penstock.runtime.buffers import indices
from penstock.runtime.kernels import Call
from penstock.runtime.stage import END_OF_TIME, START_OF_TIME, TimedBatch
from penstock.state.state_table import StateTable, array_of


def _timed_batches(rows: Rows) -> list[TimedBatch]:
    """Emit rows with the columns that order them, one batch per branch."""
    if rows.branch is None:
        return [TimedBatch(rows.batch, sequence=rows.sequence, counted=True)] if len(rows) else []
    branches = [(int(branch), rows.chosen(rows.branch == branch)) for branch in np.unique(rows.branch)]
    return [
        TimedBatch(branch_rows.batch, sequence=branch_rows.sequence, branch=branch, counted=True)
        for branch, branch_rows in branches
    ]


class DistinctStage:
    """Keep one row for each value of the subset: the first in time order, or the last once input has ended."""

    def __init__(
        self,
        held: HeldRows,
        subset: Sequence[str],
        keep: str,
        sorter: Sorter,
        new_index: Callable[[], Indexer],
    ) -> None:
        self.held, self.subset, self.keep, self.sorter = held, list(subset), keep, sorter
        self.seen = new_index()

    def push(self, port: int, timed_batches: list[TimedBatch]) -> list[TimedBatch]:
        self.held.add(timed_batches)
        return []

    def advance(self, port: int, watermark: int) -> tuple[list[TimedBatch], int]:
        if self.keep == "last" and watermark != END_OF_TIME:
            return [], START_OF_TIME
        rows = self.held.release(watermark)
        if len(rows) == 0:
            return [], watermark
        order = self._order(rows)
        known = len(self.seen)
        numbers = self.seen.number([rows.column(name).take(indices(order)) for name in self.subset])
        found, first = np.unique(numbers, return_index=True)
        kept = np.sort(order[first[found >= known]])
        return _timed_batches(rows.chosen(kept)), watermark

    def save(self) -> Mapping[str, StateTable]:
        """Save the buffered rows, and the values already emitted."""
        types = [self.held.schema.field(name).type for name in self.subset]
        names = tuple(numbered("key", place) for place in range(len(types)))
        seen = pa.Table.from_arrays(self.seen.values(types), names=list(names))
        return {**self.held.save(self.subset), "seen": StateTable(seen, names)}

    def load(self, tables: Mapping[str, pa.Table]) -> None:
        self.held.load(tables)
        if "seen" in tables:
            self.seen.number([array_of(tables["seen"], name) for name in tables["seen"].column_names])

    def _order(self, rows: Rows) -> np.ndarray:
        order = rows.order(self.sorter)
        if order is None:
            order = np.arange(len(rows))
        return order if self.keep == "first" else order[::-1]


@dataclass(frozen=True)
class DistinctRuns(Released):
    """Runs of rows in partitions of equal rows. `call` marks where runs begin."""

    within: int
    keep: str
    call: Call

    def __call__(self, partitions: SortedPartitions, watermark: int) -> list[pa.RecordBatch]:
        """Emit the first row of each new run, or the last row of each complete run."""
        lo, hi = self._runs(partitions)
        new, complete = partitions.fresh[lo], ~self._open(partitions, lo, watermark)
        kept = lo[new] if self.keep == "first" else hi[complete] - 1
        if not len(kept):
            return []
        return [partitions.taken(kept[np.argsort(partitions.in_time(kept))])]

    def _runs(self, partitions: SortedPartitions) -> tuple[np.ndarray, np.ndarray]:
        begins = np.empty(len(partitions), np.uint8)
        given = {"times": partitions.times, "bounds": partitions.bounds, "partitions": partitions.count}
        self.call({**given, "within": self.within, "begins": begins})
        lo = np.flatnonzero(begins)
        return lo, np.append(lo[1:], len(partitions)) if len(lo) else lo

    def _open(self, partitions: SortedPartitions, lo: np.ndarray, watermark: int) -> np.ndarray:
        if watermark == END_OF_TIME:
            return np.zeros(len(lo), np.bool_)
        waiting: np.ndarray = partitions.times[lo] > watermark - self.within
        return waiting

    def needed(self, partitions: SortedPartitions, watermark: int) -> np.ndarray:
        lo, hi = self._runs(partitions)
        return np.repeat(self._open(partitions, lo, watermark), hi - lo)

    def ahead(self, watermark: int) -> int:
        return watermark
