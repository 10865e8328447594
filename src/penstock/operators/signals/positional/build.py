"""Choose the dense path for signals over regular time, and build its stage."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from penstock.analysis.positions import fits
from penstock.loop.nodes import TYPES
from penstock.operators.signals.build import SignalProgram
from penstock.operators.signals.kernels.coalesce import beginnings, intervals
from penstock.operators.signals.positional.build_kernels import CompiledDense
from penstock.operators.signals.positional.evaluate import DenseSignals
from penstock.operators.signals.positional.kernels import Dense, dense
from penstock.operators.signals.positional.stage import Clock, DenseStage
from penstock.runtime.kernels import Call
from penstock.runtime.session import Context
from penstock.types.arrow import without_column

_KERNELS = {"beginnings": beginnings, "intervals": intervals}


def dense_stage(signals: SignalProgram) -> Callable[[Context], DenseStage] | None:
    """Return a constructor of the dense stage, or None if the program does not fit the dense path."""
    inputs = [(each.schema, each.time) for each in signals.sources]
    if not fits(signals.program, inputs):
        return None
    found = dense(signals.program, inputs)
    program, kernel_factory = CompiledDense(found, signals.kernel_factory), signals.kernel_factory
    few = signals.stage()

    def kernels(name: str, dtype: np.dtype, nullable: bool) -> Call:
        type = TYPES[f"{dtype.kind}{8 * dtype.itemsize}"]
        return kernel_factory.call((name, type, nullable), partial(_KERNELS[name], type, nullable))

    def make(context: Context) -> DenseStage:
        return DenseStage(
            DenseSignals(program, context.engine.workers),
            _clock(found),
            [without_column(schema, time.column) for schema, time in inputs],
            signals.program.schema,
            signals.this.schema,
            context.metrics,
            kernels,
            partial(few, context),
        )

    return make


def _clock(found: Dense) -> Clock:
    time, pattern = found.positions.time, found.pattern
    if pattern is not None:
        return Clock(0, pattern.every, closes=True)
    period = time.period or 1
    return Clock(time.start - found.positions.phase * period, found.step * period)
