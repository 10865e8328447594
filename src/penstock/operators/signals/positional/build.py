"""Build the stage of signals over regular time, and bind its kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial

import numpy as np

from penstock.algorithms.kernel_factory import KernelFactory
from penstock.loop.abi import OutputColumn, PastResults
from penstock.loop.nodes import MACHINE_TYPES
from penstock.operators.signals.kernels.coalesce import beginnings, intervals
from penstock.operators.signals.positional.evaluate import DenseCall, DenseSignals, Nullable
from penstock.operators.signals.positional.kernels import Dense, DenseKernel, dense
from penstock.operators.signals.positional.stage import DenseStage, ResultTimes
from penstock.operators.signals.stage import SignalStage
from penstock.physical import nodes as ph
from penstock.runtime.kernels import Call
from penstock.runtime.session import Context
from penstock.types.arrow import without_column


class CompiledDense:
    """A program on the dense path, with kernels built on demand (the runtime's `DenseProgram`)."""

    def __init__(self, dense: Dense, kernel_factory: KernelFactory) -> None:
        self._dense, self._kernel_factory = dense, kernel_factory
        reach = dense.reach
        self.past, self.future, self.lasting = reach.past, reach.future, dense.lasting
        self.shortest, self.sequential = dense.shortest, dense.sequential
        self.grid, self.phase = dense.positions.grid, dense.positions.phase
        self._step, self._pattern, self.marks = dense.step, dense.pattern, dense.marks
        self._calls: dict[tuple[object, ...], DenseCall] = {}

    @cached_property
    def outputs(self) -> tuple[OutputColumn, ...]:
        return self._edge.outputs

    @property
    def memories(self) -> tuple[PastResults, ...]:
        return self._edge.memories

    @cached_property
    def _edge(self) -> DenseKernel:
        """The edge kernel (with bounds checks) for samples without nulls; it defines outputs and memories, but may never run."""
        return self._dense.kernel({}, edge=True)

    def call(self, nullable: Nullable, edge: bool, wide: bool, lost: bool) -> DenseCall:
        key = (frozenset((name, held) for name, held in nullable.items() if held), edge, wide, lost)
        if key not in self._calls:
            plain = edge and not wide and not any(nullable.values())
            kernel = self._edge if plain else self._dense.kernel(nullable, edge=edge, wide=wide, lost=lost)
            self._calls[key] = _call(kernel, self._kernel_factory, (self, *key))
        return self._calls[key]

    def outputs_before(self, position: int) -> int:
        pattern = self._pattern
        if pattern is None:
            return (position + self.phase) // self._step
        return -((-position * pattern.period - pattern.start) // pattern.every)


def _call(kernel: DenseKernel, kernel_factory: KernelFactory, key: tuple[object, ...]) -> DenseCall:
    return DenseCall(
        kernel_factory.call(key, lambda: kernel.kernel),
        kernel.inputs,
        kernel.places,
        kernel.outputs,
        kernel.scratch,
        kernel.memories,
    )


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
