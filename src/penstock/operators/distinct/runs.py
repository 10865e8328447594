"""One row of each run of equal rows: a run holds the rows less than `within` after its first."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.algorithms.sorted_partitions.frames import Released
from penstock.algorithms.sorted_partitions.partitions import SortedPartitions
from penstock.runtime.kernels import Call
from penstock.runtime.stage import END_OF_TIME


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
