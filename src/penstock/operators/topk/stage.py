"""The top-k stage: the first k rows of each window by a column."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.algorithms.kernel_factory import KernelFactory
from penstock.algorithms.sort.sorting import Sorter
from penstock.algorithms.sorted_partitions.build import sorter
from penstock.algorithms.sorted_partitions.rows import HeldRows, Rows
from penstock.physical import nodes as ph
from penstock.runtime.buffers import ticks_of
from penstock.runtime.session import Context
from penstock.runtime.stage import TimedBatch
from penstock.state.state_table import StateTable
from penstock.types.time import Time
from penstock.types.windows import WINDOW_BOUNDS


def _arrow() -> Any:
    """Import Arrow's compute functions on first use: loading takes 50 ms, and only this stage needs them."""
    import pyarrow.compute  # noqa: PLC0415

    return pyarrow.compute


RANKED_ROWS = 256
"""Windows with fewer rows, on average, are sorted whole: a selection in each would cost more than it leaves out."""


def _near_the_top(column: pa.Array, window: np.ndarray, k: int) -> np.ndarray | None:
    """Select the rows that are no smaller than the k-th largest of their window; None where a sort finds them as well.

    Selection takes time linear in the rows, and leaves few to be ranked and sorted. Rows of a window must be
    contiguous, and values be numbers without null and NaN.
    """
    number = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    cuts = np.flatnonzero(np.diff(window)) + 1
    if not number or column.null_count or bool((np.diff(window) < 0).any()):
        return None
    if (len(cuts) + 1) * max(RANKED_ROWS, 4 * k) > len(window):
        return None
    values = column.to_numpy(zero_copy_only=False)
    if values.dtype.kind == "f" and bool(np.isnan(values).any()):
        return None
    found = []
    for low, high in pairwise([0, *cuts.tolist(), len(values)]):
        rows = values[low:high]
        least = rows.max() if k == 1 else np.partition(rows, max(len(rows) - k, 0))[max(len(rows) - k, 0)]
        found.append(np.flatnonzero(rows >= least) + low)
    return np.concatenate(found)


@dataclass
class TopKStage:
    """Keep the k largest rows of each window; emit them when the window is complete."""

    held: HeldRows
    k: int
    by: str
    ties: str
    time: Time
    sorter: Sorter

    def push(self, port: int, timed_batches: list[TimedBatch]) -> list[TimedBatch]:
        self.held.add(timed_batches)
        return []

    def advance(self, port: int, watermark: int) -> tuple[list[TimedBatch], int]:
        rows = self.held.release(watermark)
        if len(rows) == 0:
            return [], self._ahead(watermark)
        window = self._window_numbers(rows)
        near = _near_the_top(rows.column(self.by), window, self.k)
        if near is not None:
            rows, window = rows.chosen(near), window[near]
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


def top_k(
    op: ph.TopK, node: ph.Node, given: ph.Node, kernel_factory: KernelFactory
) -> Callable[[Context], TopKStage]:
    """Return the constructor of a `TopK` stage, which releases rows at the end of their window."""
    time, sort = node.clock, sorter(kernel_factory)
    ends = Time(WINDOW_BOUNDS[1], time.type, time.unit, shift=-1)
    return lambda context: TopKStage(
        HeldRows(given.schema, ends, context.metrics), op.k, op.by, op.ties, time, sort
    )
