"""Tasks: the units of work of a parallel fold, and their distribution over threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from penstock.algorithms.batch_arguments import BatchArguments
from penstock.algorithms.window_grid import WindowGrid
from penstock.loop.machine import Morsels
from penstock.operators.pane_aggregate.lateness import part_of
from penstock.operators.pane_aggregate.program import WindowProgram
from penstock.runtime.engine import MOST_TASK_ROWS, Engine
from penstock.runtime.stage import TimedBatch

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
