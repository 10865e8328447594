"""Fold batches on all threads: into a table per worker, or into one table of all workers (Grizzly, section 6.2.3).

    partitioned   each thread reads all rows and adds those of the keys that it owns: no cell has two writers
    shared        each thread adds part of the rows, by atomic operations

No thread takes a pane or a key for itself: kernels stop where one is missing. All threads have returned before this
module changes the table, adds a few rows alone, and starts them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Literal

import numpy as np

from penstock.algorithms.hash_table.keys import DenseKeys
from penstock.algorithms.kernel_factory import BatchArguments
from penstock.loop.abi import ACCEPTED, ERRORS, FILTERED, NEED_WIDE, STATUS, WORDS, positions_table
from penstock.loop.numbers import Morsels
from penstock.operators.pane_aggregate.merge_tables import variant_of
from penstock.operators.pane_aggregate.program import WindowProgram
from penstock.operators.pane_aggregate.table import PaneTable
from penstock.operators.pane_aggregate.tasks import Task, Tasks, cut, part_of
from penstock.operators.pane_aggregate.worker import Worker
from penstock.physical.nodes import Sharing
from penstock.runtime.engine import Engine
from penstock.runtime.kernels import BoundKernel
from penstock.runtime.stage import KernelOverflowError, TimedBatch
from penstock.runtime.threads import run_on_threads

OneTableSharing = Literal["partitioned", "shared"]
ROWS_ADDED_ALONE = 1 << 13  # rows that are added alone where a kernel stopped: a chunk
_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1


@dataclass
class TablePart:
    """The work of one thread: rows `at` … `end`, of the keys that it owns."""

    at: int
    end: int
    own: dict[str, int] = field(default_factory=dict)
    head: np.ndarray = field(default_factory=lambda: np.zeros(WORDS, np.int64))

    @property
    def left(self) -> bool:
        return self.at < self.end


def partitions(keys: DenseKeys, rows: int, shares: Sequence[float]) -> list[TablePart]:
    """Divide keys into ranges of words, of these shares of all words; the outer ones are open, for keys to come.

    >>> [part.own["own_low"] for part in partitions(DenseKeys((0,), (101,)), 1, (0.5, 0.5))][1]
    50
    """
    place = int(np.argmax(keys.sizes))
    base, words = keys.bases[place], keys.sizes[place] - 1
    cuts = [base + int(words * sum(shares[:number])) for number in range(1, len(shares))]
    lows, highs = [_LOWEST, *cuts], [*(cut - 1 for cut in cuts), _HIGHEST]
    return [
        TablePart(0, rows, {"own_key": place, "own_low": low, "own_high": high})
        for low, high in zip(lows, highs, strict=True)
    ]


def row_parts(rows: int, threads: int) -> list[TablePart]:
    """Divide rows among threads."""
    return [TablePart(rows * place // threads, rows * (place + 1) // threads) for place in range(threads)]


class OneTable:
    """One batch on its way into the table of `worker`."""

    def __init__(
        self,
        worker: Worker,
        timed_batch: TimedBatch,
        arguments: BatchArguments,
        sharing: OneTableSharing,
        threads: int,
        morsel: int,
    ) -> None:
        self.worker, self.timed_batch, self.arguments, self.sharing = worker, timed_batch, arguments, sharing
        self.morsel, self.rows = morsel, timed_batch.batch.num_rows
        keys = self._table().keys
        assert isinstance(keys, DenseKeys)
        even = [1 / threads] * threads
        self.parts = (
            partitions(keys, self.rows, even) if sharing == "partitioned" else row_parts(self.rows, threads)
        )

    def fold(self) -> None:
        """Add all rows; count them in the table's head."""
        head = self._table().head
        before = int(head[ACCEPTED]), int(head[FILTERED])
        while any(part.left for part in self.parts):
            if self._may_go_together():
                self._together([part for part in self.parts if part.left])
            else:
                for part in self.parts:
                    self._alone(part, part.end)
        self.worker.rows += self.rows
        self._count(self._table(), *before)

    def _table(self) -> PaneTable:
        if self.worker.table is None:
            self.worker.table = self.worker.begin(self.arguments)
        return self.worker.table

    def _may_go_together(self) -> bool:
        """Whether threads can find all keys without adding one, and sums fit an atomic operation."""
        table = self._table()
        return isinstance(table.keys, DenseKeys) and not (self.sharing == "shared" and holds_wide(table))

    def _bound(self, sharing: Sharing, part: TablePart, **other: object) -> BoundKernel:
        table, worker = self._table(), self.worker
        runs = worker.runs and sharing != "shared"
        seen = variant_of(worker.nullable, table, worker.order, sharing, runs)
        kernel = worker.program.variants.get(seen).fold
        rows = {**self.arguments.fill(kernel.bindings), "first_row": self.timed_batch.first_row}
        given = {**rows, **table.arguments(), "positions": positions_table(), **part.own, **other}
        return BoundKernel.of(kernel.call, given)

    def _together(self, parts: Sequence[TablePart]) -> None:
        """Let all threads go on until they are done, or one stops; then add a few rows where they stopped."""
        # Without room for panes, a kernel stops instead of adding one.
        bound = [self._bound(self.sharing, part, head=part.head, pane_capacity=0) for part in parts]
        shares = [Morsels(part.at, part.end, self.morsel) for part in parts]
        found = bound[0].call.apart([kernel.frame for kernel in bound], shares)
        for part, own, progress in zip(parts, shares, found, strict=True):
            done = own.begin + own.taken[0] * own.size
            part.at = min(done, own.end) if progress.stop is None else progress.stop[0]
        for part, progress in zip(parts, found, strict=True):
            if progress.stop is not None:
                self._resolve(part)

    def _resolve(self, part: TablePart) -> None:
        if self.sharing == "shared" and part.head[STATUS] == NEED_WIDE and not self._table().wide:
            why = "a sum came near 64 bits, or a value is too large"
            self.worker.give_way("key table shared", "shared", "private", why)
            self.worker.sharing = "private"
        self._alone(part, min(part.at + ROWS_ADDED_ALONE, part.end))

    def _alone(self, part: TablePart, end: int) -> None:
        """Add rows up to `end` while no other thread runs, with all that a kernel may need."""
        sharing: Sharing = "partitioned" if part.own else "private"
        while part.at < end:
            bound = self._bound(sharing, part)
            stop = bound.over(Morsels(part.at, end, end - part.at)).stop
            part.at = end if stop is None else stop[0]
            self.worker.make_room(self.arguments)

    def _count(self, table: PaneTable, accepted: int, filtered: int) -> None:
        """Count each row once: a kernel that adds some keys alone has counted the others as filtered."""
        if table.head[ERRORS] or any(part.head[ERRORS] for part in self.parts):
            raise KernelOverflowError
        added = int(table.head[ACCEPTED]) - accepted + sum(int(part.head[ACCEPTED]) for part in self.parts)
        table.head[ACCEPTED], table.head[FILTERED] = accepted + added, filtered + self.rows - added


def holds_wide(table: PaneTable) -> bool:
    """Whether a state of the table has 128 bits."""
    return any(spec.type.bits > 64 for spec in table.specs)


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
    for place, (timed_batch, arguments) in enumerate(zip(timed_batches, given, strict=True)):
        if worker.table is None:
            worker.table = worker.begin(arguments)
        if not isinstance(worker.table.keys, DenseKeys):  # an earlier batch had keys far apart
            fold_apart([worker], timed_batches[place:], given[place:], engine)
            return
        if timed_batch.batch.num_rows:
            OneTable(worker, timed_batch, arguments, sharing, threads, size).fold()
