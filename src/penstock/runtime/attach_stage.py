"""Aggregates beside the rows they cover: every row, once for each window that holds it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from penstock.runtime.buffers import flags, indices, ticks_of
from penstock.runtime.flow import FOREVER, NEVER, Flow
from penstock.runtime.indexer import Indexer
from penstock.runtime.window_stage import WindowStage


class AttachStage:
    """Holds rows beside a windowed aggregation, and joins them with its results as windows complete.

    Both sides number (window, keys) with one indexer, so a row finds its result by array look-up.
    """

    def __init__(
        self, stage: WindowStage, schema: pa.Schema, keys: Sequence[str], new_index: Callable[[int], Indexer]
    ) -> None:
        self.stage, self.schema, self.keys, self.new_index = stage, schema, list(keys), new_index
        self.rows = schema.empty_table()
        self.complete = np.zeros(0, np.int64)  # for each row, the last window complete when it came

    def push(self, port: int, flows: list[Flow]) -> list[Flow]:
        kept = [self.stage.on_time(flow) for flow in flows]
        for flow in kept:
            self.rows = pa.concat_tables([self.rows, pa.Table.from_batches([flow.batch])])
            self.complete = np.concatenate([self.complete, self._complete(flow)])
        before = self.stage.emitted
        return self._matched(self.stage.push(port, kept), before)

    def advance(self, port: int, watermark: int) -> tuple[list[Flow], int]:
        before = self.stage.emitted
        results, ahead = self.stage.advance(port, watermark)
        return self._matched(results, before), self._behind(ahead)

    def _complete(self, flow: Flow) -> np.ndarray:
        if flow.frontier is None:
            return np.full(flow.batch.num_rows, NEVER)
        return self.stage.windows.complete_at(flow.frontier)

    def _matched(self, results: list[Flow], before: int) -> list[Flow]:
        if self.stage.emitted == before:
            return []
        joined = self._join(self.rows.combine_chunks(), results, before) if results else []
        self._forget()
        return joined

    def _behind(self, watermark: int) -> int:
        """A row's own time may lie a whole window before the end of its window."""
        return watermark if watermark in (NEVER, FOREVER) else watermark - self.stage.windows.grid.size

    def _join(self, rows: pa.Table, results: list[Flow], after: int) -> list[Flow]:
        found = pa.Table.from_batches([flow.batch for flow in results]).combine_chunks()
        row, window = self._pairs(rows, after)
        index = self.new_index(len(self.keys) + 1)
        width = self.stage.windows.grid
        ends = ticks_of(found.column("window_end").combine_chunks())
        number = (ends - width.offset - width.size) // width.every if not self.stage.carried else ends - 1
        self._number(index, number, found, None)
        place = self._number(index, window, rows, row)
        added = found.drop_columns([name for name in self.keys if name in found.schema.names])
        taken = rows.take(indices(row))
        for name in added.schema.names:
            if name not in taken.schema.names:
                taken = taken.append_column(added.schema.field(name), added.column(name).take(indices(place)))
        return [Flow(batch) for batch in taken.combine_chunks().to_batches()]

    def _number(
        self, index: Indexer, window: np.ndarray, table: pa.Table, rows: np.ndarray | None
    ) -> np.ndarray:
        columns = [table.column(name).combine_chunks() for name in self.keys]
        if rows is not None:
            columns = [column.take(indices(rows)) for column in columns]
        return index.number([indices(window), *columns])

    def _pairs(self, rows: pa.Table, after: int) -> tuple[np.ndarray, np.ndarray]:
        """Every (row, window) such that the window holds the row and has just completed, by window."""
        windows, upto = self.stage.windows, self.stage.emitted
        times = self._times(rows)
        last = windows.last_holding(times)
        overlap = -(-windows.grid.size // windows.grid.every)
        pairs_row, pairs_window = [], []
        for back in range(overlap):
            window = last - back
            start = windows.grid.offset + window * windows.grid.every
            good = (
                (times < start + windows.grid.size)
                & (window <= upto)
                & (window > np.maximum(after, self.complete))
            )
            pairs_row.append(np.flatnonzero(good))
            pairs_window.append(window[good])
        row, window = np.concatenate(pairs_row), np.concatenate(pairs_window)
        order = np.lexsort((row, window))
        return row[order], window[order]

    def _times(self, rows: pa.Table) -> np.ndarray:
        time = self.stage.program.time
        return ticks_of(rows.column(time.column).combine_chunks()) + time.shift

    def _forget(self) -> None:
        waiting = self.stage.windows.last_holding(self._times(self.rows)) > self.stage.emitted
        self.rows = self.rows.filter(flags(waiting)).combine_chunks()
        self.complete = self.complete[waiting]
