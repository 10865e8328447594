"""Workers that fold the parts of one batch at the same time, on native threads."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.runtime.tasks import Task
from penstock.runtime.worker import Worker


def fold_in_parallel(workers: Sequence[Worker], tasks: Sequence[Task]) -> None:
    """Fold tasks of one batch, one for each worker, until a kernel needs help; shares that are left are for whoever comes next.

    What Python has to do for all of them is done first, by this thread: threads of Python would do it in turns, each waiting for
    the interpreter that another holds. Nothing is done where kernels cannot, or where each worker numbers texts of its own.
    """
    arguments = [task.arguments for task in tasks if task.arguments is not None]
    if not len(workers) == len(tasks) == len(arguments) > 1:
        return
    team = list(zip(workers, arguments, tasks, strict=True))
    made = [worker.kernel(given, task) for worker, given, task in team]
    call = made[0].call
    if any(other.call is not call for other in made):
        return
    found = call.together([each.frame for each in made], [task.shares for task in tasks])
    for (worker, given, task), went in zip(team, found or (), strict=False):
        worker.went(given, task, went)
