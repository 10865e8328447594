"""Bind filters and computed columns to their kernels, for the runtime."""

from __future__ import annotations

import pyarrow as pa

from penstock.algorithms.expressions.host_columns import HostColumns, uses_of
from penstock.algorithms.kernel_factory import KernelFactory, once, preparation
from penstock.expr import nodes as ex
from penstock.expr.typing import type_of
from penstock.ir import nodes as ir
from penstock.loop.machine import is_text
from penstock.operators.rows.kernel import RowsKernel, RowsSpec, build_rows
from penstock.runtime.kernels import (
    OutputCall,
    ResultColumn,
)


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

    @staticmethod
    def _passes(field: ex.Field, host: HostColumns) -> str | None:
        """Return the column that a field passes through, which Arrow may compute; None if a kernel computes it."""
        expr = host.key(field.expr) if is_text(type_of(field.expr, host.source)) else field.expr
        return expr.name if isinstance(expr, ex.Column) else None

    def _result(self, field: ex.Field, passing: str | None) -> ResultColumn:
        dtype = self.schema.field(field.name).type
        if passing is None:
            return ResultColumn(field.name, dtype, "computed")
        return ResultColumn(field.name, dtype, "row", source=passing)

    def rows(self, nullable: frozenset[str]) -> OutputCall | None:
        if self._where is None and not self._computed:
            return None
        known = nullable & frozenset(self._host.schema.names)
        kernel = self.kernel(known)
        call = self._kernel_factory.call((self, known), lambda: kernel.kernel)
        return OutputCall(call, kernel.outputs, kernel.bindings)

    def kernel(self, nullable: frozenset[str]) -> RowsKernel:
        """Return the kernel for a set of nullable columns."""
        spec = RowsSpec(self._host.schema, self.time, self._where, self._computed, nullable, self.interned)
        return once(self._kernels, nullable, lambda: build_rows(spec))
