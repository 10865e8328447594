"""The fold kernel bound to a table once for many small batches."""

from __future__ import annotations

from array import array
from typing import Any

import pyarrow as pa

from penstock.operators.pane_aggregate.tasks import Task
from penstock.operators.pane_aggregate.worker import Worker
from penstock.runtime.buffers import stored_type

MOST_ROWS = 1 << 14  # more rows are worth several threads, or a look at their keys


class SteadyFold:
    """A worker's fold kernel with the addresses of its table; a push sets those of its columns alone.

    It is valid until anything but its kernel changes the table. Only kernels over columns without nulls, whose values they
    read in place, can be bound so.
    """

    __slots__ = ("_call", "_columns", "_first_row", "_given", "_kernel", "_words", "worker")

    def __init__(self, worker: Worker, task: Task, kernel: Any, places: dict[str, int]) -> None:
        assert task.arguments is not None
        bound = worker.kernel(task.arguments, task)
        batch, bindings = task.flow.batch, worker.program.fold(worker.variant).bindings
        self.worker, self._given, self._call = worker, bound.given, bound.frame
        self._kernel, self._words = kernel, bound.frame.words
        self._first_row = places.get("first_row")
        self._columns = [
            (each.column, places[each.parameter], stored_type(batch.column(each.column).type).itemsize)
            for each in bindings
        ]

    @classmethod
    def of(cls, worker: Worker, task: Task) -> SteadyFold | None:
        """Bind the kernel that the worker now uses; None if a batch needs more than the addresses of its values."""
        program = worker.program
        if worker.table is None or program.interned or task.arguments is None:
            return None
        kernel = program.fold(worker.variant)
        places = getattr(kernel.call, "places", None)
        read = {each.column for each in kernel.bindings}
        if (
            places is None
            or any(each.role != "values" for each in kernel.bindings)
            or not read >= set(program.columns)
        ):
            return None
        return cls(worker, task, kernel.call, places)

    def fold(self, batch: pa.RecordBatch, first_row: int) -> int:
        """Fold a batch; return the row at which the kernel stopped, or -1 if a column holds nulls and no row was folded."""
        words: array[int] = self._words
        for name, place, width in self._columns:
            column = batch.column(name)
            if column.null_count:
                return -1
            words[place] = column.buffers()[1].address + column.offset * width
        if self._first_row is not None:
            words[self._first_row] = first_row
        return int(self._kernel.rows(self._call, 0, batch.num_rows))
