"""Result batches of look-backs: every new row in time order, with its aggregates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.algorithms.sort.sorting import Sorter
from penstock.algorithms.sorted_partitions.partitions import Lanes
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

    def __call__(self, lanes: Lanes, watermark: int) -> list[pa.RecordBatch]:
        if lanes.seen == len(lanes):
            return []
        reduced = self.reductions.arrays(lanes, self.framing.frames(lanes))
        if lanes.moments is None and lanes.order is None and lanes.all_fresh:
            rows = lanes.came.batch
        else:
            new = np.flatnonzero(lanes.fresh)
            order = self.sorter.order(lanes.in_time(new))
            rows = lanes.taken(new[order])
            reduced = [array.take(indices(order)) for array in reduced]
        return [pa.RecordBatch.from_arrays([*rows.columns, *reduced], schema=self.schema)]
