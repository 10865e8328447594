"""Run Penstock's dense kernel alone: implied time, memory that is used again, no stages around it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

import penstock as pk
from penstock.algorithms.kernel_factory import BatchArguments, KernelFactory
from penstock.codegen.llvm import OptimisationLevel
from penstock.codegen.native import NativeKernel, compile_kernel
from penstock.loop.nodes import Kernel
from penstock.operators.signals.positional.build import CompiledDense
from penstock.operators.signals.positional.evaluate import (
    DenseSignals,
    InputSamples,
    PositionalColumn,
    nullable_columns,
)
from penstock.operators.signals.positional.kernels import EDGE, dense
from penstock.passes.fuse_signals import fused, shared
from penstock.plan.schema import schema_of, time_of


@dataclass
class Compiler:
    """Compiles fully what is timed, quickly what only edges need, as a query does; adds up how long that took."""

    seconds: float = 0.0

    def __call__(self, kernel: Kernel) -> NativeKernel:
        begin = time.process_time()
        made = compile_kernel(
            kernel, effort=OptimisationLevel.QUICK if kernel.name == EDGE else OptimisationLevel.FULL
        )
        self.seconds += time.process_time() - begin
        return made


@dataclass
class DenseRun:
    """A signal over its tables, ready to be evaluated again and again."""

    signals: DenseSignals
    samples: list[InputSamples]
    compiler: Compiler
    _room: list[PositionalColumn] = field(default_factory=list)

    @property
    def total(self) -> int:
        return self.samples[0].total

    def __call__(self) -> list[PositionalColumn]:
        """Evaluate at every sample."""
        self.signals.histories = []
        if not self._room:
            self._room = self.signals.room(0, self.total)
        return self.signals.evaluate(self.samples, 0, self.total, self._room)

    def traffic(self) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """The memory that the kernel for the interior reads, and that it writes."""
        nullable = {str(i): nullable_columns(sample.rows) for i, sample in enumerate(self.samples)}
        call = self.signals.program.call(nullable, False, self.signals.wide, False)
        given = (
            value
            for sample, bindings in zip(self.samples, call.inputs, strict=True)
            for value in BatchArguments(sample.rows, {}).fill(bindings).values()
        )
        pairs = list(zip(self._room or self.signals.room(0, self.total), call.outputs, strict=True))
        flags = [column.valid for column, output in pairs if output.valid is not None]
        reads = [argument for argument in given if isinstance(argument, np.ndarray)]
        return reads, [*(column.values for column, _ in pairs), *flags]

    def on(self, threads: int) -> DenseRun:
        """The same kernels on another number of threads."""
        return DenseRun(DenseSignals(self.signals.program, threads), self.samples, self.compiler)


def dense_run(signal: pk.Signal, tables: Sequence[pa.Table]) -> DenseRun:
    """Prepare a signal, fused as a query's is."""
    program, streams = signal.graph.program(signal.name)
    inputs = [(schema_of(stream.raw_plan), time_of(stream.raw_plan)) for stream in streams]
    compiler = Compiler()
    made = CompiledDense(dense(shared(fused(program)), inputs), KernelFactory(compiler))
    return DenseRun(DenseSignals(made, 1), [InputSamples(rows_of(table)) for table in tables], compiler)


def rows_of(table: pa.Table) -> pa.RecordBatch:
    """A table of one chunk as a batch."""
    return table.combine_chunks().to_batches()[0]


def as_table(columns: Sequence[PositionalColumn]) -> pa.Table:
    """The first column of results as floats, NaN where there is none: everyone can say that."""
    column = columns[0]
    values = column.values.astype(np.float64)
    return floats(np.where(column.valid.astype(bool), values, np.nan) if column.nulls else values)


def floats(values: np.ndarray) -> pa.Table:
    """An answer as a table of one column."""
    return pa.table({"v": np.ascontiguousarray(values, np.float64)})
