"""The fold kernel bound to a table once for many small batches."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from penstock.algorithms.batch_arguments import BatchArguments
from penstock.loop.abi import ERRORS
from penstock.loop.morsels import Morsels, Progress
from penstock.operators.pane_aggregate.tasks import Task
from penstock.operators.pane_aggregate.worker import Worker
from penstock.runtime.buffers import stored_type
from penstock.runtime.kernels import RowsCall
from penstock.runtime.stage import TimedBatch

MOST_ROWS = 1 << 14  # more rows are worth several threads, or a look at their keys


class SteadyFold:
    """A worker's fold kernel with the addresses of its table; a push sets those of its columns alone.

    It is valid until anything but its kernel changes the table. Only kernels over columns without nulls, whose values they
    read in place, can be bound so.
    """

    __slots__ = ("_columns", "_first_row", "_frame", "_given", "_kernel", "_worker", "valid")

    def __init__(
        self, worker: Worker, batch: pa.RecordBatch, kernel: RowsCall, places: Mapping[str, int]
    ) -> None:
        whole = Morsels(0, batch.num_rows, batch.num_rows)
        task = Task(TimedBatch(batch), whole, BatchArguments(batch, {}))
        assert task.arguments is not None
        bound = worker.kernel(task.arguments, task)
        mine = {each.parameter for each in kernel.bindings}
        self._worker, self._frame, self.valid = worker, bound.frame, True
        self._kernel: Any = kernel.call
        # The table's arrays, but not those of the batch, whose addresses are replaced.
        self._given = [value for name, value in bound.given.items() if name not in mine]
        self._first_row = places.get("first_row")
        self._columns = [
            (each.column, places[each.parameter], stored_type(batch.column(each.column).type).itemsize)
            for each in kernel.bindings
        ]

    @classmethod
    def of(cls, worker: Worker, batch: pa.RecordBatch) -> SteadyFold | None:
        """Bind the kernel that the worker now uses; None if a batch needs more than the addresses of its values."""
        program = worker.program
        if worker.table is None or program.interned:
            return None
        kernel = worker.kernels.fold
        places = getattr(kernel.call, "places", None)  # an interpreted kernel has none
        read = {each.column for each in kernel.bindings}
        if places is None or any(each.role != "values" for each in kernel.bindings):
            return None
        return cls(worker, batch, kernel, places) if read.issuperset(program.columns) else None

    def push(self, flow: TimedBatch) -> bool:
        """Fold a batch; return False, and fold no row, if a column holds nulls."""
        batch, worker = flow.batch, self._worker
        rows, table = batch.num_rows, worker.table
        assert table is not None
        words: array[int] = self._frame.words
        for name, place, width in self._columns:
            column = batch.column(name)
            if column.null_count:
                return False
            words[place] = column.buffers()[1].address + column.offset * width
        if self._first_row is not None:
            words[self._first_row] = flow.first_row
        stop = self._kernel.rows(self._frame, 0, rows)
        if stop == rows and not table.head[ERRORS]:
            worker.rows += rows
        else:
            self._go_on(flow, rows, stop)
        return True

    def _go_on(self, flow: TimedBatch, rows: int, stop: int) -> None:
        """Go on where the kernel stopped: the worker makes room in the table, or raises its error."""
        self.valid = False
        arguments = BatchArguments(flow.batch, {})
        task = Task(flow, Morsels(0, rows, rows), arguments)
        self._worker.went(arguments, task, Progress(rows, (stop, rows) if stop < rows else None))
