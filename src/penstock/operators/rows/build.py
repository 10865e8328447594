"""Bind filters and computed columns to their kernels, for the runtime."""

from __future__ import annotations

import pyarrow as pa

from penstock.algorithms.expressions.host_columns import HostColumns, uses_of
from penstock.algorithms.kernel_factory import KernelFactory, once, preparation
from penstock.expr import nodes as ex
from penstock.expr.typing import type_of
from penstock.ir import nodes as ir
from penstock.loop.machine import is_text, machine_type
from penstock.operators.rows.kernel import RowsKernel, RowsSpec, build_rows
from penstock.runtime.kernels import (
    OutputCall,
    ResultColumn,
)

MOST_GATHERED = 16  # columns: a kernel grows with each, Arrow's `take` does not


class CompiledRows:
    """A filter and computed columns (the runtime's `RowsProgram`)."""

    def __init__(
        self, body: ir.Samples, source: ir.Object, result: ir.Object, kernel_factory: KernelFactory
    ) -> None:
        self._kernel_factory = kernel_factory
        self._host = host = HostColumns(source.schema)
        self.time, self.schema = source.time, result.schema
        self._where = None if body.where is None else host.value(body.where)
        passing = [self._passes(each, host) for each in body.fields]
        if self._where is not None and sum(name is not None for name in passing) <= MOST_GATHERED:
            passing = [None if name is not None and self._gathers(name) else name for name in passing]
        self._computed = tuple(
            ex.Field(each.name, host.value(each.expr))
            for each, name in zip(body.fields, passing, strict=True)
            if name is None
        )
        self.result = tuple(self._result(each, name) for each, name in zip(body.fields, passing, strict=True))
        self.filters = body.where is not None
        self.interned = frozenset(each.name for each in host.schema if pa.types.is_dictionary(each.type))
        self.texts = kernel_factory.texts
        uses = uses_of([body.where], *(each.expr for each in body.fields))
        self.prepare = preparation(host, source, uses)
        self._kernels: dict[frozenset[str], RowsKernel] = {}
        self._calls: dict[frozenset[str], OutputCall] = {}

    @staticmethod
    def _passes(field: ex.Field, host: HostColumns) -> str | None:
        """Return the column that a field passes through, which Arrow may compute; None if a kernel computes it."""
        expr = host.key(field.expr) if is_text(type_of(field.expr, host.source)) else field.expr
        return expr.name if isinstance(expr, ex.Column) else None

    def _gathers(self, name: str) -> bool:
        """Whether the kernel copies the rows of a column that pass the filter: it has their numbers at hand."""
        is_implied = self.time.period is not None and name == self.time.column
        dtype = self._host.schema.field(name).type
        return not is_implied and not is_text(dtype) and machine_type(dtype) is not None

    def _result(self, field: ex.Field, passing: str | None) -> ResultColumn:
        dtype = self.schema.field(field.name).type
        if passing is None:
            return ResultColumn(field.name, dtype, "computed")
        return ResultColumn(field.name, dtype, "row", source=passing)

    def rows(self, nullable: frozenset[str]) -> OutputCall | None:
        if self._where is None and not self._computed:
            return None
        known = nullable & frozenset(self._host.schema.names) if nullable else nullable
        return once(self._calls, known, lambda: self._call(known))

    def _call(self, known: frozenset[str]) -> OutputCall:
        kernel = self.kernel(known)
        call = self._kernel_factory.call((self, known), lambda: kernel.kernel)
        return OutputCall(call, kernel.outputs, kernel.bindings)

    def kernel(self, nullable: frozenset[str]) -> RowsKernel:
        """Return the kernel for a set of nullable columns."""
        spec = RowsSpec(self._host.schema, self.time, self._where, self._computed, nullable, self.interned)
        return once(self._kernels, nullable, lambda: build_rows(spec))
