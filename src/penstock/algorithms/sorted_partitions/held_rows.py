"""Rows ahead of the watermark, with their state and their count of late rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from penstock.algorithms.sorted_partitions.rows import Rows, arrived, no_rows, rows_back
from penstock.runtime.buffers import ticks_of
from penstock.runtime.lateness import on_time
from penstock.runtime.metrics import Metrics
from penstock.runtime.stage import END_OF_TIME, START_OF_TIME, TimedBatch
from penstock.state.state_table import StateTable, read_scalars, scalars
from penstock.types.time import Time


class HeldRows:
    """Rows buffered until the watermark, with the columns that order rows of equal time. Late rows are dropped and counted."""

    def __init__(self, schema: pa.Schema, time: Time, metrics: Metrics) -> None:
        self.schema, self.time, self.metrics = schema, time, metrics
        self.watermark = START_OF_TIME
        self._parts: list[Rows] = []  # in arrival order; concatenated when first read

    def add(self, timed_batches: list[TimedBatch]) -> None:
        self._parts += [
            arrived([self._on_time(timed_batch)], self.schema, self.time) for timed_batch in timed_batches
        ]

    def _on_time(self, timed_batch: TimedBatch) -> TimedBatch:
        def late(arrival_watermarks: np.ndarray) -> np.ndarray:
            return np.asarray(
                ticks_of(timed_batch.batch.column(self.time.column), self.time.shift) < arrival_watermarks
            )

        return on_time(timed_batch, self.metrics, late)

    def release(self, watermark: int) -> Rows:
        """Remove and return the rows before the watermark."""
        self.watermark = max(self.watermark, watermark)
        rows = self.rows()
        if self.watermark == END_OF_TIME:
            self._parts = []
            return rows
        passed = rows.times < self.watermark
        self._parts = [rows.chosen(~passed)]
        return rows.chosen(passed)

    def save(self, keys: Sequence[str] = ()) -> dict[str, StateTable]:
        """Save the buffered rows, with `keys` as the key columns of the state table."""
        return {"marks": scalars(watermark=self.watermark), "rows": self.rows().kept(keys)}

    def load(self, tables: Mapping[str, pa.Table]) -> None:
        self.watermark = read_scalars(tables["marks"])["watermark"]
        if "rows" in tables:
            self._parts = [rows_back(tables["rows"], self.schema, self.time)]

    def rows(self) -> Rows:
        """The buffered rows."""
        whole = no_rows(self.schema).followed_by(*self._parts)
        self._parts = [whole]
        return whole
