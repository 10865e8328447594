"""Parallel aggregation: workers fold parts of batches on native threads, into tables of their own or into one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

from penstock.algorithms.batch_arguments import BatchArguments
from penstock.operators.pane_aggregate.lateness import part_of
from penstock.operators.pane_aggregate.one_table import OneTable, OneTableSharing
from penstock.operators.pane_aggregate.program import WindowProgram
from penstock.operators.pane_aggregate.tasks import Task, Tasks, cut
from penstock.operators.pane_aggregate.worker import Worker
from penstock.runtime.engine import Engine
from penstock.runtime.stage import TimedBatch
from penstock.runtime.threads import run_on_threads

# Fewer rows are computed in less time than it takes to pass them to another thread.
PREPARED_ROWS = 1 << 16


def prepared(program: WindowProgram, timed_batches: Sequence[TimedBatch], threads: int) -> list[TimedBatch]:
    """Add the columns that Arrow computes: for large batches by ranges of rows, on all threads."""
    if not program.prepares:
        return list(timed_batches)
    parts = [part for timed_batch in timed_batches for part in _ranges(timed_batch, threads)]
    found: list[TimedBatch] = list(parts)

    def work(place: int) -> None:
        part = parts[place]
        found[place] = replace(part, batch=program.prepare(part.batch, part.first_row))

    run_on_threads([partial(work, place) for place in range(len(parts))], threads)
    return found


def _ranges(timed_batch: TimedBatch, threads: int) -> Iterator[TimedBatch]:
    """Cut a batch into a range for each thread, if it is large."""
    rows = timed_batch.batch.num_rows
    count = min(threads, max(rows // PREPARED_ROWS, 1))
    if count == 1:
        yield timed_batch
        return
    bounds = [rows * place // count for place in range(count + 1)]
    for begin, end in pairwise(bounds):
        yield part_of(timed_batch, begin, end)


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


def fold_apart(
    workers: Sequence[Worker],
    timed_batches: Sequence[TimedBatch],
    given: Sequence[BatchArguments],
    engine: Engine,
) -> None:
    """Fold batches into a table for each worker."""
    program, threads = workers[0].program, len(workers)
    parts = -(-threads // max(len(timed_batches), 1))
    tasks = [
        task
        for timed_batch, own in zip(timed_batches, given, strict=True)
        for task in cut(timed_batch, own, parts, program, engine)
    ]
    if len(tasks) == 1:
        workers[0].fold(tasks[0])
    elif len(timed_batches) == 1:
        fold_in_parallel(workers, tasks)
    if any(task.shares.left for task in tasks):
        shared = Tasks.divided(tasks, threads)
        run_on_threads([work_of(worker, place, shared) for place, worker in enumerate(workers)])


def fold_into_one_table(
    worker: Worker,
    timed_batches: Sequence[TimedBatch],
    given: Sequence[BatchArguments],
    sharing: OneTableSharing,
    threads: int,
    engine: Engine,
) -> None:
    """Fold batches into one worker's table; what others hold is merged with it as windows are emitted."""
    size = engine.task_rows(worker.program.row_bytes or 1)
    for timed_batch, arguments in zip(timed_batches, given, strict=True):
        if timed_batch.batch.num_rows:
            OneTable(worker, timed_batch, arguments, sharing, threads, size).fold()
