"""From batches to tasks: late and partly late rows, and the parts of batches that workers fold."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import pyarrow as pa

from penstock.algorithms.kernel_factory import BatchArguments
from penstock.algorithms.window_grid import WindowGrid
from penstock.loop.numbers import Morsels
from penstock.operators.pane_aggregate.program import WindowProgram
from penstock.runtime.buffers import indices, ticks_of
from penstock.runtime.engine import MOST_TASK_ROWS, Engine
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


MOST_PANES_AHEAD = 1 << 14


@dataclass(frozen=True, slots=True)
class Task:
    """Rows of a batch in morsels, and the batch's kernel arguments if several workers may share them and the task."""

    timed_batch: TimedBatch
    shares: Morsels
    arguments: BatchArguments | None = None


@dataclass(frozen=True, slots=True)
class Tasks:
    """A queue of neighbouring tasks for each thread, so that on ordered data threads share few panes; and started tasks."""

    waiting: list[deque[Task]]
    begun: list[Task]

    @classmethod
    def divided(cls, tasks: list[Task], threads: int) -> Tasks:
        bounds = [len(tasks) * place // threads for place in range(threads + 1)]
        return cls([deque(tasks[begin:end]) for begin, end in pairwise(bounds)], [])

    def next(self, place: int) -> Task | None:
        """Take the next task of the thread's queue, else the last of the longest other queue, else a started task."""
        task = self._waiting(place)
        if task is None:
            return max((begun for begun in self.begun if begun.shares.left), key=_left, default=None)
        if task.arguments is not None:
            self.begun.append(task)
        return task

    def _waiting(self, place: int) -> Task | None:
        try:
            return self.waiting[place].popleft()
        except IndexError:
            pass
        for queue in sorted(self.waiting, key=len, reverse=True):
            try:
                return queue.pop()
            except IndexError:
                continue
        return None


def _left(task: Task) -> int:
    return task.shares.left


def cut(
    timed_batch: TimedBatch, given: BatchArguments, parts: int, program: WindowProgram, engine: Engine
) -> Iterable[Task]:
    """Cut a batch into tasks: parts of one batch, or slices whose texts each worker interns separately."""
    rows = timed_batch.batch.num_rows
    row_bytes = program.row_bytes or max(timed_batch.batch.nbytes // max(rows, 1), 1)
    if program.interned or rows > MOST_TASK_ROWS:
        for begin, end in engine.slices(rows, row_bytes):
            yield Task(part_of(timed_batch, begin, end), Morsels(0, end - begin, end - begin))
        return
    size = engine.task_rows(row_bytes)
    for part in range(parts):
        yield Task(timed_batch, Morsels(rows * part // parts, rows * (part + 1) // parts, size), given)


def expected_panes(
    program: WindowProgram, windows: WindowGrid, given: Sequence[BatchArguments], rows: int
) -> int:
    """Estimate the number of panes from the first and the last row; unused slots are never touched."""
    time, width = program.time, program.grid.every // windows.step
    if time.period is not None:
        span = rows * time.period
    elif rows and given[0].batch.num_rows and given[-1].batch.num_rows:
        span = abs(given[-1].ends(time.column)[1] - given[0].ends(time.column)[0])
    else:
        return 2
    return int(min(span // width + 2, MOST_PANES_AHEAD))
