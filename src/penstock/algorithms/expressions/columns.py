"""Declare a batch's columns as kernel parameters, on first use, and describe how to fill them.

Column names do not reach a kernel: parameters are numbered. Each declared parameter has a `Binding` that
describes its contents for the runtime.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.algorithms.expressions.cells import Cell
from penstock.algorithms.expressions.lowering import Lowering
from penstock.algorithms.hash_table.text_kernels import equals_literal
from penstock.loop.abi import Binding
from penstock.loop.build import KernelBuilder
from penstock.loop.machine import is_text, machine_type
from penstock.loop.nodes import BOOL, I32, I64, U8, Buffer, Kernel, Peek, Space, Type, Value, Var
from penstock.types.time import Time


@dataclass(frozen=True)
class RowKernel:
    """A kernel over a batch's rows, and the bindings of its column parameters."""

    kernel: Kernel
    bindings: tuple[Binding, ...]


def arenas(k: KernelBuilder) -> tuple[Binding, ...]:
    """The bindings of the buffers of interned texts that a kernel compares."""
    return tuple(Binding(buffer.name, column, role) for (role, column), buffer in k.shared.items() if column)


@dataclass
class Columns:
    """The columns of one kernel. `nullable` names those that hold nulls; the others are read without a test.

    `interned` names the text columns that arrive as codes. An implied time is computed from the row's number
    in its stream; `first_row` is that of the batch's first row.
    """

    k: KernelBuilder
    schema: pa.Schema
    nullable: frozenset[str]
    interned: frozenset[str]
    time: Time
    first_row: Var
    bindings: list[Binding] = field(default_factory=list)
    _params: dict[tuple[str, str, str | None], Buffer | Var] = field(default_factory=dict)

    def lowering(self, row: Value, on_error: Callable[[Value], None]) -> Lowering:
        """Lower expressions over the columns at a row of the batch."""
        return Lowering(
            self.k,
            self.schema,
            lambda name: self.cell(name, row),
            on_error,
            lambda name, text: self.text_equals(name, text, row),
            lambda name: self.valid(name, row),
        )

    def cell(self, name: str, row: Value) -> Cell:
        """Read a column at a row of the batch."""
        if self.time.period is not None and name == self.time.column:
            return Cell((self.first_row + row) * self.time.period + self.time.start)
        dtype = self.schema.field(name).type
        if is_text(dtype):
            return self._code(name, row)
        machine = machine_type(dtype)
        assert machine is not None, f"{dtype} does not enter kernels"
        if machine == BOOL:
            return Cell(self._bit(name, "bits", row), self.valid(name, row))
        values = self._buffer(name, "values", machine)
        return Cell(values[row], self.valid(name, row))

    def time_at(self, row: Value) -> Value:
        """The row's time in ticks; the runtime has removed rows without one."""
        if self.time.period is not None:
            return self.cell(self.time.column, row).value
        dtype = self.schema.field(self.time.column).type
        machine = machine_type(dtype)
        assert machine is not None
        return self._buffer(self.time.column, "values", machine)[row].to(I64) + self.time.shift

    def valid(self, name: str, row: Value) -> Value | None:
        """Whether a column is not null at a row; None if it never is null."""
        if name not in self.nullable:
            return None
        return self._code(name, row).valid if name in self.interned else self._bit(name, "validity", row)

    def text_equals(self, name: str, text: str, row: Value) -> Cell:
        """Compare a text column with a literal, whose characters are a parameter of the kernel."""
        if name in self.interned:
            code = self._code(name, row)
            return Cell(code.value.eq(self._scalar(name, "code", I32, text)), code.valid)
        dtype = self.schema.field(name).type
        offsets = self._buffer(name, "offsets", I64 if pa.types.is_large_string(dtype) else I32)
        data = self._buffer(name, "bytes", U8)
        literal = self._buffer(name, "literal", U8, text, Space.CONSTANT)
        size = self._scalar(name, "size", I64)
        same = equals_literal(self.k, offsets, data, size, row, literal, len(text.encode()))
        return Cell(same, self.valid(name, row))

    def _code(self, name: str, row: Value) -> Cell:
        code = self._buffer(name, "codes", I32)[row]
        return Cell(code, code >= 0 if name in self.nullable else None)

    def _bit(self, name: str, role: str, row: Value) -> Value:
        return Peek(self._buffer(name, role, U8), row + self._scalar(name, "shift", I64), BOOL)

    def _buffer(
        self, name: str, role: str, type: Type, text: str | None = None, space: Space = Space.GLOBAL
    ) -> Buffer:
        found = self._params.get((name, role, text))
        if found is None:
            found = self.k.buffer(role, type, space)
            self._remember(found, name, role, text)
        assert isinstance(found, Buffer)
        return found

    def _scalar(self, name: str, role: str, type: Type, text: str | None = None) -> Var:
        found = self._params.get((name, role, text))
        if found is None:
            found = self.k.scalar(role, type)
            self._remember(found, name, role, text)
        assert isinstance(found, Var)
        return found

    def _remember(self, param: Buffer | Var, name: str, role: str, text: str | None) -> None:
        self._params[name, role, text] = param
        self.bindings.append(Binding(param.name, name, role, text))
