"""Run a signal one operator after the other, each over the whole of what the ones before it wrote to memory.

That is what a query costs whose operators are not fused: the kernels are the same, the loops are many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

import penstock as pk
from benchmarks.tilt.kernel import Compiler, rows_of
from penstock.algorithms.kernel_factory import KernelFactory
from penstock.expr.nodes import Column as ColumnOf
from penstock.expr.nodes import Field
from penstock.ir.signals.nodes import Expression, Object, Program, Sampled, sources_of
from penstock.operators.signals.positional.build import CompiledDense
from penstock.operators.signals.positional.evaluate import DenseSignals, InputSamples, PositionalColumn
from penstock.operators.signals.positional.kernels import dense
from penstock.plan.schema import time_of
from penstock.types.time import Time


@dataclass
class Operator:
    """One operator: what it reads, and the memory it writes to."""

    this: Object
    signals: DenseSignals
    room: list[PositionalColumn] = field(default_factory=list)

    def __call__(self, given: Sequence[InputSamples]) -> list[PositionalColumn]:
        total = given[0].total
        if not self.room:
            self.room = self.signals.room(0, total)
        return self.signals.evaluate(given, 0, total, self.room)

    def as_samples(self, results: Sequence[PositionalColumn]) -> InputSamples:
        """What was written, as what others read; nothing is copied."""
        arrays = [
            result.to_arrow(column.type) for result, column in zip(results, self.this.schema, strict=True)
        ]
        return InputSamples(pa.RecordBatch.from_arrays(arrays, schema=self.this.schema))


@dataclass
class UnfusedRun:
    """All operators of a program, in order."""

    samples: dict[str, InputSamples]
    operators: list[Operator]

    def __call__(self) -> list[PositionalColumn]:
        known = dict(self.samples)
        for operator in self.operators:
            results = operator([known[name] for name in sources_of(operator.this.body)])
            if operator is not self.operators[-1]:
                known[operator.this.name] = operator.as_samples(results)
        return results


def unfused_run(signal: pk.Signal, tables: Sequence[pa.Table]) -> UnfusedRun | None:
    """Prepare a signal; None where an operator changes the rate, which memory of one length cannot hold."""
    program, streams = signal.graph.program(signal.name)
    sampled = {obj.name: obj.body for obj in program.objects if isinstance(obj.body, Sampled)}
    rest = [obj for obj in program.objects if obj.name not in sampled]
    if not all(isinstance(this.body, Expression) for this in rest):
        return None
    time = time_of(streams[0].raw_plan)
    samples = {
        name: _named(program[name], body, rows_of(tables[int(body.input)])) for name, body in sampled.items()
    }
    operators = [Operator(this, DenseSignals(_compiled(program, this, time))) for this in rest]
    same_rate = all(operator.signals.program.outputs_before(1000) == 1000 for operator in operators)
    return UnfusedRun(samples, operators) if same_rate else None


def _named(this: Object, body: Sampled, rows: pa.RecordBatch) -> InputSamples:
    """The columns that an object samples, under its own names."""
    names = [computed.expr.name for computed in body.fields if isinstance(computed.expr, ColumnOf)]
    return InputSamples(pa.RecordBatch.from_arrays([rows.column(name) for name in names], schema=this.schema))


def _compiled(program: Program, this: Object, time: Time) -> CompiledDense:
    """An operator as a program of its own, whose inputs are what it reads."""
    read = [program[name] for name in sources_of(this.body)]
    inputs = tuple(
        Object(
            read_object.name,
            Sampled(str(i), (), tuple(Field(n, ColumnOf(n)) for n in read_object.schema.names)),
            read_object.schema,
        )
        for i, read_object in enumerate(read)
    )
    alone = replace(program, objects=(*inputs, this), output=this.name)
    return CompiledDense(
        dense(alone, [(read_object.schema, time) for read_object in read]), KernelFactory(Compiler())
    )
