"""Stages that hold rows until time has passed them: distinct and top-k."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.loop.abi import numbered
from penstock.runtime.buffers import flags, indices, ticks_of
from penstock.runtime.flow import FOREVER, NEVER, Flow
from penstock.runtime.indexer import Indexer
from penstock.runtime.lanes.ranks import plain
from penstock.runtime.lanes.sorting import Sorter
from penstock.runtime.metrics import Metrics
from penstock.runtime.state.kept import Kept, array_of, integers, marked, marks
from penstock.runtime.state.rows import in_order, kept_rows, rows_of
from penstock.runtime.ties import NO_TIES, Ties
from penstock.types.time import Time


class Held:
    """Rows waiting for the watermark, in order of arrival. Late ones are dropped and counted."""

    def __init__(self, schema: pa.Schema, time: Time, counted: Metrics | None) -> None:
        self.rows, self.ties = schema.empty_table(), NO_TIES
        self.time, self.counted = time, counted
        self.watermark = NEVER

    def add(self, flows: list[Flow]) -> None:
        on_time = [self._on_time(flow) for flow in flows]
        self.rows = pa.concat_tables([self.rows, *(pa.Table.from_batches([flow.batch]) for flow in on_time)])
        self.ties = self.ties.followed_by(on_time)

    def _on_time(self, flow: Flow) -> Flow:
        if flow.frontier is not None:
            late = self.times(flow.batch.column(self.time.column)) < flow.frontier
            flow = flow.without(late)
            if self.counted is not None:
                self.counted.late += int(late.sum())
        if self.counted is not None:
            self.counted.accepted += flow.batch.num_rows
        return flow

    def times(self, column: pa.Array | pa.ChunkedArray) -> np.ndarray:
        whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        return ticks_of(whole, self.time.shift)

    def release(self, watermark: int) -> tuple[pa.Table, Ties]:
        """Take out the rows before the watermark."""
        self.watermark = max(self.watermark, watermark)
        if self.watermark == FOREVER:
            passed, ties = self.rows, self.ties
            self.rows, self.ties = self.rows.slice(0, 0), NO_TIES
            return passed.combine_chunks(), ties
        passed_by = self.times(self.rows.column(self.time.column)) < self.watermark
        passed, ties = self.rows.filter(flags(passed_by)), self.ties.chosen(np.flatnonzero(passed_by))
        self.rows, self.ties = (
            self.rows.filter(flags(~passed_by)),
            self.ties.chosen(np.flatnonzero(~passed_by)),
        )
        return passed.combine_chunks(), ties

    def save(self, keys: Sequence[str] = ()) -> dict[str, Kept]:
        """Keep the rows that wait, `keys` telling them apart."""
        times = self.times(self.rows.column(self.time.column))
        beside = {"branch": indices(self.ties.branch)}
        if self.ties.sequence is not None:
            beside["sequence"] = plain(self.ties.sequence)
        return {"marks": marks(watermark=self.watermark), "rows": kept_rows(self.rows, times, keys, **beside)}

    def load(self, tables: Mapping[str, pa.Table]) -> None:
        self.watermark = marked(tables["marks"])["watermark"]
        if "rows" in tables:
            rows = in_order(tables["rows"])
            self.rows = pa.Table.from_batches([rows_of(rows, self.rows.schema)])
            sequence = array_of(rows, "sequence") if "sequence" in rows.column_names else None
            self.ties = Ties(sequence, integers(rows, "branch"))


def _arrow() -> Any:
    """Arrow's functions, which take 50 ms to load: only the stages here need them."""
    import pyarrow.compute  # noqa: PLC0415

    return pyarrow.compute


class DistinctStage:
    """One row for each value of the subset: the first in time order, or the last once input has ended."""

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

    def push(self, port: int, flows: list[Flow]) -> list[Flow]:
        self.held.add(flows)
        return []

    def advance(self, port: int, watermark: int) -> tuple[list[Flow], int]:
        if self.keep == "last" and watermark != FOREVER:
            return [], NEVER
        rows, ties = self.held.release(watermark)
        if rows.num_rows == 0:
            return [], watermark
        order = self._order(rows, ties)
        known = len(self.seen)
        arrays = [rows.column(name).combine_chunks() for name in self.subset]
        numbers = self.seen.number([array.take(indices(order)) for array in arrays])
        found, first = np.unique(numbers, return_index=True)
        kept = np.sort(order[first[found >= known]])
        return ties.chosen(kept).flows(rows.take(indices(kept))), watermark

    def save(self) -> Mapping[str, Kept]:
        """Keep the rows that wait, and the values that have been given."""
        types = [self.held.rows.schema.field(name).type for name in self.subset]
        names = tuple(numbered("key", place) for place in range(len(types)))
        seen = pa.Table.from_arrays(self.seen.values(types), names=list(names))
        return {**self.held.save(self.subset), "seen": Kept(seen, names)}

    def load(self, tables: Mapping[str, pa.Table]) -> None:
        self.held.load(tables)
        if "seen" in tables:
            self.seen.number([array_of(tables["seen"], name) for name in tables["seen"].column_names])

    def _order(self, rows: pa.Table, ties: Ties) -> np.ndarray:
        order = ties.order(self.held.times(rows.column(self.held.time.column)), self.sorter)
        return order if self.keep == "first" else order[::-1]


@dataclass
class TopStage:
    """The k largest rows of each window, released when the window is complete."""

    held: Held
    k: int
    by: str
    ties: str
    time: Time
    sorter: Sorter

    def push(self, port: int, flows: list[Flow]) -> list[Flow]:
        self.held.add(flows)
        return []

    def advance(self, port: int, watermark: int) -> tuple[list[Flow], int]:
        rows, ties = self.held.release(watermark)
        if rows.num_rows == 0:
            return [], watermark
        window = self._window_numbers(rows)
        level = self._levels(rows)
        order = np.lexsort((*self._places(rows, ties), -level, window))
        chosen = order[self._kept(window[order], level[order])]
        return ties.chosen(chosen).flows(rows.take(indices(chosen)), apart=False), watermark

    def save(self) -> Mapping[str, Kept]:
        return self.held.save()

    def load(self, tables: Mapping[str, pa.Table]) -> None:
        self.held.load(tables)

    def _places(self, rows: pa.Table, ties: Ties) -> list[np.ndarray]:
        """Number the rows by their own time, and what orders those of one time: of equal ones the earlier is kept.

        Rows that stand in this order need no numbers: sorting is stable.
        """
        own = ticks_of(rows.column(self.time.column).combine_chunks(), self.time.shift)
        if ties.are_none and self.sorter.in_order(own):
            return []
        places = np.empty(len(own), np.int64)
        places[ties.order(own, self.sorter)] = np.arange(len(own))
        return [places]

    @staticmethod
    def _window_numbers(rows: pa.Table) -> np.ndarray:
        """Number windows by end, then start."""
        starts, ends = (
            ticks_of(rows.column(name).combine_chunks()) for name in ("window_start", "window_end")
        )
        order = np.lexsort((starts, ends))
        changes = np.diff(starts[order], prepend=starts[order][:1]) | np.diff(
            ends[order], prepend=ends[order][:1]
        )
        numbers = np.empty(len(order), np.int64)
        numbers[order] = np.cumsum(changes != 0)
        return numbers

    def _levels(self, rows: pa.Table) -> np.ndarray:
        """Rank values so that larger is higher and equal values are level: NaN on top, null at the bottom."""
        column = rows.column(self.by).combine_chunks()
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
        """Which rows, sorted by window and falling level, are among the first k of their window."""
        index = np.arange(len(window))
        begins = np.diff(window, prepend=window[:1] - 1) != 0
        position = index - np.maximum.accumulate(np.where(begins, index, 0))
        if self.ties == "all":
            changes = begins | (np.diff(level, prepend=level[:1] + 1) != 0)
            position = position[np.maximum.accumulate(np.where(changes, index, 0))]
        return position < self.k
