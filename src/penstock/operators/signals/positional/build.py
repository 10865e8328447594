"""Build the stage of signals over regular time, and bind its kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from penstock.algorithms.kernel_factory import KernelFactory
from penstock.loop.nodes import MACHINE_TYPES
from penstock.operators.signals.kernels.coalesce import beginnings, intervals
from penstock.operators.signals.positional.build_kernels import CompiledDense
from penstock.operators.signals.positional.evaluate import DenseSignals
from penstock.operators.signals.positional.kernels import Dense, dense
from penstock.operators.signals.positional.stage import DenseStage, ResultTimes
from penstock.operators.signals.stage import SignalStage
from penstock.physical import nodes as ph
from penstock.runtime.kernels import Call
from penstock.runtime.session import Context
from penstock.types.arrow import without_column

_KERNELS = {"beginnings": beginnings, "intervals": intervals}


def positional(
    op: ph.Signals,
    node: ph.Node,
    sources: Sequence[ph.Node],
    kernel_factory: KernelFactory,
    few: Callable[[Context], SignalStage],
) -> Callable[[Context], DenseStage]:
    """Return the constructor of the positional stage; `few` makes the stage for the rows of a short input."""
    inputs = [(source.schema, source.clock) for source in sources]
    found = dense(op.program, inputs)
    program = CompiledDense(found, kernel_factory)

    def kernels(name: str, dtype: np.dtype, nullable: bool) -> Call:
        type = MACHINE_TYPES[f"{dtype.kind}{8 * dtype.itemsize}"]
        return kernel_factory.call((name, type, nullable), partial(_KERNELS[name], type, nullable))

    def make(context: Context) -> DenseStage:
        return DenseStage(
            DenseSignals(program, context.engine.workers),
            _clock(found),
            [without_column(schema, time.column) for schema, time in inputs],
            op.program.schema,
            node.schema,
            context.metrics,
            kernels,
            partial(few, context),
        )

    return make


def _clock(found: Dense) -> ResultTimes:
    time, pattern = found.positions.time, found.pattern
    if pattern is not None:
        return ResultTimes(0, pattern.every, closes=True)
    period = time.period or 1
    return ResultTimes(time.start - found.positions.phase * period, found.step * period)
