"""Build the stages of the pipeline: each IR object becomes one stage or several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from penstock.algorithms.hash_table.indexer import Indexer
from penstock.algorithms.kernel_factory import KernelFactory
from penstock.algorithms.sorted_partitions.build import sorter
from penstock.algorithms.sorted_partitions.held_rows import Held
from penstock.analysis.order import order_of_keys_is_seen
from penstock.analysis.panes import in_panes
from penstock.analysis.row_counting import paths, streams_behind
from penstock.analysis.time_readers import needs_arrival, read_by_time
from penstock.expr.nodes import Column, Expr
from penstock.ir import joins as jn
from penstock.ir import nodes as ir
from penstock.operators.distinct.stage import DistinctStage
from penstock.operators.joins.build import JoinProgram
from penstock.operators.joins.lookup import TableStage
from penstock.operators.pane_aggregate.build import CompiledWindow
from penstock.operators.pane_aggregate.kernels.window import Window
from penstock.operators.pane_aggregate.stage import WindowStage
from penstock.operators.rows.build import CompiledRows
from penstock.operators.rows.stage import RowsStage
from penstock.operators.signals.build import SignalProgram
from penstock.operators.signals.positional.build import dense_stage
from penstock.operators.sorted_windows.build import SortedWindowProgram, distinct_runs
from penstock.operators.topk.stage import TopKStage
from penstock.operators.union.stage import MergeStage
from penstock.physical.choose_algorithm import choices, preferred
from penstock.physical.overflows import overflow_message
from penstock.physical.split_results import fits_emission, split_results
from penstock.physical.split_windows import columns_kept, spell
from penstock.plan.nodes import Source
from penstock.runtime.join_metrics import JoinReport
from penstock.runtime.metrics import Metrics
from penstock.runtime.session import Context, StageSpec
from penstock.runtime.source_stage import SourceStage
from penstock.runtime.stage import Stage
from penstock.types.arrow import without_column
from penstock.types.time import Time
from penstock.types.windows import WINDOW_BOUNDS


@dataclass(frozen=True)
class Wiring:
    """The builder of a program's stages."""

    program: ir.Program
    sources: Sequence[Source]
    kernel_factory: KernelFactory
    aggregator: str | None
    off: frozenset[str]
    reports: dict[str, JoinReport]

    def stages(self) -> list[StageSpec]:
        program = self.program
        return [
            replace(spec, overflow=partial(overflow_message, each, program))
            for each in program.objects
            for spec in self._stages_of(each, program)
        ]

    def _stages_of(self, this: ir.Object, program: ir.Program) -> list[StageSpec]:
        match this.body:
            case ir.Input(stream=stream):
                return [StageSpec(this.name, (), self._source(this, stream), stream)]
            case ir.Samples() as body:
                rows = CompiledRows(body, program[body.source], this, self.kernel_factory)
                computes_time = _computes_time(this, body, program[body.source])
                return [StageSpec(this.name, (body.source,), self._rows(rows, this, computes_time))]
            case ir.Reduce() as body if in_panes(body, program):
                return self._reduce(this, body, program[body.source])
            case ir.Reduce() | ir.Attach() | ir.Lookback() | ir.Apply() as body:
                return self._lanes(this, program[body.source])
            case jn.Table(name=table):
                return [StageSpec(this.name, (), lambda context: TableStage(), table=table)]
            case jn.Join() | jn.Asof() | jn.RollingJoin() as body:
                return self._join(this, program[body.left], program[body.right])
            case ir.Merge(sources=sources):
                origins = [streams_behind(name, program) for name in sources]
                return [StageSpec(this.name, sources, lambda context: MergeStage(origins))]
            case ir.Distinct(within=int() as within) as body:
                runs = distinct_runs(this, body, within, self.kernel_factory)
                return [StageSpec(this.name, (body.source,), runs)]
            case ir.Distinct() as body:
                return [StageSpec(this.name, (body.source,), self._distinct(this, body))]
            case ir.Top() as body:
                return [StageSpec(this.name, (body.source,), self._top(this, body))]
            case ir.Signals(sources=sources) as body:
                sampled = [program[name] for name in sources]
                signals = SignalProgram(this, body, sampled, self.kernel_factory, self.aggregator)
                dense = None if "dense_signals" in self.off else dense_stage(signals)
                return [StageSpec(this.name, sources, dense or signals.stage())]

    def _reduce(self, this: ir.Object, body: ir.Reduce, source: ir.Object) -> list[StageSpec]:
        """Return one stage, or two if Arrow computes part of the results."""
        alone = self._filter(body.where, source)
        if fits_emission(body, source):
            window = self._compiled(body, source, this)
            return [StageSpec(this.name, (source.name,), _window_stage(window, alone))]
        reduce, plain, after = split_results(this, body, source)
        window = self._compiled(reduce, source, plain)
        rows = CompiledRows(after, plain, this, self.kernel_factory)
        return [
            StageSpec(plain.name, (source.name,), _window_stage(window, alone)),
            StageSpec(this.name, (plain.name,), lambda context: RowsStage(rows, context.metrics, 0)),
        ]

    def _filter(self, where: Expr | None, source: ir.Object) -> Callable[[], Stage] | None:
        """Return a constructor of the kernel's filter as a separate stage; it counts late rows, which skip the kernel."""
        if where is None:
            return None
        nothing = replace(source, schema=pa.schema([]))
        body = ir.Samples(source.name, where, ())
        return lambda: RowsStage(CompiledRows(body, source, nothing, self.kernel_factory), Metrics(), 0)

    def _compiled(self, body: ir.Reduce, source: ir.Object, result: ir.Object) -> CompiledWindow:
        sliding = preferred(body.domain, self.aggregator)
        return CompiledWindow(Window(body, source, result), self.kernel_factory, sliding)

    def _source(self, this: ir.Object, stream: str) -> Callable[[Context], Stage]:
        source = next(each for each in self.sources if each.name == stream)
        program = self.program
        schema = (
            this.schema
            if _needs_stored_time(this, program)
            else without_column(this.schema, this.time.column)
        )
        readers = paths(this.name, program)
        assert isinstance(this.body, ir.Input)
        sequence, numbered = this.body.sequence, needs_arrival(stream, program)
        return lambda context: SourceStage(
            this.time,
            source.lateness,
            source.on_bad,
            schema,
            readers,
            context.bounded,
            context.metrics,
            sequence,
            numbered,
        )

    def _rows(self, rows: CompiledRows, this: ir.Object, computes_time: bool) -> Callable[[Context], Stage]:
        open_paths = paths(this.name, self.program)
        return lambda context: RowsStage(rows, context.metrics, open_paths, computes_time)

    def _held(self, this: ir.Object, source: str) -> Callable[[Context], Held]:
        program = self.program
        return lambda context: Held(program[source].schema, this.time, context.metrics)

    def _distinct(self, this: ir.Object, body: ir.Distinct) -> Callable[[Context], Stage]:
        held = self._held(this, body.source)
        sort = sorter(self.kernel_factory)
        return lambda context: DistinctStage(
            held(context), body.subset, body.keep, sort, lambda: self._indexer(len(body.subset))
        )

    def _top(self, this: ir.Object, body: ir.Top) -> Callable[[Context], Stage]:
        ends = replace(this, time=Time(WINDOW_BOUNDS[1], this.time.type, this.time.unit, shift=-1))
        held = self._held(ends, body.source)
        sort = sorter(self.kernel_factory)
        return lambda context: TopKStage(held(context), body.k, body.by, body.ties, this.time, sort)

    def _indexer(self, width: int) -> Indexer:
        return Indexer(width, self.kernel_factory.index, self.kernel_factory.texts)

    def _lanes(self, this: ir.Object, source: ir.Object) -> list[StageSpec]:
        """Return three stages: key and argument columns, frames, and result fields."""
        program = self.program
        made = spell(this, source, columns_kept(this, source))
        chosen = choices(program, self.aggregator).get(this.name, ())
        algorithms = tuple(each.algorithm for each in chosen)
        by_key = isinstance(this.body, ir.Reduce) and order_of_keys_is_seen(this.body, program)
        read_on = read_by_time(this.name, program)
        lanes = SortedWindowProgram(this, source, made, self.kernel_factory, algorithms, by_key, read_on)
        return lanes.stages()

    def _join(self, this: ir.Object, left: ir.Object, right: ir.Object) -> list[StageSpec]:
        program = self.program
        chosen = choices(program, self.aggregator).get(this.name, ())
        algorithms = tuple(each.algorithm for each in chosen)
        join = JoinProgram(this, left, right, self.kernel_factory, algorithms, self.reports)
        return join.stages(paths(this.name, program))


def _window_stage(
    window: CompiledWindow, alone: Callable[[], Stage] | None
) -> Callable[[Context], WindowStage]:
    return lambda context: WindowStage(window, context.engine, context.metrics, alone)


def _computes_time(this: ir.Object, body: ir.Samples, source: ir.Object) -> bool:
    """Return whether samples have another time than their source rows."""
    taken = Column(source.time.column)
    return any(field.name == this.time.column and field.expr != taken for field in body.fields)


# --- implied times ----------------------------------------------------------------------------------------


def _needs_stored_time(this: ir.Object, program: ir.Program) -> bool:
    """Return whether an input's time must be a column: its rows are output, merged, joined or deduplicated unchanged.

    Kernels compute an implied time from row numbers.
    """
    readers = [each.body for each in program.objects if this.name in ir.sources_of(each.body)]
    return program.output == this.name or any(
        isinstance(body, ir.Merge | ir.Distinct | ir.Top | jn.Join | jn.Asof | jn.RollingJoin)
        for body in readers
    )
