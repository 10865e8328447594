"""Tasks: the rows that a worker takes at a time, and who takes which."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import pairwise

from penstock.runtime.binding import BatchArguments
from penstock.runtime.flow import Flow


@dataclass(frozen=True, slots=True)
class Task:
    """Rows of a batch from `begin` up to `end`, and what the batch gives to kernels if all workers may share that."""

    flow: Flow
    begin: int
    end: int
    arguments: BatchArguments | None = None


def stretches(tasks: list[Task], threads: int) -> list[deque[Task]]:
    """Give each thread neighbouring tasks, so that on ordered data threads share few panes."""
    bounds = [len(tasks) * place // threads for place in range(threads + 1)]
    return [deque(tasks[begin:end]) for begin, end in pairwise(bounds)]


def next_task(place: int, queues: list[deque[Task]]) -> Task | None:
    """Take the next task of one's own stretch, else the last of the longest other one."""
    try:
        return queues[place].popleft()
    except IndexError:
        pass
    for queue in sorted(queues, key=len, reverse=True):
        try:
            return queue.pop()
        except IndexError:
            continue
    return None
