"""The whole compiler, top to bottom: a plan goes in, a query that can be run comes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache, partial
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.expr.nodes import Expr
from penstock.ir import join_nodes as jn
from penstock.ir import nodes as ir
from penstock.ir.signature import signature
from penstock.lower.lanes import columns_kept, spell
from penstock.lower.plan_to_ir import to_ir
from penstock.lower.split import fits_emission, split_results
from penstock.lower.window_program import BOUNDS, Window
from penstock.passes.choose_aggregator import choices, in_panes, preferred
from penstock.passes.coarse_times import coarse_times
from penstock.passes.order import order_of_keys_is_seen, sees_order
from penstock.passes.pipeline import optimise
from penstock.passes.scan_predicates import scan_predicates
from penstock.plan.nodes import Plan
from penstock.plan.schema import schema_of, sources_of, tables_of
from penstock.plan.verify import verify as verify_plan
from penstock.programs.dense_signals import dense_stage
from penstock.programs.joins import JoinProgram
from penstock.programs.lane_reducers import sorter
from penstock.programs.lanes import LaneProgram, distinct_runs
from penstock.programs.rows import CompiledRows
from penstock.programs.signals import SignalProgram
from penstock.programs.windows import CompiledWindow
from penstock.programs.workshop import Backend, Workshop
from penstock.runtime.adapt.watch import JoinReport
from penstock.runtime.engine import Engine
from penstock.runtime.flow import Stage
from penstock.runtime.held_stages import DistinctStage, Held, TopStage
from penstock.runtime.indexer import Indexer
from penstock.runtime.joins.lookup import TableStage
from penstock.runtime.metrics import Metrics
from penstock.runtime.row_stages import MergeStage, RowsStage, SourceStage
from penstock.runtime.session import Context, Session, StageSpec
from penstock.runtime.window_stage import WindowStage
from penstock.types.joins import Lookup
from penstock.types.time import Time
from penstock.types.windows import Steps

if TYPE_CHECKING:
    from penstock.codegen.cache import KernelCache


@lru_cache(maxsize=128)
def compile_plan(plan: Plan, off: frozenset[str] = frozenset()) -> Compiled:
    """Compile a logical plan. `off` names optimiser passes to leave out, and fast paths: "dense_signals".

    Plans compare by structure: asking the same query again, even one written anew, finds its kernels.
    """
    verify_plan(plan)
    trace: list[tuple[str, ir.Program]] = []
    raw = to_ir(plan)
    program = optimise(raw, off, trace)
    return Compiled(plan, raw, program, tuple(trace), off)


@dataclass(frozen=True)
class Compiled:
    """A query in all its forms. Kernels are made when a run first needs them."""

    plan: Plan
    raw: ir.Program
    program: ir.Program
    trace: tuple[tuple[str, ir.Program], ...]
    off: frozenset[str] = frozenset()
    _wired: dict[tuple[str, str | None], tuple[Workshop, list[StageSpec]]] = field(default_factory=dict)
    reports: dict[str, JoinReport] = field(default_factory=dict)

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of the result."""
        return schema_of(self.plan)

    @cached_property
    def columns(self) -> dict[str, tuple[str, ...]]:
        """The columns of each stream that the query reads."""
        declared = {source.name: source for source in sources_of(self.plan)}
        found: dict[str, set[str]] = {name: set() for name in declared}
        for each in self.program.objects:
            if isinstance(each.body, ir.Input):
                names = {*each.schema.names, each.time.column}
                found[each.body.stream] |= names
        return {
            name: tuple(column for column in source.schema.names if column in found[name])
            for name, source in declared.items()
        }

    @cached_property
    def ordered(self) -> bool:
        """Whether the answer can depend on the order of rows of one time."""
        return any(sees_order(each.body) for each in self.program.objects)

    @cached_property
    def predicates(self) -> dict[str, Expr]:
        """What is true of every row of a stream that the query looks at, for streams with rows it does not."""
        return scan_predicates(self.program)

    @cached_property
    def coarse_times(self) -> dict[str, Steps]:
        """How finely the query looks at the times of a stream, for streams of which panes are all it asks for."""
        return coarse_times(self.program)

    @property
    def table_columns(self) -> dict[str, tuple[str, ...]]:
        """The columns of each table that the query reads."""
        found: dict[str, set[str]] = {table.name: set() for table in tables_of(self.plan)}
        for each in self.program.objects:
            if isinstance(each.body, jn.Table):
                found[each.body.name] |= set(each.schema.names)
        return {
            table.name: tuple(name for name in table.schema.names if name in found[table.name])
            for table in tables_of(self.plan)
        }

    @property
    def signature(self) -> dict[str, str]:
        """What saved state must agree with to be taken up by this query."""
        return signature(self.program)

    def open(self, engine: Engine, bounded: bool = True) -> Session:
        """Start a run."""
        _, specs = self.wired(engine.backend, engine.aggregator)
        counts_output = not _stateful(self.program[self.program.output], self.program)
        context = Context(engine, Metrics(), bounded)
        return Session(specs, self.program.output, counts_output, self.schema, context)

    def wired(self, backend: str, aggregator: str | None = None) -> tuple[Workshop, list[StageSpec]]:
        """The stages for a back end and an aggregator, and the place where their kernels are made.

        Kept, so that a second run of the same query finds its kernels ready.
        """
        key = backend, aggregator
        if key not in self._wired:
            workshop = Workshop(backend_named(backend))
            self._wired[key] = workshop, Wiring(self, workshop, aggregator).stages()
        return self._wired[key]

    def explain(self, stage: str | None = None) -> str:
        """Show the query at one stage of its way."""
        from penstock.explain import explain  # noqa: PLC0415 - only readers of plans pay for it

        return explain(self, stage)


@cache
def backend_named(name: str) -> Backend:
    """Give the function that makes a kernel callable."""
    if name == "interpret":
        from penstock.loop.interpret import interpret  # noqa: PLC0415

        return lambda kernel: partial(interpret, kernel)
    from penstock.codegen.tiers import TieredKernel  # noqa: PLC0415 - loads LLVM

    kernels = _kernel_cache()
    return lambda kernel: TieredKernel(kernel, kernels)


@cache
def _kernel_cache() -> KernelCache:
    from penstock.codegen.cache import KernelCache, default_directory  # noqa: PLC0415

    return KernelCache(default_directory())


def offer_objects(objects: Mapping[str, bytes]) -> None:
    """Take object code that another process compiled; what fits neither kernel nor machine is never used."""
    if objects:
        _kernel_cache().offer(objects)


def objects_of(program: ir.Program) -> dict[str, bytes]:
    """Compile the kernels that a run begins with, and give their object code for other processes to use."""
    from penstock.codegen.cache import object_key  # noqa: PLC0415
    from penstock.codegen.native import compile_kernel  # noqa: PLC0415 - loads LLVM
    from penstock.explain import kernels  # noqa: PLC0415

    made = [compile_kernel(kernel, _kernel_cache()) for kernel in kernels(program)]
    return {object_key(each.kernel, each.effort): each.object_code for each in made}


@dataclass(frozen=True)
class Wiring:
    """Turn each temporal object into stages of the running pipeline."""

    compiled: Compiled
    workshop: Workshop
    aggregator: str | None = None

    def stages(self) -> list[StageSpec]:
        program = self.compiled.program
        return [spec for each in program.objects for spec in self._stages_of(each, program)]

    def _stages_of(self, this: ir.Object, program: ir.Program) -> list[StageSpec]:
        match this.body:
            case ir.Input(stream=stream):
                return [StageSpec(this.name, (), self._source(this, stream), stream)]
            case ir.Samples() as body:
                rows = CompiledRows(body, program[body.source], this, self.workshop)
                return [StageSpec(this.name, (body.source,), self._rows(rows, this))]
            case ir.Reduce() as body if in_panes(body, program):
                return self._reduce(this, body, program[body.source])
            case ir.Reduce() | ir.Attach() | ir.Lookback() | ir.Apply() as body:
                return self._lanes(this, program[body.source])
            case jn.Table(name=table):
                return [StageSpec(this.name, (), lambda context: TableStage(), table=table)]
            case jn.Join() | jn.Asof() | jn.RollingJoin() as body:
                return self._join(this, program[body.left], program[body.right])
            case ir.Merge(sources=sources):
                origins = [_streams_behind(name, program) for name in sources]
                return [StageSpec(this.name, sources, lambda context: MergeStage(origins))]
            case ir.Distinct(within=int() as within) as body:
                first = not _stateful(program[body.source], program)
                runs = distinct_runs(this, body, within, self.workshop, first)
                return [StageSpec(this.name, (body.source,), runs)]
            case ir.Distinct() as body:
                return [StageSpec(this.name, (body.source,), self._distinct(this, body))]
            case ir.Top() as body:
                return [StageSpec(this.name, (body.source,), self._top(this, body))]
            case ir.Signals(sources=sources) as body:
                sampled = [program[name] for name in sources]
                signals = SignalProgram(this, body, sampled, self.workshop, self.aggregator)
                counted = [not _stateful(each, program) for each in sampled]
                dense = None if "dense_signals" in self.compiled.off else dense_stage(signals, counted)
                return [StageSpec(this.name, sources, dense or signals.stage(counted))]

    def _reduce(self, this: ir.Object, body: ir.Reduce, source: ir.Object) -> list[StageSpec]:
        """One stage; two where results need what kernels leave to Arrow."""
        first, alone = not _stateful(source, self.compiled.program), self._filter(body.where, source)
        if fits_emission(body, source):
            window = self._compiled(body, source, this)
            return [StageSpec(this.name, (source.name,), _window_stage(window, first, alone))]
        reduce, plain, after = split_results(this, body, source)
        window = self._compiled(reduce, source, plain)
        rows = CompiledRows(after, plain, this, self.workshop)
        return [
            StageSpec(plain.name, (source.name,), _window_stage(window, first, alone)),
            StageSpec(this.name, (plain.name,), lambda context: RowsStage(rows, context.metrics, 0)),
        ]

    def _filter(self, where: Expr | None, source: ir.Object) -> Callable[[], Stage] | None:
        """Make a filter that a kernel contains by itself: rows that come too late never reach the kernel."""
        if where is None:
            return None
        nothing = replace(source, schema=pa.schema([]))
        body = ir.Samples(source.name, where, ())
        return lambda: RowsStage(CompiledRows(body, source, nothing, self.workshop), Metrics(), 0)

    def _compiled(self, body: ir.Reduce, source: ir.Object, result: ir.Object) -> CompiledWindow:
        sliding = preferred(body.domain, self.aggregator)
        return CompiledWindow(Window(body, source, result), self.workshop, sliding)

    def _source(self, this: ir.Object, stream: str) -> Callable[[Context], Stage]:
        source = next(each for each in sources_of(self.compiled.plan) if each.name == stream)
        program = self.compiled.program
        schema = this.schema if _needs_stored_time(this, program) else _without(this.schema, this.time.column)
        readers = _paths(this.name, program)
        assert isinstance(this.body, ir.Input)
        sequence = this.body.sequence
        return lambda context: SourceStage(
            this.time,
            source.lateness,
            source.on_bad,
            schema,
            readers,
            context.bounded,
            context.metrics,
            sequence,
        )

    def _rows(self, rows: CompiledRows, this: ir.Object) -> Callable[[Context], Stage]:
        paths = self._open_paths(this)
        return lambda context: RowsStage(rows, context.metrics, paths)

    def _open_paths(self, this: ir.Object) -> int:
        """How often a row that ends here would have been counted further on; rows of tables are not counted."""
        program = self.compiled.program
        uncounted = _stateful(this, program) or not _streams_behind(this.name, program)
        return 0 if uncounted else _paths(this.name, program)

    def _held(self, this: ir.Object, source: str) -> Callable[[Context], Held]:
        program = self.compiled.program
        first = not _stateful(program[source], program)
        return lambda context: Held(program[source].schema, this.time, context.metrics if first else None)

    def _distinct(self, this: ir.Object, body: ir.Distinct) -> Callable[[Context], Stage]:
        held = self._held(this, body.source)
        sort = sorter(self.workshop)
        return lambda context: DistinctStage(
            held(context), body.subset, body.keep, sort, lambda: self._indexer(len(body.subset))
        )

    def _top(self, this: ir.Object, body: ir.Top) -> Callable[[Context], Stage]:
        ends = replace(this, time=Time(BOUNDS[1], this.time.type, this.time.unit, shift=-1))
        held = self._held(ends, body.source)
        sort = sorter(self.workshop)
        return lambda context: TopStage(held(context), body.k, body.by, body.ties, this.time, sort)

    def _indexer(self, width: int) -> Indexer:
        return Indexer(width, self.workshop.index, self.workshop.texts)

    def _lanes(self, this: ir.Object, source: ir.Object) -> list[StageSpec]:
        """Three stages: columns of keys and arguments; frames; fields over both."""
        program = self.compiled.program
        made = spell(this, source, columns_kept(this, source))
        chosen = choices(program, self.aggregator).get(this.name, ())
        algorithms = tuple(each.algorithm for each in chosen)
        by_key = isinstance(this.body, ir.Reduce) and order_of_keys_is_seen(this.body, program)
        lanes = LaneProgram(this, source, made, self.workshop, algorithms, by_key)
        return lanes.stages(first=not _stateful(source, program))

    def _join(self, this: ir.Object, left: ir.Object, right: ir.Object) -> list[StageSpec]:
        program = self.compiled.program
        chosen = choices(program, self.aggregator).get(this.name, ())
        algorithms = tuple(each.algorithm for each in chosen)
        counted = not _stateful(left, program), not _stateful(right, program)
        join = JoinProgram(this, left, right, self.workshop, algorithms, self.compiled.reports)
        return join.stages(counted, self._open_paths(this))


def _window_stage(
    window: CompiledWindow, first: bool, alone: Callable[[], Stage] | None
) -> Callable[[Context], WindowStage]:
    return lambda context: WindowStage(window, context.engine, context.metrics if first else None, alone)


# --- implied times ----------------------------------------------------------------------------------------


def _needs_stored_time(this: ir.Object, program: ir.Program) -> bool:
    """Whether somebody reads an input's rows as they are: kernels compute an implied time themselves."""
    readers = [each.body for each in program.objects if this.name in ir.sources_of(each.body)]
    return program.output == this.name or any(
        isinstance(body, ir.Merge | ir.Distinct | ir.Top | jn.Join | jn.Asof | jn.RollingJoin)
        for body in readers
    )


def _without(schema: pa.Schema, name: str) -> pa.Schema:
    return pa.schema([each for each in schema if each.name != name])


# --- who counts rows -------------------------------------------------------------------------------------


_COUNTING = (
    ir.Reduce
    | ir.Attach
    | ir.Lookback
    | ir.Apply
    | ir.Distinct
    | ir.Top
    | ir.Signals
    | jn.Asof
    | jn.RollingJoin
)


def _counts(body: ir.Body) -> bool:
    """Whether a stage counts the rows it takes: rows pass a table as they pass a filter."""
    return isinstance(body, _COUNTING) or (isinstance(body, jn.Join) and not isinstance(body.pairing, Lookup))


def _stateful(this: ir.Object, program: ir.Program) -> bool:
    """Whether rows of an object have been through a window, or another stage that counts them."""
    if _counts(this.body):
        return True
    return any(_stateful(program[name], program) for name in ir.sources_of(this.body))


def _streams_behind(name: str, program: ir.Program) -> frozenset[str]:
    """The streams that an object's rows come from."""
    body = program[name].body
    if isinstance(body, ir.Input):
        return frozenset({body.stream})
    return frozenset().union(*(_streams_behind(each, program) for each in ir.sources_of(body)))


def _paths(name: str, program: ir.Program) -> int:
    """How many ways lead from an object to a stage that counts its rows as accepted."""
    found = 1 if name == program.output else 0
    for each in program.objects:
        uses = ir.sources_of(each.body).count(name)
        found += uses * (1 if _counts(each.body) else _paths(each.name, program)) if uses else 0
    return found
