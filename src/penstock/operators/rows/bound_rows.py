"""The rows kernel of small pushes, bound once: a push changes the addresses of the columns and of the results."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.loop.abi import ACCEPTED, ERRORS, WORDS, positions_table
from penstock.runtime.buffers import ColumnAddresses, ColumnLayout, column_type, room
from penstock.runtime.kernels import OutputCall, ResultColumn
from penstock.runtime.ring import LoopCall
from penstock.runtime.stage import KernelOverflowError, TimedBatch


class BoundRows:
    """The rows kernel for batches of one layout without nulls. `run` returns what it writes, and how many rows."""

    __slots__ = (
        "_call",
        "_columns",
        "_first_row",
        "_frame",
        "_head",
        "_hi",
        "_loop",
        "_outputs",
        "kernel",
        "layout",
        "nullable",
        "plain",
    )

    def __init__(
        self,
        kernel: OutputCall,
        layout: ColumnLayout,
        nullable: frozenset[str],
        passed: set[str],
        filters: bool,
        result: Sequence[ResultColumn],
    ) -> None:
        """`passed` are the columns that the kernel does not copy; if it `filters`, it lists the rows that pass."""
        self.plain = None if passed else _plain(kernel, result)
        self.kernel, self.layout, self.nullable, self._call = kernel, layout, nullable, kernel.call
        self._head = np.zeros(WORDS, np.int64)
        self._loop: tuple[LoopCall, dict[str, np.ndarray]] | None = None
        written = {output.values: column_type(output.type) for output in kernel.outputs}
        written |= {output.valid: np.dtype(np.uint8) for output in kernel.outputs if output.valid is not None}
        if filters:
            written["out_row"] = np.dtype(np.int64)
        names = tuple(binding.column for binding in kernel.bindings)
        plain = passed <= set(layout.schema.names) and all(
            binding.role == "values" for binding in kernel.bindings
        )
        places = layout.places(names) if plain else None
        unset = dict.fromkeys([*written, *(binding.parameter for binding in kernel.bindings)], 0)
        limits = {"lo": 0, "hi": 0, "first_row": 0, "head": self._head, "positions": positions_table()}
        self._frame = None if places is None else self._call.standing({**unset, **limits})
        if self._frame is None or places is None:
            return
        at = self._frame.places
        self._hi, self._first_row = at["hi"], at["first_row"]
        self._columns = [
            (at[binding.parameter], place) for binding, place in zip(kernel.bindings, places, strict=True)
        ]
        self._outputs = [(name, at[name], dtype) for name, dtype in written.items()]

    def as_batch(self, outputs: dict[str, np.ndarray], count: int, schema: pa.Schema) -> pa.RecordBatch:
        """The results as a batch, if all columns are `plain`: in few calls, since small pushes come often."""
        arrays = [
            pa.Array.from_buffers(dtype, count, [None, pa.py_buffer(outputs[name])])
            for name, dtype in self.plain or ()
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def loop_call(self, rows: int) -> LoopCall | None:
        """What the native loop changes between two batches, with memory for so many rows of results."""
        frame = self._frame
        if frame is None:
            return None
        if self._loop is None or len(next(iter(self._loop[1].values()))) < rows:
            memory = {name: room(rows, dtype) for name, _, dtype in self._outputs}
            outputs = [(place, memory[name]) for name, place, _ in self._outputs]
            call = LoopCall(
                self._call, frame.start, self._columns, self._hi, self._first_row, self._head, outputs
            )
            self._loop = call, memory
        return self._loop[0]

    def loop_output(self, made: int) -> dict[str, np.ndarray]:
        """The results that the loop wrote. Memory that is mostly unused is kept for the next ones."""
        assert self._loop is not None
        _, memory = self._loop
        if 2 * made < len(next(iter(memory.values()))):
            return {name: values[:made].copy() for name, values in memory.items()}
        self._loop = None
        return {name: values[:made] for name, values in memory.items()}

    def run(
        self, timed_batch: TimedBatch, columns: ColumnAddresses
    ) -> tuple[dict[str, np.ndarray], int] | None:
        """Run over all rows of a batch, given by the addresses of its columns; None: a column holds nulls."""
        frame, rows = self._frame, timed_batch.batch.num_rows
        if frame is None or columns.hold_nulls:
            return None
        given = frame.words
        for here, there in self._columns:
            given[here] = columns.words[there]
        outputs = {}
        for name, place, dtype in self._outputs:
            made = outputs[name] = room(rows, dtype)
            given[place] = pa.py_buffer(made).address
        given[self._hi], given[self._first_row] = rows, timed_batch.first_row
        self._call.run(frame.start)
        if self._head[ERRORS]:
            raise KernelOverflowError
        return outputs, int(self._head[ACCEPTED])


def _plain(kernel: OutputCall, result: Sequence[ResultColumn]) -> list[tuple[str, pa.DataType]] | None:
    """The memory and type of each result column; None if a column may hold nulls, or is stored in bits."""
    by_name = {output.name: output for output in kernel.outputs}
    found = [(by_name[column.name], column.type) for column in result]
    if any(output.valid is not None or pa.types.is_boolean(dtype) for output, dtype in found):
        return None
    return [(output.values, dtype) for output, dtype in found]
