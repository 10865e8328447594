"""The stage of filters and computed columns, and the compiled form that it is given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Protocol

import numpy as np
import pyarrow as pa

from penstock.algorithms.hash_table.keys import MOST_TEXT, Interner
from penstock.algorithms.kernel_factory import BatchArguments
from penstock.loop.abi import ACCEPTED, ERRORS, WORDS, positions_table
from penstock.operators.rows.bound_rows import BoundRows
from penstock.runtime.buffers import ColumnAddresses, ColumnLayout, column_type, indices, room, to_arrow
from penstock.runtime.engine import MOST_TASK_ROWS
from penstock.runtime.kernels import OutputCall, ResultColumn, TextKernels
from penstock.runtime.metrics import Metrics
from penstock.runtime.ring import LoopCall
from penstock.runtime.source_stage import implied_times
from penstock.runtime.stage import (
    END_OF_TIME,
    START_OF_TIME,
    KernelOverflowError,
    TimedBatch,
)
from penstock.runtime.threads import run_on_threads
from penstock.state.state_table import StateTable
from penstock.types.time import Time


class RowsProgram(Protocol):
    """A compiled filter and projection."""

    time: Time
    interned: frozenset[str]
    texts: TextKernels
    schema: pa.Schema
    result: tuple[ResultColumn, ...]
    filters: bool
    computes: bool  # there is a kernel: rows are filtered or columns computed

    def prepare(self, batch: pa.RecordBatch, first_row: int, /) -> pa.RecordBatch: ...

    def rows(self, nullable: frozenset[str]) -> OutputCall | None:
        """The kernel, or None if it `computes` nothing."""


# Fewer rows are computed in less time than it takes to pass them to another thread.
FILTERED_ROWS_PER_THREAD = 1 << 16
# The rows of results for which the native loop has memory: at first, and at most unless a batch has more.
LOOP_ROOM = (1 << 13, 1 << 18)


class RowsStage:
    """Filter and projection: one kernel computes columns; `take` copies the columns that pass through."""

    def __init__(
        self,
        program: RowsProgram,
        metrics: Metrics,
        paths: int,
        computes_time: bool = False,
        threads: int = 1,
    ) -> None:
        """`paths` is how many times a row filtered out here, not yet counted, would be counted downstream.

        With several threads, a large batch becomes several, computed in parallel, of neighbouring rows.

        If the time of the result is computed, it can be any value: the output watermark advances only at the end of input.
        """
        self.program, self.metrics, self.paths = program, metrics, paths
        self.computes_time = computes_time
        # Interned texts are numbered in the order of rows.
        self._threads = 1 if program.interned else threads
        self._passed = {column.source for column in program.result if column.origin == "row"}
        self._bound: BoundRows | None = None
        self._projection: tuple[pa.Schema, list[int] | None] | None = None
        self._selects = False  # whether nothing but columns is selected, and how is known
        self.nullable: frozenset[str] = frozenset()
        self.interners = {name: Interner(program.texts.intern) for name in program.interned}
        self._positions = positions_table()
        self._loop_room = LOOP_ROOM[0]

    def push(self, port: int, timed_batches: list[TimedBatch]) -> list[TimedBatch]:
        if self._selects and len(timed_batches) == 1:
            made = self._selected(timed_batches[0])
            if made is not None:
                return [made]
        return [made for timed_batch in timed_batches for made in self._batch(timed_batch)]

    def _selected(self, timed_batch: TimedBatch) -> TimedBatch | None:
        """Select columns of a batch like the one before; None if it is another."""
        batch, known = timed_batch.batch, self._projection
        assert known is not None
        schema, places = known
        if places is None or batch.num_rows > MOST_TASK_ROWS or not batch.schema.equals(schema):
            return None
        if not places:
            return timed_batch
        columns = batch.columns
        chosen = pa.RecordBatch.from_arrays([columns[at] for at in places], schema=self.program.schema)
        return timed_batch.with_batch(chosen)

    def advance(self, port: int, watermark: int) -> tuple[list[TimedBatch], int]:
        return [], START_OF_TIME if self.computes_time and watermark != END_OF_TIME else watermark

    def save(self) -> Mapping[str, StateTable]:
        """Save nothing: the stage has no state."""
        return {}

    def load(self, tables: Mapping[str, pa.Table]) -> None: ...

    def _batch(self, timed_batch: TimedBatch) -> list[TimedBatch]:
        """Compute a batch: at once, or in parts on all threads."""
        columns, rows = timed_batch.addresses, timed_batch.batch.num_rows
        parts = min(self._threads, rows // FILTERED_ROWS_PER_THREAD)
        if columns is not None and parts <= 1:
            made = self._directly(timed_batch, columns)
            if made is not None:
                return [made]
        if parts <= 1:
            return [self._rows(part) for part in _parts(timed_batch, MOST_TASK_ROWS)]
        cut = list(_parts(timed_batch, min(-(-rows // parts), MOST_TASK_ROWS)))
        found: list[TimedBatch] = list(cut)

        def work(place: int) -> None:
            found[place] = self._computed(cut[place])

        run_on_threads([partial(work, place) for place in range(len(cut))], parts)
        for before, after in zip(cut, found, strict=True):
            self._count(before, after)
        return found

    def _directly(self, timed_batch: TimedBatch, columns: ColumnAddresses) -> TimedBatch | None:
        """Compute a batch whose columns the source has read; None if some are not numbers, or hold nulls."""
        bound = self._bound_rows(columns.layout)
        ran = None if bound is None else bound.run(timed_batch, columns)
        if bound is None or ran is None:
            return None
        if (
            bound.plain is None
            or timed_batch.arrival_watermarks is not None
            or timed_batch.sequence is not None
        ):
            made = self._result(bound.kernel, timed_batch, timed_batch.batch, *ran)
        else:
            batch = bound.as_batch(*ran, self.program.schema)
            made = TimedBatch(
                batch,
                first_row=timed_batch.first_row,
                branch=timed_batch.branch,
                counted=timed_batch.counted,
                tally=timed_batch.tally,
            )
        self._count(timed_batch, made)
        return made

    def _bound_rows(self, layout: ColumnLayout) -> BoundRows | None:
        bound = self._bound
        if bound is None or bound.layout is not layout or bound.nullable != self.nullable:
            kernel = self.program.rows(self.nullable)
            if kernel is None:
                return None
            program = self.program
            bound = self._bound = BoundRows(
                kernel, layout, self.nullable, self._passed, program.filters, program.result
            )
        return bound

    # -- the native loop of a run in the background (`runtime/ring.py`) ---------------------------------

    loop_results = True
    loop_gathers = False  # results of rows are gathered in memory

    @property
    def loop_most(self) -> int:
        """Larger batches are computed on all threads."""
        return MOST_TASK_ROWS if self._threads == 1 else 2 * FILTERED_ROWS_PER_THREAD - 1

    def loop_call(self, layout: ColumnLayout, room: int) -> LoopCall | None:
        """Bind the kernel to memory for results; None if columns only pass through: Arrow gathers those batch by batch."""
        if self._passed or self.program.interned:
            return None
        bound = self._bound_rows(layout)
        rows = min(max(self._loop_room, room), MOST_TASK_ROWS)
        return None if bound is None else bound.loop_call(rows)

    def loop_limits(self) -> tuple[int, int]:
        """A filter waits for nothing."""
        return END_OF_TIME, MOST_TASK_ROWS

    def loop_done(self, rows: int, made: int) -> list[TimedBatch]:
        """Count the rows that the loop processed, and return those that it wrote."""
        self.metrics.filtered += (rows - made) * self.paths
        if not made:
            return []
        bound = self._bound
        assert bound is not None
        self._loop_room = max(self._loop_room, min(2 * rows, LOOP_ROOM[1]))
        memory, by_name = bound.loop_output(made), {output.name: output for output in bound.kernel.outputs}
        arrays = []
        for column in self.program.result:
            output = by_name[column.name]
            valid = None if output.valid is None else memory[output.valid]
            arrays.append(to_arrow(memory[output.values], valid, column.type))
        return [TimedBatch(pa.RecordBatch.from_arrays(arrays, schema=self.program.schema))]

    def depart(self, watermark: int) -> None:
        """Nothing waits for the watermark."""

    def loop_stopped(self, timed_batch: TimedBatch, reached: int) -> None:
        """Kernels of filters do not stop."""
        raise AssertionError(f"a filter stopped at row {reached}")

    def _rows(self, timed_batch: TimedBatch) -> TimedBatch:
        made = self._computed(timed_batch)
        self._count(timed_batch, made)
        return made

    def _count(self, before: TimedBatch, after: TimedBatch) -> None:
        if not before.counted:
            self.metrics.filtered += (before.batch.num_rows - after.batch.num_rows) * self.paths

    def _computed(self, timed_batch: TimedBatch) -> TimedBatch:
        batch = self.program.prepare(timed_batch.batch, timed_batch.first_row)
        if not self.program.computes:
            projected = self._projected(batch, timed_batch)
            known = self._projection
            self._selects = batch is timed_batch.batch and known is not None and known[1] is not None
            return timed_batch.filtered(projected, None)
        self.nullable |= {name for name in batch.schema.names if batch.column(name).null_count}
        kernel = self.program.rows(self.nullable)
        assert kernel is not None, "a kernel is there whatever holds nulls"
        return self._result(kernel, timed_batch, batch, *self._run(kernel, batch, timed_batch))

    def _projected(self, batch: pa.RecordBatch, timed_batch: TimedBatch) -> pa.RecordBatch:
        """Select columns. How is found out once for a schema: small pushes come in great numbers."""
        known = self._projection
        if known is None or not batch.schema.equals(known[0]):
            known = self._projection = batch.schema, self._places(batch.schema)
        if known[1] is None:
            return self._arranged(batch, {}, timed_batch, None)
        if known[1] == []:
            return batch
        return pa.RecordBatch.from_arrays([batch.column(at) for at in known[1]], schema=self.program.schema)

    def _places(self, given: pa.Schema) -> list[int] | None:
        """The places of the selected columns; none of them if the batch stays as it is; None if some are computed."""
        sources = [column.source for column in self.program.result]
        implied = self.program.time.period is not None and self.program.time.column in sources
        if implied or not all(given.names.count(name) == 1 for name in sources):
            return None
        places = [given.get_field_index(name) for name in sources]
        if [given.field(at).type for at in places] != self.program.schema.types:
            return None
        same = places == list(range(len(given))) and given.equals(self.program.schema)
        return [] if same else places

    def _result(
        self,
        kernel: OutputCall,
        timed_batch: TimedBatch,
        batch: pa.RecordBatch,
        outputs: dict[str, np.ndarray],
        count: int,
    ) -> TimedBatch:
        chosen = outputs["out_row"][:count] if self.program.filters else None
        computed = {
            output.name: (
                outputs[output.values][:count],
                None if output.valid is None else outputs[output.valid][:count],
            )
            for output in kernel.outputs
        }
        return timed_batch.filtered(self._arranged(batch, computed, timed_batch, chosen), chosen)

    def _run(
        self, kernel: OutputCall, batch: pa.RecordBatch, timed_batch: TimedBatch
    ) -> tuple[dict[str, np.ndarray], int]:
        rows = batch.num_rows
        outputs: dict[str, np.ndarray] = {"out_row": room(rows)}
        for output in kernel.outputs:
            outputs[output.values] = room(rows, column_type(output.type))
            if output.valid is not None:
                outputs[output.valid] = room(rows, np.uint8)
        head = np.zeros(WORDS, np.int64)
        self._forget_texts()
        given = BatchArguments(batch, self.interners).fill(kernel.bindings)
        limits = {"lo": 0, "hi": rows, "first_row": timed_batch.first_row, "head": head}
        kernel.call({**given, **outputs, **limits, "positions": self._positions})
        if head[ERRORS]:
            raise KernelOverflowError
        return outputs, int(head[ACCEPTED])

    def _forget_texts(self) -> None:
        """Drop the texts of earlier batches once they exceed MOST_TEXT: no code outlives its batch."""
        for name, texts in self.interners.items():
            if texts.nbytes > MOST_TEXT:
                self.interners[name] = Interner(self.program.texts.intern)

    def _arranged(
        self,
        batch: pa.RecordBatch,
        computed: dict[str, tuple[np.ndarray, np.ndarray | None]],
        timed_batch: TimedBatch,
        chosen: np.ndarray | None,
    ) -> pa.RecordBatch:
        arrays = []
        for column in self.program.result:
            if column.origin == "computed":
                arrays.append(to_arrow(*computed[column.name], column.type))
            else:
                arrays.append(_taken(self._source(batch, column.source, timed_batch), chosen))
        return pa.RecordBatch.from_arrays(arrays, schema=self.program.schema)

    def _source(self, batch: pa.RecordBatch, name: str, timed_batch: TimedBatch) -> pa.Array:
        time = self.program.time
        if time.period is not None and name == time.column:
            return implied_times(time, timed_batch.first_row, batch.num_rows)
        return batch.column(name)


def _parts(timed_batch: TimedBatch, most: int) -> Iterator[TimedBatch]:
    """Split a batch into parts of at most so many rows."""
    if timed_batch.batch.num_rows <= most:
        yield timed_batch
        return
    for begin in range(0, timed_batch.batch.num_rows, most):
        yield replace(
            timed_batch,
            batch=timed_batch.batch.slice(begin, most),
            arrival_watermarks=None
            if timed_batch.arrival_watermarks is None
            else timed_batch.arrival_watermarks[begin : begin + most],
            first_row=timed_batch.first_row + begin,
            sequence=None if timed_batch.sequence is None else timed_batch.sequence.slice(begin, most),
            trace=None
            if timed_batch.trace is None
            else replace(timed_batch.trace, rows=timed_batch.trace.rows[begin : begin + most]),
        )


def _taken(array: pa.Array, chosen: np.ndarray | None) -> pa.Array:
    return array if chosen is None else array.take(indices(chosen))
