"""Bind the kernels of an operator that keeps states per key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import pyarrow as pa

from penstock.algorithms.kernel_factory import KernelFactory, once
from penstock.algorithms.keyed_states.kernel import KeyedKernel, KeyedSpec
from penstock.algorithms.keyed_states.table import KeyedCall
from penstock.algorithms.sorted_partitions.reducers import FrameReduction
from penstock.expr import nodes as ex
from penstock.loop.nodes import Type
from penstock.runtime.kernels import Call, TextKernels
from penstock.types.time import Time

Build = Callable[[KeyedSpec, str], KeyedKernel]


@dataclass
class CompiledStates:
    """States per key with kernels built on demand (the drivers' `KeyedProgram`)."""

    name: str
    spec: KeyedSpec
    build: Build
    kernel_factory: KernelFactory
    _kernels: dict[tuple[frozenset[str], str], KeyedCall] = field(default_factory=dict)

    @property
    def keys(self) -> tuple[pa.Field, ...]:
        return tuple(self.spec.schema.field(name) for name in self.spec.keys)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns that kernels read."""
        exprs = [
            e
            for reduction in self.spec.reductions
            for e in (*reduction.args, reduction.where)
            if e is not None
        ]
        read = [name for expr in exprs for name in ex.columns_of(expr)]
        return tuple(dict.fromkeys([*self.spec.keys, *read]))

    @cached_property
    def states(self) -> tuple[Type, ...]:
        return tuple(state.type for monoid in self.spec.monoids for state in monoid.states)

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        return self.spec.types

    @property
    def trees(self) -> int:
        return len(self.spec.trees)

    @property
    def index(self) -> Call | None:
        return self.kernel_factory.index(len(self.spec.keys)) if self.spec.keys else None

    @property
    def texts(self) -> TextKernels:
        return self.kernel_factory.texts

    def kernel(self, nullable: frozenset[str], variant: str) -> KeyedCall:
        return once(self._kernels, (nullable, variant), lambda: self._compiled(nullable, variant))

    def _compiled(self, nullable: frozenset[str], variant: str) -> KeyedCall:
        made = self.build(replace(self.spec, nullable=nullable), variant)
        call = self.kernel_factory.call((self.name, "states", nullable, variant), lambda: made.kernel)
        return KeyedCall(call, made.bindings, made.outputs)


def keyed_spec(
    schema: pa.Schema, time: Time, keys: tuple[str, ...], reductions: Sequence[FrameReduction]
) -> KeyedSpec:
    """What kernels read and reduce, of rows of a schema and a time."""
    return KeyedSpec(
        schema,
        time,
        keys,
        tuple(reduction.as_ir() for reduction in reductions),
        tuple(reduction.type for reduction in reductions),
    )
