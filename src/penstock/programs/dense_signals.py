"""Choose the dense path for signals over regular time, and build its stage."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from penstock.kernels.signals.coalesce import beginnings, intervals
from penstock.loop.nodes import TYPES
from penstock.lower.signals.dense import Dense, dense, fits
from penstock.programs.dense_kernels import CompiledDense
from penstock.programs.signals import SignalProgram
from penstock.runtime.programs import Call
from penstock.runtime.session import Context
from penstock.runtime.signals.dense import DenseSignals
from penstock.runtime.signals.dense_stage import Clock, DenseStage
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
