"""Rows on their way to an operator that reads them in order: late ones are counted, others wait for the watermark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from penstock.algorithms.sort.sorting import Sorter
from penstock.algorithms.sorted_partitions.rows import Rows, arrived, rows_back
from penstock.algorithms.sorted_partitions.rows_ahead import RowsAhead
from penstock.runtime.buffers import ticks_of
from penstock.runtime.lateness import on_time
from penstock.runtime.metrics import Metrics
from penstock.runtime.stage import START_OF_TIME, TimedBatch
from penstock.state.state_table import StateTable, read_scalars, require_form, scalars
from penstock.types.time import Time


@dataclass
class OrderedArrivals:
    """Rows are released in order once the watermark has passed them. A row behind the watermark is late."""

    schema: pa.Schema
    time: Time
    sorter: Sorter
    metrics: Metrics
    watermark: int = field(init=False, default=START_OF_TIME)
    rows: RowsAhead = field(init=False)

    def __post_init__(self) -> None:
        self.rows = RowsAhead(self.schema, self.sorter)

    def add(self, timed_batches: list[TimedBatch]) -> None:
        timely = [self._on_time(timed_batch) for timed_batch in timed_batches]
        some = [timed_batch for timed_batch in timely if timed_batch.batch.num_rows]
        if some:
            self.rows.add(arrived(some, self.schema, self.time))

    def _on_time(self, timed_batch: TimedBatch) -> TimedBatch:
        def late(arrival_watermarks: np.ndarray) -> np.ndarray:
            behind: np.ndarray = (
                ticks_of(timed_batch.batch.column(self.time.column), self.time.shift) < arrival_watermarks
            )
            return behind

        return on_time(timed_batch, self.metrics, late)

    def release(self, watermark: int) -> Rows:
        """Remove and return the rows that the watermark has passed."""
        self.watermark = max(self.watermark, watermark)
        return self.rows.release(self.watermark)

    def save(self, keys: Sequence[pa.Field]) -> dict[str, StateTable]:
        """The state tables of the rows that wait; `keys` are their key columns."""
        names = [key.name for key in keys]
        return {"marks": scalars(watermark=self.watermark), "rows": self.rows.rows().kept(names)}

    def load(self, tables: Mapping[str, pa.Table]) -> None:
        self.watermark = read_scalars(tables["marks"])["watermark"]
        if "rows" in tables:
            rows = rows_back(tables["rows"], self.schema, self.time)
            require_form((rows.times >= self.watermark).all())
            self.rows.add(rows)
