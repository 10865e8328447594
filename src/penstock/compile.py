"""The whole compiler, top to bottom: plan → IR → passes → physical plan → pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.algorithms.kernel_factory import Backend, KernelFactory, once
from penstock.analysis.panes import coarse_times, depends_on_order
from penstock.analysis.predicates import scan_predicates
from penstock.analysis.struct_fields import narrowed_structs
from penstock.caches import CACHES
from penstock.expr.nodes import Expr
from penstock.ir import nodes as ir
from penstock.ir import nodes as jn
from penstock.ir.signature import signature
from penstock.operators.build import build
from penstock.passes.pipeline import optimise
from penstock.physical import nodes as ph
from penstock.physical.build import physical
from penstock.physical.memory_need import holders, operator_names
from penstock.physical.nodes import Settings
from penstock.physical.show import show as show_physical
from penstock.plan.nodes import Plan
from penstock.plan.schema import schema_of, sources_of, tables_of
from penstock.plan.verify import verify as verify_plan
from penstock.runtime.adapt.controller import USUAL, Policy
from penstock.runtime.adapt.known_plan import KnownPlan
from penstock.runtime.buffers import Reader
from penstock.runtime.engine import Engine
from penstock.runtime.memory.budget import Budget
from penstock.runtime.memory.budgeted_session import BudgetedSession, Memory, RowNeed
from penstock.runtime.metrics import JoinReport, Metrics
from penstock.runtime.session import Context, Pipeline, Session
from penstock.translate import to_ir
from penstock.types.windows import Steps

if TYPE_CHECKING:
    from penstock.codegen.cache import KernelCache


@CACHES.results(most=128)
def compile_plan(plan: Plan, off: frozenset[str] = frozenset()) -> Compiled:
    """Compile a logical plan. `off` names optimiser passes and fast paths ("dense_signals") to leave out.

    Plans compare by structure, so an equal query, even if written anew, reuses its kernels.
    """
    verify_plan(plan)
    trace: list[tuple[str, ir.Program]] = []
    raw = to_ir(plan)
    program = optimise(raw, off, trace)
    return Compiled(plan, raw, program, tuple(trace), off)


@dataclass(frozen=True)
class Compiled:
    """A query at all stages of compilation. A run builds kernels on first use."""

    plan: Plan
    raw: ir.Program
    program: ir.Program
    trace: tuple[tuple[str, ir.Program], ...]
    off: frozenset[str] = frozenset()
    _pipelines: dict[tuple[str, ph.Mode, str | None], Pipeline] = field(default_factory=dict)
    _factories: dict[str, KernelFactory] = field(default_factory=dict)
    reports: dict[str, JoinReport] = field(default_factory=dict)

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of the result."""
        return schema_of(self.plan)

    @cached_property
    def columns(self) -> dict[str, tuple[str, ...]]:
        """The columns of each stream that the query reads."""
        return {name: tuple(schema.names) for name, schema in self.inputs.items()}

    @cached_property
    def inputs(self) -> dict[str, pa.Schema]:
        """The columns of each stream that the query reads, with their declared types."""
        declared = {source.name: source for source in sources_of(self.plan)}
        found: dict[str, set[str]] = {name: set() for name in declared}
        for obj in self.program.objects:
            if isinstance(obj.body, ir.Input):
                names = {*obj.schema.names, obj.time.column}
                found[obj.body.stream] |= names
        return {name: _columns(source.schema, found[name]) for name, source in declared.items()}

    @cached_property
    def ordered(self) -> bool:
        """Whether the result may depend on the order of rows with equal time."""
        return any(depends_on_order(obj.body) for obj in self.program.objects)

    @cached_property
    def predicates(self) -> dict[str, Expr]:
        """The predicate that holds for every row the query uses, for each stream of which it ignores some rows."""
        return scan_predicates(self.program)

    @cached_property
    def coarse_times(self) -> dict[str, Steps]:
        """The time resolution the query needs, for each stream that it reads only by panes."""
        return coarse_times(self.program)

    @cached_property
    def structs(self) -> dict[str, dict[str, pa.DataType]]:
        """The structs of each stream of which the query reads some fields only, with those fields."""
        return narrowed_structs(self.program)

    @property
    def table_columns(self) -> dict[str, tuple[str, ...]]:
        """The columns of each table that the query reads."""
        found: dict[str, set[str]] = {table.name: set() for table in tables_of(self.plan)}
        for obj in self.program.objects:
            if isinstance(obj.body, jn.Table):
                found[obj.body.name] |= set(obj.schema.names)
        return {
            table.name: tuple(name for name in table.schema.names if name in found[table.name])
            for table in tables_of(self.plan)
        }

    @property
    def signature(self) -> dict[str, str]:
        """The signature that saved state must match to be restored into this query."""
        return signature(self.program)

    def physical(self, mode: ph.Mode, aggregator: str | None = None) -> ph.Plan:
        """Return the generic physical plan, which is complete before any row arrives."""
        return physical(self.program, sources_of(self.plan), mode, Settings(aggregator, self.off))

    def open(
        self,
        engine: Engine,
        bounded: bool = True,
        policy: Policy = USUAL,
        known: Mapping[str, KnownPlan] | None = None,
    ) -> Session:
        """Start a run. `policy` says how eagerly it adapts; `known` are the plans of earlier runs, by operator."""
        pipeline = self.pipeline(engine.backend, "bounded" if bounded else "unbounded", engine.aggregator)
        return Session(pipeline, Context(engine, Metrics(), bounded, policy, known or {}))

    def open_within(
        self, engine: Engine, budget: Budget, known: Mapping[str, KnownPlan] | None = None
    ) -> BudgetedSession:
        """Start a run over bounded input that keeps to a memory budget."""
        pipeline = self.pipeline(engine.backend, "bounded", engine.aggregator)
        ordered = partial(self.pipeline, engine.backend, "unbounded", engine.aggregator)
        context = Context(engine, Metrics(), True, USUAL, known or {})
        return BudgetedSession(pipeline, ordered, context, self.memory(budget))

    def memory(self, budget: Budget) -> Memory:
        """Return what a budget applies to: the streams, and what their rows need."""
        plan = self.physical("bounded")
        needs = holders(plan)
        row = RowNeed(max(need.times for need in needs), max(need.plus for need in needs)) if needs else None
        times = {source.name: source.time for source in sources_of(self.plan)}
        return Memory(budget, times, row, operator_names(plan))

    def pipeline(self, backend: str, mode: ph.Mode, aggregator: str | None = None) -> Pipeline:
        """Return the stages of the physical plan, one for each node, cached so that later runs reuse the kernels."""
        key = backend, mode, aggregator
        if key not in self._pipelines:
            kernels = once(
                self._factories, backend, lambda: KernelFactory(backend_named(backend), reader_of(backend))
            )
            plan = self.physical(mode, aggregator)
            self._pipelines[key] = build(plan, self.schema, kernels, self.reports)
        return self._pipelines[key]

    def explain_run(self, session: Session) -> str:
        """Render the physical plan of a run as it is now, and what has changed since it began."""
        plan, variants = self.physical("unbounded"), session.variants
        nodes = tuple(variants.get(node.id, node) for node in plan.nodes)
        changes = [f"  {change}" for change in session.metrics.adaptations] or ["  none"]
        sensors = [f"  {name}: {shown}" for name, shown in session.sensors.items()] or ["  none"]
        return "\n".join(
            [
                show_physical(replace(plan, nodes=nodes)),
                "adaptations:",
                *changes,
                "sensors (means of late tasks):",
                *sensors,
            ]
        )

    def explain(self, stage: str | None = None) -> str:
        """Render the query at one stage of compilation."""
        from penstock.explain import explain  # noqa: PLC0415 - imported only for explain

        return explain(self, stage)


def _columns(schema: pa.Schema, names: set[str]) -> pa.Schema:
    if names.issuperset(schema.names):
        return schema
    return pa.schema([column for column in schema if column.name in names])


@cache
def backend_named(name: str) -> Backend:
    """Return the function that compiles a kernel to a callable."""
    if name == "interpret":
        from penstock.loop.interpret import Interpreted  # noqa: PLC0415

        return Interpreted
    from penstock.codegen.tiers import TieredKernel  # noqa: PLC0415 - loads LLVM

    kernels = kernel_cache()
    return lambda kernel: TieredKernel(kernel, kernels)


def reader_of(backend: str) -> Reader | None:
    """Return the native reader of batches, unless kernels are interpreted."""
    if backend == "interpret":
        return None
    from penstock.codegen.batch_reader import BATCH_READER  # noqa: PLC0415 - loads LLVM

    return BATCH_READER


@cache
def kernel_cache() -> KernelCache:
    """Return the cache of this process's compiled kernels."""
    from penstock.codegen.cache import KernelCache, default_directory  # noqa: PLC0415

    return KernelCache(default_directory())


def offer_objects(objects: Mapping[str, bytes]) -> None:
    """Add object code that another process compiled; code for another kernel or machine is never used."""
    if objects:
        kernel_cache().offer(objects)


def forget(files: bool = False) -> None:
    """Drop compiled queries, all else that is kept between runs, and code; from disk, too, if `files`."""
    CACHES.clear()
    kernel_cache().clear(files)


def objects_of(compiled: Compiled) -> dict[str, bytes]:
    """Compile the kernels a run starts with, and return their object code for other processes."""
    from penstock.codegen.cache import object_key  # noqa: PLC0415
    from penstock.codegen.native import compile_kernel  # noqa: PLC0415 - loads LLVM
    from penstock.codegen.tiers import best_level  # noqa: PLC0415
    from penstock.explain import kernels  # noqa: PLC0415

    plan = compiled.physical("unbounded")
    made = [compile_kernel(kernel, kernel_cache(), best_level(kernel)) for kernel in kernels(plan)]
    return {object_key(kernel.kernel, kernel.effort): kernel.object_code for kernel in made}
