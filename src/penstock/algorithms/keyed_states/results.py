"""Result batches of windows whose states are kept per key: bounds, keys, aggregates."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.algorithms.keyed_states.table import CompletedStates, KeyedTable
from penstock.algorithms.sort.sorting import Sorter
from penstock.algorithms.sorted_partitions.frames import Frames
from penstock.algorithms.sorted_partitions.results import bound_arrays, by_bounds, by_bounds_and_keys
from penstock.algorithms.sorted_partitions.rows import taken
from penstock.runtime.stage import TimedBatch
from penstock.runtime.time_limits import within_reach


@dataclass(frozen=True)
class KeyedResults:
    """One row for each window and key. A window ends `reach` after its last row.

    `by_key` orders the rows of a window by their keys, if a downstream stage depends on their order.
    """

    schema: pa.Schema
    reach: int
    sorter: Sorter
    by_key: bool

    def batches(self, table: KeyedTable, found: Iterable[CompletedStates]) -> list[TimedBatch]:
        """Order the results of one run. They are read at once: keys are numbered by the table as it is now."""
        several = list(found)
        if not several:
            return []
        whole = several[0] if len(several) == 1 else _joined(several)
        end = within_reach(whole.last, 0, self.reach) + self.reach
        frames = Frames(whole.first, whole.last, whole.first, end)
        keys = table.directory.arrays(whole.keys)
        arrays = [*bound_arrays(frames, self.schema), *keys, *whole.reduced]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        by_key = keys and self.by_key
        order = by_bounds_and_keys(frames, keys, self.sorter) if by_key else by_bounds(frames, self.sorter)
        return [TimedBatch(batch if order is None else taken(batch, order), counted=True)]


def _joined(several: list[CompletedStates]) -> CompletedStates:
    keys, first, last = (
        np.concatenate([getattr(reduction, name) for reduction in several])
        for name in ("keys", "first", "last")
    )
    reduced = [
        pa.concat_arrays(column) for column in zip(*(reduction.reduced for reduction in several), strict=True)
    ]
    return CompletedStates(keys, first, last, reduced)
