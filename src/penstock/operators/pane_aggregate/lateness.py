"""Late and partly late rows of windows on a grid of time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from penstock.algorithms.window_grid import WindowGrid
from penstock.operators.pane_aggregate.program import WindowProgram
from penstock.runtime.buffers import indices, ticks_of
from penstock.runtime.metrics import Metrics
from penstock.runtime.stage import START_OF_TIME, Stage, TimedBatch, Trace


@dataclass(frozen=True)
class PaneLateness:
    """Drop and count late rows, and find the rows that arrived after some of their windows were complete.

    `alone` makes the kernel's filter as a separate stage, if the kernel has one: a late row that the filter rejects
    counts as filtered.
    """

    windows: WindowGrid
    program: WindowProgram
    metrics: Metrics
    alone: Callable[[], Stage] | None

    def on_time(self, timed_batch: TimedBatch) -> TimedBatch:
        """Drop and count the rows whose windows were all complete at their arrival."""
        if timed_batch.arrival_watermarks is None:
            return timed_batch
        times = self.times(timed_batch.batch)
        late = (
            times < timed_batch.arrival_watermarks
            if self.program.strict
            else self.windows.late(times, timed_batch.arrival_watermarks)
        )
        if not late.any():
            return timed_batch
        passed = late if self._filter is None else _passed(timed_batch, late, self._filter)
        if not timed_batch.counted:
            self.metrics.late += int(passed.sum())
            self.metrics.filtered += int((late & ~passed).sum())
        return timed_batch.without(late, noted=passed)

    @cached_property
    def _filter(self) -> Stage | None:
        return None if self.alone is None else self.alone()

    def times(self, batch: pa.RecordBatch) -> np.ndarray:
        return ticks_of(batch.column(self.program.time.column), self.program.time.shift)

    def parts(self, timed_batch: TimedBatch, emitted: int) -> Iterator[tuple[TimedBatch, int]]:
        """Split before each row that arrived after one of its windows was newly complete.

        Yield each part with the last window to emit before it; `emitted` is the last one so far.
        """
        if timed_batch.arrival_watermarks is None or self.windows.grid.size <= self.windows.grid.every:
            yield timed_batch, START_OF_TIME
            return
        complete = self.windows.complete_at(timed_batch.arrival_watermarks)
        missed = self.windows.first_holding(self.times(timed_batch.batch)) <= complete
        partly = np.flatnonzero(missed)
        if len(partly) and not timed_batch.counted:
            passed = missed if self._filter is None else _passed(timed_batch, missed, self._filter)
            self.metrics.partly_late += int(np.count_nonzero(passed))
        begin, upto = 0, START_OF_TIME
        for row in partly:
            if complete[row] > max(emitted, upto):
                yield part_of(timed_batch, begin, int(row)), upto
                begin, upto = int(row), int(complete[row])
        yield part_of(timed_batch, begin, timed_batch.batch.num_rows), upto


def _passed(timed_batch: TimedBatch, late: np.ndarray, filter: Stage) -> np.ndarray:
    """Which of the late rows pass the filter; rejected rows count as filtered, as with a separate filter stage."""
    numbers = np.flatnonzero(late)
    passed = np.zeros_like(late)
    for part in filter.push(
        0, [TimedBatch(timed_batch.batch.take(indices(numbers)), trace=Trace(numbers, []))]
    ):
        assert part.trace is not None, "filters hand on which rows they were given"
        passed[part.trace.rows] = True
    return passed


def part_of(timed_batch: TimedBatch, begin: int, end: int) -> TimedBatch:
    """A range of rows, none of which is late."""
    batch = timed_batch.batch.slice(begin, end - begin)
    return TimedBatch(batch, None, timed_batch.first_row + begin, counted=timed_batch.counted)
