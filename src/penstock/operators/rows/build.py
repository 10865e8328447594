"""Build the stage of filters and computed columns, and bind its kernels."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from penstock.algorithms.expressions.host_columns import HostColumns, uses_of
from penstock.algorithms.kernel_factory import KernelFactory, once, preparation
from penstock.analysis.predicates import conjunction
from penstock.expr import nodes as ex
from penstock.expr.typing import type_of
from penstock.loop.nodes import Kernel
from penstock.loop.numbers import is_text, machine_type
from penstock.operators.rows.kernels import RowsKernel, RowsKernelSpec, build_rows
from penstock.operators.rows.stage import RowsStage
from penstock.physical import nodes as ph
from penstock.runtime.kernels import OutputCall, ResultColumn, Variants
from penstock.runtime.metrics import Metrics
from penstock.runtime.session import Context
from penstock.types.arrow import without_column
from penstock.types.time import Time


def rows(
    op: ph.Rows, node: ph.Node, given: ph.Node, paths: int, kernel_factory: KernelFactory
) -> Callable[[Context], RowsStage]:
    """Return the constructor of a `Rows` stage. `paths` is how often later stages would have counted a row."""
    compiled = compiled_rows(op, node, given, kernel_factory)
    taken = ex.Column(given.clock.column)
    computes_time = any(field.name == node.clock.column and field.expr != taken for field in op.fields)
    return lambda context: RowsStage(compiled, context.metrics, paths, computes_time, context.engine.workers)


def compiled_rows(op: ph.Rows, node: ph.Node, given: ph.Node, kernel_factory: KernelFactory) -> CompiledRows:
    """Return the compiled form of a node; batches lack the column of an implied time."""
    time = node.clock
    schema = without_column(node.schema, time.column) if time.implied else node.schema
    return CompiledRows(op, given.schema, given.clock, schema, kernel_factory)


def filter_alone(where: ex.Expr, given: ph.Node, kernel_factory: KernelFactory) -> Callable[[], RowsStage]:
    """Return the constructor of a stage that only filters rows, for an operator whose kernel includes the filter."""
    op, nothing = ph.Rows((where,), ()), pa.schema([])
    return lambda: RowsStage(
        CompiledRows(op, given.schema, given.clock, nothing, kernel_factory), Metrics(), 0
    )


def start_kernels(op: ph.Rows, node: ph.Node, given: ph.Node, kernel_factory: KernelFactory) -> list[Kernel]:
    """Return the kernel a run starts with, if it needs one."""
    compiled = compiled_rows(op, node, given, kernel_factory)
    if not compiled.filters and all(column.origin != "computed" for column in compiled.result):
        return []
    return [compiled.kernel(frozenset()).kernel]


MOST_GATHERED = 16  # columns: a kernel grows with each, Arrow's `take` does not


class CompiledRows:
    """A filter and computed columns (the runtime's `RowsProgram`)."""

    def __init__(
        self, op: ph.Rows, given: pa.Schema, time: Time, schema: pa.Schema, kernel_factory: KernelFactory
    ) -> None:
        """Compute the columns of `schema` from rows with the columns of `given`."""
        self._kernel_factory = kernel_factory
        self._host = host = HostColumns(given)
        self.time, self.schema = time, schema
        where = conjunction(op.conjuncts)
        self._where = None if where is None else host.value(where)
        passing = [self._passes(field, host) for field in op.fields]
        if self._where is not None and sum(name is not None for name in passing) <= MOST_GATHERED:
            passing = [None if name is not None and self._gathers(name) else name for name in passing]
        self._computed = tuple(
            ex.Field(field.name, host.value(field.expr))
            for field, name in zip(op.fields, passing, strict=True)
            if name is None
        )
        self.result = tuple(self._result(field, name) for field, name in zip(op.fields, passing, strict=True))
        self.filters = where is not None
        self.computes = self.filters or bool(self._computed)
        self.interned = frozenset(field.name for field in host.schema if pa.types.is_dictionary(field.type))
        self.texts = kernel_factory.texts
        self.prepare = preparation(host, time, uses_of([where], *(field.expr for field in op.fields)))
        self._kernels: dict[frozenset[str], RowsKernel] = {}
        self._variants = Variants(self._call)

    @staticmethod
    def _passes(field: ex.Field, host: HostColumns) -> str | None:
        """Return the column that a field passes through, which Arrow may compute; None if a kernel computes it."""
        plain = host.flat(field.expr)
        expr = host.key(plain) if is_text(type_of(plain, host.source)) else plain
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
        if not self.computes:
            return None
        return self._variants.get(nullable)

    def _call(self, nullable: frozenset[str]) -> OutputCall:
        known = nullable & frozenset(self._host.schema.names)
        kernel = self.kernel(known)
        call = self._kernel_factory.call(self._spec(known), lambda: kernel.kernel)
        return OutputCall(call, kernel.outputs, kernel.bindings)

    def kernel(self, nullable: frozenset[str]) -> RowsKernel:
        """Return the kernel for a set of nullable columns."""
        return once(self._kernels, nullable, lambda: build_rows(self._spec(nullable)))

    def _spec(self, nullable: frozenset[str]) -> RowsKernelSpec:
        return RowsKernelSpec(
            self._host.schema, self.time, self._where, self._computed, nullable, self.interned
        )
