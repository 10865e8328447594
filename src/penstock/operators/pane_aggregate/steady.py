"""The fold kernel bound to a table once for many small batches."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from penstock.algorithms.batch_arguments import BatchArguments
from penstock.loop.morsels import Morsels
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

    __slots__ = ("_columns", "_first_row", "_frame", "_given", "_kernel", "worker")

    def __init__(
        self, worker: Worker, batch: pa.RecordBatch, kernel: RowsCall, places: Mapping[str, int]
    ) -> None:
        whole = Morsels(0, batch.num_rows, batch.num_rows)
        task = Task(TimedBatch(batch), whole, BatchArguments(batch, {}))
        assert task.arguments is not None
        bound = worker.kernel(task.arguments, task)
        mine = {each.parameter for each in kernel.bindings}
        self.worker, self._frame = worker, bound.frame
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
        kernel = program.fold(worker.variant)
        places = getattr(kernel.call, "places", None)  # an interpreted kernel has none
        read = {each.column for each in kernel.bindings}
        if places is None or any(each.role != "values" for each in kernel.bindings):
            return None
        return cls(worker, batch, kernel, places) if read.issuperset(program.columns) else None

    def fold(self, batch: pa.RecordBatch, first_row: int) -> int:
        """Fold a batch; return the row at which the kernel stopped, or -1 if a column holds nulls and no row was folded."""
        words: array[int] = self._frame.words
        for name, place, width in self._columns:
            column = batch.column(name)
            if column.null_count:
                return -1
            words[place] = column.buffers()[1].address + column.offset * width
        if self._first_row is not None:
            words[self._first_row] = first_row
        return int(self._kernel.rows(self._frame, 0, batch.num_rows))
