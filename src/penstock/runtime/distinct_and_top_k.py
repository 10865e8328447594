"""The distinct and top-k stages, which buffer rows until the watermark passes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.loop.abi import numbered
from penstock.runtime.buffers import indices, ticks_of
from penstock.runtime.indexer import Indexer
from penstock.runtime.lateness import on_time
from penstock.runtime.metrics import Metrics
from penstock.runtime.sorted_partitions.rows import Rows, arrived, no_rows, rows_back
from penstock.runtime.sorted_partitions.sorting import Sorter
from penstock.runtime.stage import END_OF_TIME, START_OF_TIME, TimedBatch
from penstock.runtime.state.state_table import StateTable, array_of, read_scalars, scalars
from penstock.types.time import Time


class Held:
    """Rows buffered until the watermark, with the columns that order rows of equal time. Late rows are dropped and counted."""

    def __init__(self, schema: pa.Schema, time: Time, metrics: Metrics) -> None:
        self.schema, self.time, self.metrics = schema, time, metrics
        self.watermark = START_OF_TIME
        self._parts: list[Rows] = []  # in arrival order; concatenated when first read

    def add(self, flows: list[TimedBatch]) -> None:
        self._parts += [arrived([self._on_time(flow)], self.schema, self.time) for flow in flows]

    def _on_time(self, flow: TimedBatch) -> TimedBatch:
        def late(arrival_watermarks: np.ndarray) -> np.ndarray:
            return np.asarray(
                ticks_of(flow.batch.column(self.time.column), self.time.shift) < arrival_watermarks
            )

        return on_time(flow, self.metrics, late)

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


def _arrow() -> Any:
    """Import Arrow's compute functions on first use: loading takes 50 ms, and only these stages need them."""
    import pyarrow.compute  # noqa: PLC0415

    return pyarrow.compute


def _flows(rows: Rows) -> list[TimedBatch]:
    """Emit rows with the columns that order them, one batch per branch."""
    if rows.branch is None:
        return [TimedBatch(rows.batch, sequence=rows.sequence, counted=True)] if len(rows) else []
    branches = [(int(branch), rows.chosen(rows.branch == branch)) for branch in np.unique(rows.branch)]
    return [
        TimedBatch(each.batch, sequence=each.sequence, branch=branch, counted=True)
        for branch, each in branches
    ]


class DistinctStage:
    """Keep one row for each value of the subset: the first in time order, or the last once input has ended."""

    def __init__(
        self,
        held: Held,
        subset: Sequence[str],
        keep: str,
        sorter: Sorter,
        new_index: Callable[[], Indexer],
    ) -> None:
        self.held, self.subset, self.keep, self.sorter = held, list(subset), keep, sorter
        self.seen = new_index()

    def push(self, port: int, flows: list[TimedBatch]) -> list[TimedBatch]:
        self.held.add(flows)
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
        return _flows(rows.chosen(kept)), watermark

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


@dataclass
class TopKStage:
    """Keep the k largest rows of each window; emit them when the window is complete."""

    held: Held
    k: int
    by: str
    ties: str
    time: Time
    sorter: Sorter

    def push(self, port: int, flows: list[TimedBatch]) -> list[TimedBatch]:
        self.held.add(flows)
        return []

    def advance(self, port: int, watermark: int) -> tuple[list[TimedBatch], int]:
        rows = self.held.release(watermark)
        if len(rows) == 0:
            return [], self._ahead(watermark)
        window = self._window_numbers(rows)
        level = self._levels(rows)
        order = np.lexsort((*self._places(rows), -level, window))
        kept = rows.chosen(order[self._kept(window[order], level[order])])
        return [TimedBatch(kept.batch, sequence=kept.sequence, counted=True)], self._ahead(watermark)

    def _ahead(self, watermark: int) -> int:
        """The output watermark: buffered rows leave with times that may be older than the input watermark."""
        own = self._own_times(self.held.rows())
        return min(watermark, int(own.min())) if len(own) else watermark

    def save(self) -> Mapping[str, StateTable]:
        return self.held.save()

    def load(self, tables: Mapping[str, pa.Table]) -> None:
        self.held.load(tables)

    def _places(self, rows: Rows) -> list[np.ndarray]:
        """Position of each row by time and tie order: of equal rows the earlier one is kept.

        Rows already in this order need no positions: the sort is stable.
        """
        order = replace(rows, times=self._own_times(rows)).order(self.sorter)
        if order is None:
            return []
        places = np.empty(len(rows), np.int64)
        places[order] = np.arange(len(rows))
        return [places]

    def _own_times(self, rows: Rows) -> np.ndarray:
        return ticks_of(rows.column(self.time.column), self.time.shift)

    @staticmethod
    def _window_numbers(rows: Rows) -> np.ndarray:
        """Number windows by end, then start."""
        starts, ends = (ticks_of(rows.column(name)) for name in ("window_start", "window_end"))
        order = np.lexsort((starts, ends))
        changes = np.diff(starts[order], prepend=starts[order][:1]) | np.diff(
            ends[order], prepend=ends[order][:1]
        )
        numbers = np.empty(len(order), np.int64)
        numbers[order] = np.cumsum(changes != 0)
        return numbers

    def _levels(self, rows: Rows) -> np.ndarray:
        """Rank values so that larger ranks higher and equal values share a rank: NaN highest, null lowest."""
        column = rows.column(self.by)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        rank = _arrow().rank(column, sort_keys="ascending", tiebreaker="min")
        level = rank.to_numpy().astype(np.int64)
        if pa.types.is_floating(column.type):
            nan = _arrow().is_nan(column).fill_null(False).to_numpy(zero_copy_only=False)
            level = np.where(nan, len(level) + 1, level)
        null = column.is_null().to_numpy(zero_copy_only=False)
        return np.where(null, 0, level)

    def _kept(self, window: np.ndarray, level: np.ndarray) -> np.ndarray:
        """Which rows, sorted by window and descending rank, are among the first k of their window."""
        index = np.arange(len(window))
        begins = np.diff(window, prepend=window[:1] - 1) != 0
        position = index - np.maximum.accumulate(np.where(begins, index, 0))
        if self.ties == "all":
            changes = begins | (np.diff(level, prepend=level[:1] + 1) != 0)
            position = position[np.maximum.accumulate(np.where(changes, index, 0))]
        return position < self.k
