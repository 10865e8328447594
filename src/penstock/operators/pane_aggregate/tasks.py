"""Tasks: the units of work of a parallel fold, and their distribution over threads."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import pairwise

from penstock.algorithms.batch_arguments import BatchArguments
from penstock.loop.morsels import Morsels
from penstock.runtime.stage import TimedBatch


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
            return max((each for each in self.begun if each.shares.left), key=_left, default=None)
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
