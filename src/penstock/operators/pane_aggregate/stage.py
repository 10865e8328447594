"""The windowed aggregation stage: folds rows into pane tables on all threads and emits complete windows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, partial

import numpy as np
import pyarrow as pa

from penstock.algorithms.hash_table.keys import DenseKeys
from penstock.algorithms.kernel_factory import BatchArguments
from penstock.algorithms.window_grid import windows_on
from penstock.errors import OverflowError
from penstock.operators.pane_aggregate.adaptation import PaneAdaptation
from penstock.operators.pane_aggregate.direct_fold import ROWS_PER_THREAD, DirectFold
from penstock.operators.pane_aggregate.emission import (
    CELLS_WORTH_THREADS,
    PaneDeparture,
    copy_overlap,
    disjoint,
    emission_of,
    emit,
    is_cheap_to_merge,
    runs_of,
)
from penstock.operators.pane_aggregate.parallel_fold import fold_apart, fold_into_one_table, prepared
from penstock.operators.pane_aggregate.program import WindowProgram
from penstock.operators.pane_aggregate.state import hold_cells, kept_cells, panes_of, rows_in
from penstock.operators.pane_aggregate.table import KeyShape
from penstock.operators.pane_aggregate.tasks import PaneLateness, expected_panes
from penstock.operators.pane_aggregate.worker import Worker
from penstock.physical.nodes import Node, Sharing
from penstock.runtime.adapt.controller import USUAL, Controller, Sensor
from penstock.runtime.adapt.known_plan import KnownPlan
from penstock.runtime.buffers import flags
from penstock.runtime.engine import MOST_TASK_ROWS, Engine
from penstock.runtime.metrics import Metrics
from penstock.runtime.stage import END_OF_TIME, Stage, TimedBatch
from penstock.runtime.threads import run_on_threads
from penstock.state.state_table import FRESH, StateTable, read_scalars, scalars

# Above this many ownership changes along the time axis, one merged table is cheaper than many small emit passes.
MOST_MORSELS = 64
# Fewer cells are emitted in less time than it takes to involve another thread.
CELLS_WORTH_DEPARTING = 1 << 13
# A second thread fills a second table that must be merged. Below this many rows per key, that costs more than it
# saves (measured: at 20 rows per key two threads are no faster than one, at 200 they are).
ROWS_PER_COLUMN = 64


class WindowStage(DirectFold):
    """Fold rows into the tables of the workers; emit windows as the watermark passes them.

    Each worker takes a run of neighbouring tasks, so on ordered data the workers share few panes. A worker that
    has finished its run steals from the far ends of the other runs.
    """

    def __init__(
        self,
        program: WindowProgram,
        engine: Engine,
        metrics: Metrics,
        alone: Callable[[], Stage] | None = None,
        controller: Controller | None = None,
        known: KnownPlan | None = None,
    ) -> None:
        """`alone` makes the kernel's filter as a separate stage, if the kernel has one; only late and partly late rows need it.

        `known` is the plan of earlier runs, with which an adaptive run begins.
        """
        self.windows = windows_on(program.grid)
        lateness = PaneLateness(self.windows, program, metrics, alone)
        policed = controller or Controller("window", USUAL, metrics.adaptations, engine.adaptive)
        super().__init__(program, engine, metrics, lateness, policed)
        self._shares = "key table shared" in (
            engine.assume or ()
        )  # whether it was decided how workers share a table
        self.seen_null: frozenset[str] = frozenset()
        self.carried = program.carried
        self._departed = False  # whether panes of emitted windows are still held
        self._known = known if engine.adaptive else None
        if self._known is not None:
            self.adaptation.begin_with(self.workers[0], self._known)

    def push(self, port: int, timed_batches: list[TimedBatch]) -> list[TimedBatch]:
        """Fold rows in. Before a partly late row is added, emit the windows that were complete at its arrival."""
        for place, timed_batch in enumerate(timed_batches):
            if not self._folds_directly(timed_batch):
                return self._push_slowly(timed_batches[place:])
        return []

    def _push_slowly(self, timed_batches: list[TimedBatch]) -> list[TimedBatch]:
        results: list[TimedBatch] = []
        waiting: list[TimedBatch] = []
        for timed_batch in timed_batches:
            for part, complete in self.lateness.parts(self.lateness.on_time(timed_batch), self.emitted):
                if complete > self.emitted:
                    self._fold(waiting)
                    waiting = []
                    results += self._emit(complete)
                if timed_batch.arrival_watermarks is not None:
                    self._forget_cursors()  # partly late rows change panes that are merged
                waiting.append(part)
        self._fold(waiting)
        return results

    def advance(self, port: int, watermark: int) -> tuple[list[TimedBatch], int]:
        """Emit every window that ends at or before the watermark."""
        emitted, next_end, next_result = self._waits
        if watermark < next_end and emitted == self.emitted:
            return [], next_result
        upto = self.windows.last_complete(watermark)
        timed_batches = self._emit(upto) if upto > self.emitted else []
        self._await_next()
        return timed_batches, self._waits[2]

    def _await_next(self) -> None:
        """Find the end of the next window."""
        emitted = self.emitted
        self._waits = emitted, self.windows.end_after(emitted), self.windows.next_result(emitted)

    def depart(self, watermark: int) -> PaneDeparture | None:
        """Let another thread emit the windows that are complete, where that is worthwhile, while rows are folded.

        Rows that the native loop folds lie at the watermark or behind it, so they change no pane of these windows. The
        panes stay where they are until `loop_done` is called, and no table may be rebuilt before.
        """
        upto, worker = self.windows.last_complete(watermark), self.workers[0]
        alone = not any(other.slots for other in self.workers[1:])
        if not self.emitted < upto < END_OF_TIME or self.engine.workers == 1 or not alone or worker.sparse:
            return None
        emission = emission_of(worker, self.windows, self.emitted, upto)
        if emission is None or emission.cells < CELLS_WORTH_DEPARTING:
            return None
        self.emitted, self._departed = upto, True
        self._await_next()
        return PaneDeparture(emission, self._waits[2])

    def loop_done(self, rows: int, made: int) -> list[TimedBatch]:
        """Count rows that the loop folded, and drop panes whose windows have been emitted meanwhile."""
        found = super().loop_done(rows, made)
        if self._departed:
            self._departed = False
            self._forget(self.workers[0], self.emitted, None)
        return found

    @cached_property
    def adaptation(self) -> PaneAdaptation:
        """What profiles rows and swaps variants; a short run needs none."""
        pinned = frozenset(self.engine.assume or ())
        return PaneAdaptation(self.program, self.controller, self.engine.workers, pinned)

    @property
    def variant(self) -> Node:
        """The node as it runs now."""
        busy = (worker for worker in self.workers if worker.table is not None)
        return self.adaptation.node_of(next(busy, self.workers[0]))

    @property
    def sensors(self) -> Sensor:
        """What tasks cost and keep."""
        return self.controller.sensor

    @property
    def known_plan(self) -> KnownPlan:
        """The plan as it is now, for the next run."""
        before, first = self._known or KnownPlan(), self.workers[0]
        rows = self.controller.rows + self._unsensed
        if not rows:
            return before
        busy = (worker for worker in self.workers if worker.table is not None)
        shape = next(busy, first).key_shape or KeyShape(before.key_table, before.ranges, before.wide)
        return KnownPlan(
            before.rows + rows,
            before.runs + 1,
            before.changes + self.controller.changes,
            shape.kind,
            () if self.program.interned else shape.ranges,
            tuple(sorted(first.nullable)),
            shape.wide,
            first.order,
            self.controller.schedule(self._unsensed),
        )

    def save(self) -> Mapping[str, StateTable]:
        """Save the cells of open panes, the last emitted window, and which columns have held nulls."""
        nulls = {name: int(name in self.seen_null) for name in self.program.columns}
        kept = {"marks": scalars(emitted=self.emitted)} | ({"nulls": scalars(**nulls)} if nulls else {})
        cells = kept_cells(self.workers)
        return kept if cells is None else {**kept, "cells": cells}

    def load(self, tables: Mapping[str, pa.Table]) -> None:
        self.emitted = read_scalars(tables["marks"])["emitted"]
        nulls = read_scalars(tables["nulls"]) if "nulls" in tables else {}
        self.seen_null = frozenset(name for name in self.program.columns if nulls[name])
        worker = self.workers[0]
        worker.assume_nulls(worker.nullable | self.seen_null)
        held = [tables["cells"]] if "cells" in tables else []
        if FRESH in tables:
            held.append(self._fresh(tables[FRESH]))
        cells = pa.concat_tables(held).combine_chunks() if held else None
        if cells is not None and cells.num_rows:
            hold_cells(worker, cells)

    def _fresh(self, cells: pa.Table) -> pa.Table:
        """Drop and count the cells of panes whose windows have all been emitted; all rows of a pane share their windows.

        The first state of each cell counts its rows, which the run that folded them counted as accepted.
        """
        panes = panes_of(cells)
        gone = self.windows.finished(panes, self.emitted)
        late = rows_in(cells, gone & self.windows.holds_panes(panes))
        self.metrics.late += late
        self.metrics.accepted -= late
        self.metrics.partly_late += rows_in(cells, self.windows.started_panes(panes, self.emitted))
        return cells.filter(flags(~gone)) if gone.any() else cells

    def _emit(self, upto: int) -> list[TimedBatch]:
        started = self.controller.policy.clock()
        runs, held = self._owners(upto)
        if len(self.workers) > 1:
            self.controller.merged(self.controller.policy.clock() - started)
        batches = self._emit_runs(runs) if len(runs) > 1 else self._emit_all(*runs[0])
        self.emitted = upto
        for worker in self.workers:
            if upto == END_OF_TIME:
                worker.reset()
            else:
                self._forget(worker, upto, held.get(id(worker)))
        return [TimedBatch(batch, counted=True) for batch in batches]

    def _emit_all(self, worker: Worker, last: int) -> list[pa.RecordBatch]:
        """Emit the windows of one worker, divided among threads."""
        return list(emit(worker, self.windows, self.emitted, last, self.engine.workers))

    def _emit_runs(self, runs: list[tuple[Worker, int]]) -> list[pa.RecordBatch]:
        """Emit runs of windows; one thread per worker emits that worker's runs in order."""
        found: list[list[pa.RecordBatch]] = [[] for _ in runs]

        def emit_runs_of(worker: Worker) -> None:
            after = self.emitted
            for place, (owner, last) in enumerate(runs):
                if owner is worker:
                    found[place] = list(emit(worker, self.windows, after, last))
                after = max(after, last)

        owners = list({id(worker): worker for worker, _ in runs}.values())
        large = sum(worker.cells for worker in owners) >= CELLS_WORTH_THREADS
        run_on_threads([partial(emit_runs_of, worker) for worker in owners], None if large else 1)
        self._forget_cursors()  # copies of panes are dropped, and others are in other tables
        return [batch for batches in found for batch in batches]

    # -- rows ----------------------------------------------------------------------------------------

    def _assume_nulls(self, given: list[BatchArguments]) -> None:
        """Make all kernels treat a column as nullable once it has held a null."""
        for argument in given:
            seen = argument.with_nulls(self.program.columns)
            self.seen_null |= seen
            if seen:
                self.adaptation.saw_nulls(seen)
            if not seen <= self.workers[0].nullable:
                self._report_nulls(seen)
                for worker in self.workers:
                    worker.assume_nulls(worker.nullable | seen)

    def _report_nulls(self, seen: frozenset[str]) -> None:
        before = self.workers[0].nullable
        names = ", ".join(sorted(before)) or "none"
        self.controller.give_way("null flags", names, ", ".join(sorted(before | seen)), "a column held nulls")

    def _fold(self, timed_batches: list[TimedBatch]) -> None:
        try:
            self._fold_all(timed_batches)
        except OverflowError:
            self._check_reach(timed_batches)
            raise

    def _fold_all(self, timed_batches: list[TimedBatch]) -> None:
        started = self.controller.begin()
        timed_batches = prepared(self.program, timed_batches, self.engine.workers)
        given = [BatchArguments(timed_batch.batch, {}) for timed_batch in timed_batches]
        self._assume_nulls(given)
        rows = sum([timed_batch.batch.num_rows for timed_batch in timed_batches])
        panes = expected_panes(self.program, self.windows, given, rows)
        self.workers[0].expected, self.workers[0].expected_panes = rows, panes
        if self.controller.due and timed_batches:
            timed_batches[0] = self.adaptation.adapt(self.workers, timed_batches[0])
            given[0] = BatchArguments(timed_batches[0].batch, {})
        threads = min(self.engine.workers, max(self._tasks_worth(rows), 1))
        while len(self.workers) < threads:
            first = self.workers[0]
            self.workers.append(
                Worker(self.program, first.nullable, first.adaptive, first.give_way, first.assume)
            )
        for worker in self.workers:
            worker.expected, worker.expected_panes = rows, panes
            worker.forget_texts()
        columns = self._agree_on_keys(given[0]) if threads > 1 else 0
        sharing = self._sharing(rows, columns) if threads > 1 else None
        if sharing is None and columns * ROWS_PER_COLUMN > rows and not self._small_tasks:
            threads = 1
        if sharing is not None and sharing != "private":
            fold_into_one_table(self.workers[0], timed_batches, given, sharing, threads, self.engine)
        else:
            fold_apart(self.workers[:threads], timed_batches, given, self.engine)
        accepted = self._count(bool(timed_batches) and timed_batches[0].counted)
        if self.engine.adaptive:
            self.controller.folded(rows, accepted, self.controller.policy.clock() - started, self._unsensed)
            self._unsensed = 0

    def _sharing(self, rows: int, columns: int) -> Sharing | None:
        """How workers share a dense table of keys: as decided, at first by the number of keys and rows alone."""
        first = self.workers[0]
        dense = isinstance(first.likely_keys if first.table is None else first.table.keys, DenseKeys)
        if not dense or self.program.interned or not self.engine.adaptive or rows > MOST_TASK_ROWS:
            return None
        if not self._shares:
            self._shares = True
            first.sharing = self.adaptation.first_sharing(columns, rows)
        return first.sharing

    def _agree_on_keys(self, given: BatchArguments) -> int:
        """Start all workers with the same dense key columns; return their number (0 if it is not known).

        Tables with the same columns merge without key lookups.
        """
        first = self.workers[0]
        if first.table is not None or self.program.interned:
            return first.table.keys.columns if first.table is not None else 0
        keys = first.likely_keys or first.first_keys(given)
        if not isinstance(keys, DenseKeys):
            return 0
        for worker in self.workers:
            worker.likely_keys = keys
        return keys.columns

    def _tasks_worth(self, rows: int) -> int:
        """The number of threads the rows can keep busy."""
        return rows if self._small_tasks else rows // ROWS_PER_THREAD

    def _count(self, counted: bool) -> int:
        """Add the kernels' counts to the metrics, unless the rows were counted before; return the accepted rows."""
        accepted = 0
        for worker in self.workers:
            if worker.table is not None:
                accepted += self._count_of(worker.table.head, counted)
        return accepted

    def _forget_cursors(self) -> None:
        for worker in self.workers:
            worker.sliding = None

    # -- windows -------------------------------------------------------------------------------------

    def _owners(self, upto: int) -> tuple[list[tuple[Worker, int]], dict[int, int]]:
        """Assign windows to workers: runs of (worker, last window), in time order.

        Only panes held by several workers are merged. Each worker emits the windows that start in its panes, using
        copies of the panes those windows extend into. The dict gives, by worker id, the number of slots that are not
        copies. Where that needs too much copying, all panes are merged into the first worker's table.
        """
        busy = [worker for worker in self.workers if worker.slots]
        if len(busy) > 1:
            self._forget_cursors()
        if len(busy) > 1 and not is_cheap_to_merge(busy) and not any(worker.sparse for worker in busy):
            runs = runs_of(disjoint(busy))
            held = copy_overlap(runs, self.windows.span - 1) if len(runs) <= MOST_MORSELS else None
            if held is not None:
                last = [(worker, pane // self.windows.step) for worker, pane in runs[:-1]]
                return [(worker, min(window, upto)) for worker, window in last] + [(runs[-1][0], upto)], held
        main, *others = self.workers
        for other in others:
            main.merge_fragments_into(other, last=upto == END_OF_TIME)
        return [(main, upto)], {}

    def _forget(self, worker: Worker, upto: int, held: int | None) -> None:
        """Drop the panes no later window needs, and the copies: all slots but the first `held` (None: no copies)."""

        def gone(panes: np.ndarray) -> np.ndarray:
            copies = np.arange(len(panes)) >= (len(panes) if held is None else held)
            return self.windows.finished(panes, upto) | copies

        worker.drop(gone)
