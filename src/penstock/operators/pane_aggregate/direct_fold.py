"""Fold small batches without tasks into the first worker's table, by a kernel bound to that table once."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from penstock.algorithms.kernel_factory import BatchArguments
from penstock.errors import OverflowError
from penstock.loop.abi import ACCEPTED, ERRORS, FILTERED, positions_table
from penstock.loop.numbers import Morsels, Progress
from penstock.operators.pane_aggregate.program import WindowProgram
from penstock.operators.pane_aggregate.table import PaneTable
from penstock.operators.pane_aggregate.tasks import PaneLateness, Task
from penstock.operators.pane_aggregate.worker import Worker
from penstock.runtime.adapt.controller import Controller
from penstock.runtime.buffers import ColumnAddresses, ColumnLayout
from penstock.runtime.engine import DEFAULT_TASK_BYTES, MOST_TASK_ROWS, Engine
from penstock.runtime.metrics import Metrics
from penstock.runtime.ring import LoopCall
from penstock.runtime.stage import START_OF_TIME, TimedBatch, within_reach


class BoundFold:
    """The fold kernel of a worker's table, for batches of one layout without nulls.

    It holds the arrays whose addresses it was bound to. Every change of a table replaces one of them, so to compare
    them shows whether it still fits: no notification is needed.
    """

    __slots__ = (
        "_bound",
        "_call",
        "_columns",
        "_first_row",
        "_frame",
        "_hi",
        "_layout",
        "_loop",
        "_nullable",
        "_order",
        "_runs",
    )

    def __init__(self, worker: Worker, table: PaneTable, layout: ColumnLayout) -> None:
        kernel = worker.fold_kernel(table)
        self._call, self._layout = kernel.call, layout
        self._nullable, self._order, self._runs = worker.nullable, worker.order, worker.runs
        self._bound = _bound_to(table)
        self._loop: LoopCall | None = None
        names = tuple(binding.column for binding in kernel.bindings)
        plain = all(binding.role == "values" for binding in kernel.bindings)
        places = layout.places(names) if plain else None
        unset = {binding.parameter: 0 for binding in kernel.bindings}
        limits = {"lo": 0, "hi": 0, "first_row": 0}
        given = {**unset, **limits, **table.arguments(), "positions": positions_table()}
        self._frame = None if places is None else kernel.call.standing(given)
        if self._frame is None or places is None:
            return
        at = self._frame.places
        self._hi, self._first_row = at["hi"], at["first_row"]
        self._columns = [
            (at[binding.parameter], place) for binding, place in zip(kernel.bindings, places, strict=True)
        ]

    def fits(self, worker: Worker, table: PaneTable, layout: ColumnLayout) -> bool:
        """Whether the kernel is bound to this table as it is now, and to this layout."""
        head, states, panes, buckets, keys, key_buckets = self._bound
        return (
            states is table.states
            and panes is table.panes
            and buckets is table.pane_buckets
            and keys is table.keys
            and key_buckets is getattr(keys, "buckets", None)
            and head is table.head
            and layout is self._layout
            and self._nullable is worker.nullable
            and self._order is worker.order
            and self._runs is worker.runs
        )

    def loop_call(self, table: PaneTable) -> LoopCall | None:
        """What the native loop changes between two batches; None if a column is not numbers."""
        frame = self._frame
        if frame is None:
            return None
        if self._loop is None:
            self._loop = LoopCall(
                self._call, frame.start, self._columns, self._hi, self._first_row, table.head
            )
        return self._loop

    def fold(self, columns: ColumnAddresses, rows: int, first_row: int) -> int:
        """Fold all rows of a batch; return the row before which the kernel stopped.

        -1: a column holds nulls, or is not numbers.
        """
        frame = self._frame
        if frame is None or columns.hold_nulls:
            return -1
        words, source = frame.words, columns.words
        for here, there in self._columns:
            words[here] = source[there]
        words[self._hi], words[self._first_row] = rows, first_row
        return self._call.run(frame.start)


def _bound_to(table: PaneTable) -> tuple[object, ...]:
    keys = table.keys
    return (
        table.head,
        table.states,
        table.panes,
        table.pane_buckets,
        keys,
        getattr(keys, "buckets", None),
    )


# Below this many rows, a second thread's table and its merge cost more than the thread saves.
ROWS_PER_THREAD = 1 << 17
# Windows of so many keys may wait for others, to be emitted together.
GATHERED_COLUMNS = 1 << 13


class DirectFold:
    """The workers of an aggregation, and the fold of batches that need no second thread."""

    def __init__(
        self,
        program: WindowProgram,
        engine: Engine,
        metrics: Metrics,
        lateness: PaneLateness,
        controller: Controller,
    ) -> None:
        self.program, self.engine, self.metrics = program, engine, metrics
        self.lateness, self.controller = lateness, controller
        nullable = frozenset() if engine.adaptive else frozenset(program.columns)
        self.workers = [Worker(program, nullable, engine.adaptive, controller.give_way, engine.assume)]
        self.emitted = START_OF_TIME
        self._unsensed = 0  # rows folded since a task was last measured
        # The last emitted window, the end of the next one, and the earliest time of its results.
        self._waits = START_OF_TIME, START_OF_TIME, START_OF_TIME
        self._bound: BoundFold | None = None

    def _folds_directly(self, timed_batch: TimedBatch) -> bool:
        """Fold a batch whose columns the source has read, of which no row is late, into the first worker's table.

        Return whether it did. It does nothing for the first batch, for columns that are not numbers or hold nulls, and
        where several threads are worthwhile.
        """
        columns, worker = timed_batch.addresses, self.workers[0]
        table = worker.table
        if columns is None or table is None or timed_batch.arrival_watermarks is not None:
            return False
        rows = timed_batch.batch.num_rows
        if rows > self._most_directly or self._unsensed > self._sensed_every:
            return False
        bound = self._bound_fold(worker, table, columns.layout)
        worker.expected = rows
        reached = bound.fold(columns, rows, timed_batch.first_row)
        if reached < 0:
            return False
        if reached < rows or table.head[ERRORS]:
            self._go_on(timed_batch, worker, reached)
            table = worker.table or table
        else:
            worker.rows += rows
        self._unsensed += rows
        self._count_of(table.head, timed_batch.counted)
        return True

    def _bound_fold(self, worker: Worker, table: PaneTable, layout: ColumnLayout) -> BoundFold:
        bound = self._bound
        if bound is None or not bound.fits(worker, table, layout):
            bound = self._bound = BoundFold(worker, table, layout)
        return bound

    # -- the native loop of a run in the background (`runtime/ring.py`) ---------------------------------

    loop_results = False

    @property
    def loop_gathers(self) -> bool:
        """Windows of many keys cost far more than a call, and their panes would leave the cache."""
        table = self.workers[0].table
        return table is not None and table.keys.columns <= GATHERED_COLUMNS

    @property
    def loop_most(self) -> int:
        """Larger batches are folded on all threads."""
        return self._most_directly

    def loop_call(self, layout: ColumnLayout, room: int) -> LoopCall | None:
        """Bind the fold to the first worker's table."""
        worker = self.workers[0]
        if worker.table is None or self._small_tasks:
            return None
        return self._bound_fold(worker, worker.table, layout).loop_call(worker.table)

    def loop_limits(self) -> tuple[int, int]:
        """The end of the next window, and the rows until a task is measured."""
        emitted, next_end, _ = self._waits
        until = next_end if emitted == self.emitted else START_OF_TIME
        return until, self._sensed_every - self._unsensed

    def loop_done(self, rows: int, made: int) -> list[TimedBatch]:
        """Count rows that the loop folded."""
        worker = self.workers[0]
        worker.rows += rows
        self._unsensed += rows
        if worker.table is not None:
            self._count_of(worker.table.head, counted=False)
        return []

    def loop_stopped(self, timed_batch: TimedBatch, reached: int) -> None:
        """Make room for a kernel that stopped, and finish its batch."""
        worker = self.workers[0]
        rows = worker.expected = timed_batch.batch.num_rows
        self._go_on(timed_batch, worker, reached)
        self._unsensed += rows
        if worker.table is not None:
            self._count_of(worker.table.head, timed_batch.counted)

    def _go_on(self, timed_batch: TimedBatch, worker: Worker, reached: int) -> None:
        """Finish a batch whose kernel stopped."""
        rows = timed_batch.batch.num_rows
        given = BatchArguments(timed_batch.batch, {})
        task = Task(timed_batch, Morsels(0, rows, rows), given)
        try:
            worker.progress(given, task, Progress(rows, (reached, rows)))
        except OverflowError:
            self._check_reach([timed_batch])
            raise

    def _check_reach(self, timed_batches: list[TimedBatch]) -> None:
        """Raise the specific error when panes, not sums, exceed 64 bits: kernels report both alike."""
        if self.program.time.period is None:
            grid = self.program.grid
            reach = grid.size + grid.every + abs(grid.offset)
            for timed_batch in timed_batches:
                within_reach(self.lateness.times(timed_batch.batch), reach, reach)

    @cached_property
    def _most_directly(self) -> int:
        """The most rows of a batch that one thread folds without further thought."""
        if self._small_tasks:
            return 0
        return MOST_TASK_ROWS if self.engine.workers == 1 else 2 * ROWS_PER_THREAD - 1

    @cached_property
    def _sensed_every(self) -> int:
        """The rows that are folded directly between two tasks that are measured."""
        policy = self.controller.policy
        return 4 * policy.task if self.engine.adaptive else MOST_TASK_ROWS << 30

    @property
    def _small_tasks(self) -> bool:
        """Whether tasks are smaller than is efficient; tests set this to run threads on little data."""
        return self.engine.task_bytes < DEFAULT_TASK_BYTES

    def _count_of(self, head: np.ndarray, counted: bool) -> int:
        accepted = int(head[ACCEPTED])
        if not counted:
            self.metrics.accepted += accepted
            self.metrics.filtered += int(head[FILTERED])
        head[ACCEPTED] = head[FILTERED] = 0
        return accepted
