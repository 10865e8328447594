"""The rows kernel: filter and computed columns of a batch, in one pass.

Columns that only pass through do not enter the kernel: the runtime gathers the rows that `out_row` lists.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from penstock.algorithms.expressions.cells import is_true
from penstock.algorithms.expressions.lowering import Columns, Lowering
from penstock.algorithms.selection import Selection, chunk_length
from penstock.expr import nodes as ex
from penstock.loop.abi import ACCEPTED, DONE, ERRORS, LANES, STATUS, Binding, OutputColumn
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import BOOL, I32, I64, U8, Kernel, Value, Var
from penstock.loop.numbers import machine_type
from penstock.types.time import Time

ROWS_CHUNK = 2048


@dataclass(frozen=True)
class RowsKernelSpec:
    """The specialisation of the kernel. `fields` are those that must be computed."""

    schema: pa.Schema
    time: Time
    where: ex.Expr | None
    fields: tuple[ex.Field, ...]
    nullable: frozenset[str]
    interned: frozenset[str]


@dataclass(frozen=True)
class RowsKernel:
    kernel: Kernel
    bindings: tuple[Binding, ...]
    outputs: tuple[OutputColumn, ...]


def build_rows(spec: RowsKernelSpec) -> RowsKernel:
    """Build the rows kernel for a specification."""
    rows = _Rows(spec)
    rows.write()
    return RowsKernel(rows.k.build(), tuple(rows.columns.bindings), tuple(rows.outputs))


class _Rows:
    def __init__(self, spec: RowsKernelSpec) -> None:
        self.spec = spec
        self.k = k = KernelBuilder("rows")
        self.lo, self.hi, self.first_row = k.scalar("lo"), k.scalar("hi"), k.scalar("first_row")
        self.head = k.buffer("head", I64)
        self.columns = Columns(k, spec.schema, spec.nullable, spec.interned, spec.time, self.first_row)
        self.outputs: list[OutputColumn] = []
        self.errors = k.var("errors", False, BOOL)

    def write(self) -> None:
        k = self.k
        self.done = k.var("done", 0)
        self.at = k.var("at", self.lo)
        with k.while_(self.at < self.hi):
            n = k.var("n", chunk_length(self.hi - self.at, ROWS_CHUNK))
            if self.spec.where is None:
                self._compute_all(n)
            else:
                self._compute_chosen(n, self.spec.where)
            k.set(self.at, self.at + n)
        k.store(self.head, ACCEPTED, self.done)
        k.store(self.head, ERRORS, self.head[ERRORS] | self.errors.to(I64))
        k.store(self.head, STATUS, DONE)
        k.ret(self.hi)

    def _compute_all(self, n: Value) -> None:
        k = self.k
        with k.for_(0, n, "r") as r:
            self._store_fields(k.var("row", self.at + r), self.done + r)
        k.set(self.done, self.done + n)

    def _compute_chosen(self, n: Value, where: ex.Expr) -> None:
        k = self.k
        chosen = k.local("chosen", I32, ROWS_CHUNK + LANES)
        positions = k.buffer("positions", U8)
        out_row = k.buffer("out_row", I64)

        def passes(r: Value) -> Value:
            return is_true(self._lowering(k.var("row", self.at + r)).lower(where))

        count = Selection(k, self.at, passes, chosen, positions).rows(n)
        with k.for_(0, count, "j") as j:
            row = k.var("row", chosen[j].to(I64))
            k.store(out_row, self.done + j, row)
            self._store_fields(row, self.done + j)
        k.set(self.done, self.done + count)

    def _lowering(self, row: Var) -> Lowering:
        def fail(condition: Value) -> None:
            self.k.set(self.errors, self.errors | condition)

        return self.columns.lowering(row, fail)

    def _store_fields(self, row: Var, place: Value) -> None:
        lowering = self._lowering(row)
        for field in self.spec.fields:
            dtype = lowering.type_of(field.expr)
            machine = machine_type(dtype)
            assert machine is not None
            cell = lowering.lower(field.expr)
            values = self.k.buffer("out", machine)
            self.k.store(values, place, cell.value.to(machine))
            valid = None if cell.valid is None else self.k.buffer("out_valid", U8)
            if valid is not None and cell.valid is not None:
                self.k.store(valid, place, cell.valid.to(U8))
            self.outputs.append(OutputColumn(field.name, machine, values.name, valid.name if valid else None))
