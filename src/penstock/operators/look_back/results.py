"""Result batches of look-backs: every new row in time order, with its aggregates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.algorithms.sort.sorting import Sorter
from penstock.algorithms.sorted_partitions.partitions import SortedPartitions
from penstock.algorithms.sorted_partitions.results import Reductions
from penstock.operators.look_back.frames import LookBackFraming
from penstock.runtime.buffers import indices


@dataclass(frozen=True)
class LookBackResults:
    """Every new row, in time order, with aggregates over its look-backs."""

    framing: LookBackFraming
    reductions: Reductions
    schema: pa.Schema
    sorter: Sorter

    def __call__(self, partitions: SortedPartitions, watermark: int) -> list[pa.RecordBatch]:
        if partitions.seen == len(partitions):
            return []
        reduced = self.reductions.arrays(partitions, self.framing.frames(partitions))
        if partitions.moments is None and partitions.order is None and partitions.all_fresh:
            rows = partitions.arrived_rows.batch
        else:
            new = np.flatnonzero(partitions.fresh)
            order = self.sorter.order(partitions.in_time(new))
            rows = partitions.taken(new[order])
            reduced = [array.take(indices(order)) for array in reduced]
        return [pa.RecordBatch.from_arrays([*rows.columns, *reduced], schema=self.schema)]
