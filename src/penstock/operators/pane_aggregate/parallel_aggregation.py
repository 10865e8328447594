"""Parallel aggregation of one batch: several workers fold its parts on native threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.operators.pane_aggregate.tasks import Task, Tasks
from penstock.operators.pane_aggregate.worker import Worker


def fold_in_parallel(workers: Sequence[Worker], tasks: Sequence[Task]) -> None:
    """Fold one task per worker in parallel, until done or a kernel stops; remaining morsels are left for the caller.

    This thread does the Python part for all workers first: Python threads would serialise on the interpreter lock.
    Do nothing if the kernels differ or cannot run in parallel, or if each worker interns texts separately.
    """
    arguments = [task.arguments for task in tasks if task.arguments is not None]
    if not len(workers) == len(tasks) == len(arguments) > 1:
        return
    team = list(zip(workers, arguments, tasks, strict=True))
    made = [worker.kernel(given, task) for worker, given, task in team]
    call = made[0].call
    if any(other.call is not call for other in made):
        return
    found = call.together([kernel.frame for kernel in made], [task.shares for task in tasks])
    for (worker, given, task), progress in zip(team, found or (), strict=False):
        worker.progress(given, task, progress)


def work_of(worker: Worker, place: int, tasks: Tasks) -> Callable[[], None]:
    """What one thread does: fold tasks until none is left."""

    def run() -> None:
        while (task := tasks.next(place)) is not None:
            worker.fold(task)

    return run
