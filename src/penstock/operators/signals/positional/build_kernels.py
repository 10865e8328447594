"""Bind the kernels of the dense signal path to the back end."""

from __future__ import annotations

from functools import cached_property

from penstock.algorithms.kernel_factory import KernelFactory
from penstock.loop.abi import OutputColumn, PastResults
from penstock.operators.signals.positional.evaluate import DenseCall, Nullable
from penstock.operators.signals.positional.kernels import Dense, DenseKernel


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
