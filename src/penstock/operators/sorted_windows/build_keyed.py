"""Build the stages that keep partial states per key, and bind their kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial

import pyarrow as pa

from penstock.algorithms.kernel_factory import KernelFactory, once
from penstock.algorithms.keyed_states.kernel import KeyedKernel, KeyedSpec
from penstock.algorithms.keyed_states.results import KeyedResults
from penstock.algorithms.keyed_states.table import KeyedCall
from penstock.algorithms.sorted_partitions.build import sorter
from penstock.expr import nodes as ex
from penstock.ir import nodes as ir
from penstock.loop.nodes import Type
from penstock.operators.look_back.incremental import RESTORING, IncrementalLookBack
from penstock.operators.look_back.kernels import look_back
from penstock.operators.sorted_windows.incremental_counts import IncrementalCounts
from penstock.operators.sorted_windows.incremental_sessions import JUDGING, IncrementalSessions
from penstock.operators.sorted_windows.kernels.counts import counts
from penstock.operators.sorted_windows.kernels.sessions import sessions
from penstock.physical.split_windows import Spelled
from penstock.runtime.kernels import Call, Texts
from penstock.runtime.session import Context
from penstock.runtime.stage import Stage
from penstock.types.windows import Count, LookBack, Session

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
        exprs = [e for each in self.spec.reductions for e in (*each.args, each.where) if e is not None]
        read = [name for expr in exprs for name in ex.columns_of(expr)]
        return tuple(dict.fromkeys([*self.spec.keys, *read]))

    @cached_property
    def states(self) -> tuple[Type, ...]:
        return tuple(state.type for monoid in self.spec.monoids for state in monoid.states)

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        return self.spec.types

    @property
    def index(self) -> Call | None:
        return self.kernel_factory.index(len(self.spec.keys)) if self.spec.keys else None

    @property
    def texts(self) -> Texts:
        return self.kernel_factory.texts

    def kernel(self, nullable: frozenset[str], variant: str) -> KeyedCall:
        return once(self._kernels, (nullable, variant), lambda: self._compiled(nullable, variant))

    def _compiled(self, nullable: frozenset[str], variant: str) -> KeyedCall:
        made = self.build(replace(self.spec, nullable=nullable), variant)
        call = self.kernel_factory.call((self.name, "states", nullable, variant), lambda: made.kernel)
        return KeyedCall(call, made.bindings, made.outputs)


@lru_cache(maxsize=64)  # a second run of a query finds its kernels
def _sessions(spec: KeyedSpec, variant: str) -> KeyedKernel:
    return sessions(spec, judges=variant == JUDGING)


@lru_cache(maxsize=64)
def _counts(window: Count, spec: KeyedSpec, variant: str) -> KeyedKernel:
    return counts(spec, window)


@lru_cache(maxsize=64)
def _look_back(span: LookBack, spec: KeyedSpec, variant: str) -> KeyedKernel:
    return look_back(spec, span, restore=variant == RESTORING)


def keyed_stage(
    this: ir.Object,
    made: Spelled,
    schema: pa.Schema,
    by_key: bool,
    kernel_factory: KernelFactory,
    context: Context,
) -> Stage:
    """Return the stage of a windowed object that keeps partial states per key."""
    body = this.body
    ready = made.ready
    spec = KeyedSpec(
        ready.schema,
        ready.time,
        made.keys,
        tuple(each.as_ir() for each in made.reductions),
        tuple(each.type for each in made.reductions),
    )
    sort = sorter(kernel_factory)
    match body:
        case ir.Lookback(spans=(span,)):
            program = CompiledStates(this.name, spec, partial(_look_back, span), kernel_factory)
            return IncrementalLookBack(program, schema, ready.schema, ready.time, sort, context.metrics)
        case ir.Reduce(domain=Session(gap=gap)):
            program = CompiledStates(this.name, spec, _sessions, kernel_factory)
            results = KeyedResults(schema, gap, sort, by_key)
            return IncrementalSessions(program, results, gap, ready.schema, context.metrics)
        case ir.Reduce(domain=Count() as window):
            program = CompiledStates(this.name, spec, partial(_counts, window), kernel_factory)
            results = KeyedResults(schema, 1, sort, by_key)
            return IncrementalCounts(program, results, window, ready.schema, ready.time, context.metrics)
    raise AssertionError(f"no states per key for {body}")
