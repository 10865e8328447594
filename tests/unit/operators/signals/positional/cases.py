"""Run a signal on the dense path and by the definition, and compare position by position."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from penstock.algorithms.kernel_factory import KernelFactory
from penstock.codegen.llvm import OptimisationLevel
from penstock.codegen.native import compile_kernel
from penstock.ir.signals.interpret import KeySignals, SignalSample
from penstock.ir.signals.nodes import Program, Resample, Sampled
from penstock.ir.signals.show import show_program
from penstock.loop.interpret import interpret
from penstock.loop.nodes import Kernel
from penstock.operators.signals.positional.build import CompiledDense
from penstock.operators.signals.positional.evaluate import DenseSignals, InputSamples
from penstock.operators.signals.positional.kernels import Dense, dense
from penstock.plan.schema import schema_of, time_of
from penstock.runtime.kernels import Call

TOLERANCE = 1e-9


def quick(kernel: Kernel) -> Call:
    return compile_kernel(kernel, effort=OptimisationLevel.QUICK)


def interpreted(kernel: Kernel) -> Call:
    return lambda values: interpret(kernel, values)


def prepared(signal) -> tuple[Program, Dense]:
    program, streams = signal.graph.program(signal.name)
    return program, dense(
        program, [(schema_of(stream.raw_plan), time_of(stream.raw_plan)) for stream in streams]
    )


def evaluator(made: Dense, backend: Callable[[Kernel], Call] = quick, threads: int = 1) -> DenseSignals:
    return DenseSignals(CompiledDense(made, KernelFactory(backend)), threads)


def samples_of(tables: Sequence[pa.Table]) -> list[InputSamples]:
    return [InputSamples(pa.record_batch({n: t[n].combine_chunks() for n in t.column_names})) for t in tables]


def results(run: DenseSignals, samples: Sequence[InputSamples], cuts: Sequence[int] = ()) -> dict[str, list]:
    """All values of the output, computed in pieces."""
    lo, hi = run.span(max(sample.total for sample in samples))
    edges = [lo, *sorted({cut for value in cuts if lo < (cut := run._down(value)) < hi}), hi]
    found: dict[str, list] = {output.name: [] for output in run.program.outputs}
    for begin, end in itertools.pairwise(edges):
        for name, column in zip(found, run.evaluate(samples, begin, end), strict=True):
            there = column.valid if column.nulls else np.ones(len(column.values), np.uint8)
            found[name] += [v if ok else None for v, ok in zip(column.values.tolist(), there, strict=True)]
    return found


def times(program: Program, made: Dense, run: DenseSignals, total: int) -> list[int]:
    """The instants the results are for."""
    lo, hi = run.span(total)
    clock = made.positions.time
    body = program[program.output].body
    if isinstance(body, Resample):
        count = run.program.outputs_before(lo)
        return [j * body.every for j in range(count, run.program.outputs_before(hi))]
    return [clock.start + i * clock.period for i in range(lo, hi, made.step)]


def defined(
    program: Program, made: Dense, run: DenseSignals, tables: Sequence[pa.Table], only: int | None = None
) -> dict[str, list]:
    """The same by the definition, at all positions or at some `only`."""
    clock = made.positions.time
    samples = {}
    for this in program.objects:
        if isinstance(this.body, Sampled):
            rows = tables[int(this.body.input)].to_pylist()
            (field,) = this.body.fields
            column = field.expr.name
            samples[this.name] = [
                SignalSample(clock.start + i * clock.period, None, {field.name: row[column]})
                for i, row in enumerate(rows)
            ]
    signals = KeySignals(program, samples)
    found: dict[str, list] = {output.name: [] for output in run.program.outputs}
    instants = times(program, made, run, max(len(table) for table in tables))
    for t in instants[:: 1 if only is None else max(1, len(instants) // only)]:
        for name, value in signals.value(program.output, t).items():
            found[name].append(value)
    return found


def same(a: object, b: object) -> bool:
    """Equal, floats within a tolerance of their size."""
    if a is None or b is None:
        return a is b
    if isinstance(a, float) or isinstance(b, float):
        x, y = float(a), float(b)
        if math.isnan(x) or math.isnan(y):
            return math.isnan(x) and math.isnan(y)
        return x == y or math.isclose(x, y, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return int(a) == int(b)


def check(signal, tables: Sequence[pa.Table], backend=quick, only: int | None = None) -> dict[str, list]:
    """Compare the results with the definition."""
    program, made = prepared(signal)
    run = evaluator(made, backend)
    samples = samples_of(tables)
    got, wanted = results(run, samples), defined(program, made, run, tables, only)
    step = 1 if only is None else max(1, max(map(len, got.values())) // only)
    for name in wanted:
        for place, (a, b) in enumerate(zip(got[name][::step], wanted[name], strict=True)):
            reported = f"{name} at result {place}: {a} instead of {b}\n{got[name]}\n{wanted[name]}"
            assert same(a, b), f"{reported}\n{show_program(program)}\n{made.positions.time}"
    return got
