"""Aggregates over the rows of the other side around each row, as frames of its partitions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.algorithms.sorted_partitions.frames import Frames
from penstock.algorithms.sorted_partitions.partitions import SortedPartitions
from penstock.algorithms.sorted_partitions.results import Reductions
from penstock.algorithms.sorted_partitions.rows import Rows, taken
from penstock.operators.joins.partitions import Kernels, find, lay, number_keys
from penstock.operators.joins.results import RowByRow, Waits
from penstock.runtime.stage import END_OF_TIME, START_OF_TIME


@dataclass(frozen=True)
class RollingMatcher(RowByRow):
    """Every left row, in order, with reductions over right rows from `lo` to `hi` after it, both included."""

    lo: int
    hi: int
    keys: tuple[tuple[str, ...], tuple[str, ...]]
    reductions: Reductions
    schema: pa.Schema
    kernels: Kernels

    @property
    def waits(self) -> Waits:
        """Results have the time of their left row."""
        return max(self.hi, 0), None

    def emit(
        self, left: Rows, right: Rows, before: int, watermark: int
    ) -> tuple[list[pa.RecordBatch], np.ndarray, np.ndarray]:
        wait = max(self.hi, 0)
        due = len(left)
        if watermark != END_OF_TIME:
            due = int(np.searchsorted(left.times, max(watermark - wait, START_OF_TIME)))
        made = [self._batch(left.chosen(np.arange(due)) if due < len(left) else left, right)] if due else []
        kept = np.arange(len(left)) >= due
        oldest = (
            watermark
            if watermark in (START_OF_TIME, END_OF_TIME)
            else max(watermark - wait + self.lo, START_OF_TIME)
        )
        return made, kept, right.times >= oldest

    def _batch(self, left: Rows, right: Rows) -> pa.RecordBatch:
        columns = [
            [rows.batch.column(name) for name in names]
            for rows, names in zip((left, right), self.keys, strict=True)
        ]
        numbers = number_keys(columns[0], columns[1], (len(left), len(right)), self.kernels)
        own = lay(numbers.left, numbers.partitions, left.times, self.kernels)
        other = lay(numbers.right, numbers.partitions, right.times, self.kernels)
        found = find(own, other, (self.lo, self.hi), self.kernels)
        # Frames slide along partitions, so they are listed by partition; results return to input order.
        frames = Frames(found.first[own.places], found.last[own.places], own.values, own.values)
        ranking = (lambda: other.places) if numbers.partitions > 1 else None
        partitions = SortedPartitions(right, other.bounds, other.values[: other.rows], None, ranking)
        reduced = self.reductions.arrays(partitions, [frames])
        back = np.empty(len(left), np.int64)
        back[own.places] = np.arange(len(left))
        arrays = reduced if numbers.partitions == 1 else list(_taken(reduced, back, self.kernels.threads))
        return pa.RecordBatch.from_arrays([*left.batch.columns, *arrays], schema=self.schema)


def _taken(arrays: list[pa.Array], places: np.ndarray, threads: int) -> list[pa.Array]:
    names = [str(place) for place in range(len(arrays))]
    moved: list[pa.Array] = taken(pa.RecordBatch.from_arrays(arrays, names), places, threads).columns
    return moved
