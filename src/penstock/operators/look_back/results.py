"""Result batches of look-backs: every new row in time order, with its aggregates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.algorithms.sorted_partitions.partitions import SortedPartitions
from penstock.algorithms.sorted_partitions.results import Reductions
from penstock.operators.look_back.frames import LookBackFraming
from penstock.runtime.buffers import indices, room

NOT_NEW = -1


@dataclass(frozen=True)
class LookBackResults:
    """Every new row, in time order, with aggregates over its look-backs."""

    framing: LookBackFraming
    reductions: Reductions
    schema: pa.Schema

    def __call__(self, partitions: SortedPartitions, watermark: int) -> list[pa.RecordBatch]:
        if partitions.seen == len(partitions):
            return []
        reduced = self.reductions.arrays(partitions, self.framing.frames(partitions))
        if partitions.moments is None and partitions.order is None and partitions.all_fresh:
            rows = partitions.arrived_rows.batch
        else:
            new = None if partitions.all_fresh else np.flatnonzero(partitions.fresh)
            order = _in_time(partitions, new)
            if new is None and partitions.order is None:
                rows = partitions.arrived_rows.batch
            else:
                rows = partitions.taken(order if new is None else new[order])
            reduced = [array.take(indices(order)) for array in reduced]
        return [pa.RecordBatch.from_arrays([*rows.columns, *reduced], schema=self.schema)]


def _in_time(partitions: SortedPartitions, new: np.ndarray | None) -> np.ndarray:
    """Return the positions of new rows in order of time. Ranks are a permutation: its inverse needs no sort."""
    ranks = partitions.moments
    if ranks is None:
        return np.arange(len(partitions) if new is None else len(new))
    places = room(len(ranks))
    if new is None:
        places[ranks] = np.arange(len(ranks))
        return places
    places.fill(NOT_NEW)
    places[ranks[new]] = np.arange(len(new))
    order: np.ndarray = places[places != NOT_NEW]
    return order
