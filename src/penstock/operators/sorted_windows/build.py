"""Build the stages of windowed objects over sorted partitions, and bind their kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from penstock.algorithms.hash_table.indexer import Indexer
from penstock.algorithms.kernel_factory import KernelFactory
from penstock.algorithms.sorted_partitions.build import FrameReducers, partitioner, shape_of, sorter
from penstock.algorithms.sorted_partitions.count_frames import CountFraming
from penstock.algorithms.sorted_partitions.frame_kernels import (
    count_sessions,
    grid_frames,
    list_sessions,
    listed_frames,
    look_back_frames,
    run_starts,
)
from penstock.algorithms.sorted_partitions.frames import (
    CalendarFraming,
    CarriedFraming,
    Framing,
    GridFraming,
    UnboundedFraming,
)
from penstock.algorithms.sorted_partitions.partitions import Lanes, Layout
from penstock.algorithms.sorted_partitions.results import (
    AppliedResults,
    Reductions,
    RowResults,
    WindowResults,
)
from penstock.algorithms.window_grid import Grid, Windows
from penstock.analysis.panes import regular
from penstock.ir import nodes as ir
from penstock.ir.rows import as_table
from penstock.operators.distinct.runs import Runs
from penstock.operators.look_back.frames import LookBackFraming
from penstock.operators.look_back.results import LookBackResults
from penstock.operators.rows.build import CompiledRows
from penstock.operators.rows.stage import RowsStage
from penstock.operators.sorted_windows.kernels.session_lateness import session_lateness
from penstock.operators.sorted_windows.session_frames import SessionFraming
from penstock.operators.sorted_windows.session_lateness import SessionLateness
from penstock.operators.sorted_windows.session_stage import SessionStage
from penstock.operators.sorted_windows.stage import SortedWindowStage
from penstock.physical.split_windows import Spelled, behind_rows, behind_windows, without_time
from penstock.runtime.kernels import Call
from penstock.runtime.session import Context, StageSpec
from penstock.types.calendar import calendar_bounds
from penstock.types.time import Time
from penstock.types.windows import (
    WINDOW_BOUNDS,
    Calendar,
    CarriedWindow,
    Count,
    LookBack,
    Session,
    TimeWindow,
    Unbounded,
    Window,
)


@dataclass(frozen=True)
class SortedWindowProgram:
    """A windowed object over sorted partitions: compute arguments, reduce frames, compute result fields.

    `by_key` orders the results of a window by key. `read_on` means that a later stage reads the results by time.
    """

    this: ir.Object
    source: ir.Object
    made: Spelled
    kernel_factory: KernelFactory
    algorithms: tuple[str, ...] = ()
    by_key: bool = False
    read_on: bool = False

    def stages(self) -> list[StageSpec]:
        """Return the stages: argument columns, frames, and result fields (none for a Python function)."""
        body, made, this = self.this.body, self.made, self.this
        samples, rowsof = without_time(made) if self._implied else (made.samples, made.ready)
        rows = CompiledRows(samples, self.source, rowsof, self.kernel_factory)
        ready = StageSpec(
            made.ready.name, (self.source.name,), lambda context: RowsStage(rows, context.metrics, 1)
        )
        if isinstance(body, ir.Apply):
            return [ready, StageSpec(this.name, (made.ready.name,), self._stage(this.schema))]
        if isinstance(body, ir.Reduce):
            plain, after = behind_windows(this, body, made)
        else:
            assert isinstance(body, ir.Attach | ir.Lookback)
            plain, after = behind_rows(this, body, made)
        fields = CompiledRows(after, plain, this, self.kernel_factory)
        return [
            ready,
            StageSpec(plain.name, (made.ready.name,), self._stage(plain.schema)),
            StageSpec(this.name, (plain.name,), lambda context: RowsStage(fields, context.metrics, 0)),
        ]

    def _stage(self, schema: pa.Schema) -> Callable[[Context], SortedWindowStage]:
        def make(context: Context) -> SortedWindowStage:
            columns = {n for each in self.made.reductions for n in (*each.args, each.where) if n is not None}
            layout = lane_layout(self._lane_keys, tuple(columns), self.kernel_factory, context.engine.workers)
            gate, emission = self._emission(schema, layout)
            time, release = self._clocks
            rows = self.made.ready.schema, time, release, context.metrics
            given = gate, layout, emission, self._repeats_rows, *rows
            return (
                SessionStage(*given, gate.lateness)
                if isinstance(gate, SessionFraming)
                else SortedWindowStage(*given)
            )

        return make

    # -- window placement ----------------------------------------------------------------------------

    @property
    def _repeats_rows(self) -> bool:
        return isinstance(self.this.body, ir.Attach)

    @property
    def _carried(self) -> bool:
        body = self.this.body
        return isinstance(body, ir.Reduce | ir.Attach | ir.Apply) and isinstance(body.domain, CarriedWindow)

    @property
    def _implied(self) -> bool:
        """Whether times need no column: they follow from row numbers, and only few are read."""
        body, made = self.this.body, self.made
        read = {name for each in made.reductions for name in (*each.args, each.where)}
        return (
            isinstance(body, ir.Reduce)
            and regular(body)
            and body.where is None
            and isinstance(self.source.body, ir.Input)
            and self.source.time.implied
            and self.source.time.column not in read
        )

    @property
    def _lane_keys(self) -> tuple[str, ...]:
        """The partition key: the keys, and for a carried window its bounds."""
        return (*self.made.keys, *WINDOW_BOUNDS) if self._carried else self.made.keys

    @property
    def _clocks(self) -> tuple[Time, Time]:
        """Return the time that orders rows, and the time at which the watermark releases them."""
        time = self.source.time if self._implied else self.made.ready.time
        if not self._carried:
            return time, time
        release = Time(WINDOW_BOUNDS[1], time.type, time.unit, shift=-1)
        return (time if time.column in self.made.ready.schema.names else release), release

    def _emission(
        self, schema: pa.Schema, layout: Layout
    ) -> tuple[Framing | LookBackFraming, Callable[[Lanes, int], list[pa.RecordBatch]]]:
        body, made, threads = self.this.body, self.made, layout.threads
        if isinstance(body, ir.Lookback):
            behind = LookBackFraming(body.spans, tuple(self._look_back(span) for span in body.spans))
            return behind, LookBackResults(
                behind, self._reductions(threads), schema, sorter(self.kernel_factory)
            )
        assert isinstance(body, ir.Reduce | ir.Attach | ir.Apply)
        framing, sort = self._framing(body.domain, layout), sorter(self.kernel_factory)
        match body:
            case ir.Reduce():
                reductions = self._reductions(threads)
                return framing, WindowResults(
                    framing, reductions, made.keys, schema, sort, self.by_key, threads
                )
            case ir.Attach():
                return framing, RowResults(
                    framing, self._reductions(threads), not self._carried, schema, sort
                )
            case ir.Apply(function=function):
                names = schema.names[len(WINDOW_BOUNDS) + len(made.keys) :]
                applied = partial(_applied, function, schema, names)
                columns = tuple(self.source.schema.names)
                return framing, AppliedResults(framing, applied, columns, made.keys, schema, sort)

    def _framing(self, domain: Window, layout: Layout) -> Framing:
        match domain:
            case Session(gap=gap):
                count = self.kernel_factory.call("count_sessions", count_sessions)
                listed = self.kernel_factory.call("list_sessions", list_sessions)
                return SessionFraming(gap, count, listed, layout.threads, self._lateness(gap, layout))
            case Count(size=size, every=every, partial=tail):
                return CountFraming(size, every, tail)
            case Unbounded():
                return UnboundedFraming()
            case CarriedWindow():
                return CarriedFraming(*WINDOW_BOUNDS)
            case Calendar():
                listed = self.kernel_factory.call("listed_frames", listed_frames)
                return CalendarFraming(partial(calendar_bounds, domain), listed)
            case TimeWindow(size=size, every=every, offset=offset):
                grid = Windows(Grid(size, every, offset))
                return GridFraming(grid, self.kernel_factory.call("grid_frames", grid_frames))

    def _lateness(self, gap: int, layout: Layout) -> SessionLateness:
        """Return the lateness rule. If a later stage reads rows by time, a row must not move a session's start back."""
        begin_earlier = not (self.read_on and self._repeats_rows)
        name = ("session_lateness", begin_earlier)
        build = partial(session_lateness, begin_earlier)
        return SessionLateness(gap, layout, lambda: self.kernel_factory.call(name, build))

    def _look_back(self, span: LookBack) -> Call:
        oldest, newest = span.closed in ("left", "both"), span.closed in ("right", "both")
        ends = oldest, newest, span.delay > 0
        return self.kernel_factory.call(("look_back_frames", *ends), lambda: look_back_frames(*ends))

    def _reductions(self, threads: int) -> Reductions:
        made, shape = self.made, shape_of(self.this.body)
        lanes = FrameReducers(
            made.ready, made.reductions, self.algorithms, shape, self.kernel_factory, threads
        )
        return Reductions(lanes.reducers(), len(made.reductions))


def _applied(
    function: Callable[[pa.Table], object], schema: pa.Schema, names: list[str], rows: pa.Table
) -> pa.Table:
    return as_table(function(rows), schema, names)


def lane_layout(
    keys: tuple[str, ...], columns: tuple[str, ...], kernel_factory: KernelFactory, threads: int
) -> Layout:
    """Return the layout that partitions rows by `keys` and copies `columns` along."""
    return Layout(
        keys,
        columns,
        lambda width: Indexer(width, kernel_factory.index, kernel_factory.texts),
        partitioner(kernel_factory, threads),
        sorter(kernel_factory),
        threads,
    )


def distinct_runs(
    this: ir.Object, body: ir.Distinct, within: int, kernel_factory: KernelFactory
) -> Callable[[Context], SortedWindowStage]:
    """Return a constructor of the stage that keeps one row of each run."""
    runs = Runs(within, body.keep, kernel_factory.call("run_starts", run_starts))

    def make(context: Context) -> SortedWindowStage:
        layout = lane_layout(body.subset, (), kernel_factory, context.engine.workers)
        repeats_rows = body.keep == "last"  # a run's first row is emitted once the watermark passes it
        return SortedWindowStage(
            runs, layout, runs, repeats_rows, this.schema, this.time, this.time, context.metrics
        )

    return make
