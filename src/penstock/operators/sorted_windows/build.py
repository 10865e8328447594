"""Build the stages of windows over sorted partitions, or of partial states per key, and bind their kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from penstock.algorithms.kernel_factory import KernelFactory
from penstock.algorithms.keyed_states.build import CompiledStates, keyed_spec
from penstock.algorithms.keyed_states.kernel import KeyedKernel, KeyedSpec
from penstock.algorithms.keyed_states.table import KeyedResults
from penstock.algorithms.sorted_partitions.build import (
    FrameReducers,
    partition_layout,
    shape_of_windows,
    sorter,
)
from penstock.algorithms.sorted_partitions.frame_kernels import (
    count_sessions,
    grid_frames,
    list_sessions,
    listed_frames,
)
from penstock.algorithms.sorted_partitions.frames import (
    CalendarFraming,
    CarriedFraming,
    CountFraming,
    Framing,
    GridFraming,
    UnboundedFraming,
)
from penstock.algorithms.sorted_partitions.gathered import GatheredFrames
from penstock.algorithms.sorted_partitions.partitions import PartitionLayout
from penstock.algorithms.sorted_partitions.results import (
    AppliedResults,
    Emission,
    Framed,
    Reductions,
    RowResults,
    WindowResults,
)
from penstock.algorithms.sorted_partitions.rows_ahead import RowsAhead
from penstock.algorithms.window_grid import Grid, WindowGrid
from penstock.caches import CACHES
from penstock.ir.samples import as_table
from penstock.operators.sorted_windows.incremental import (
    JUDGING,
    TRUSTING,
    IncrementalCounts,
    IncrementalSessions,
)
from penstock.operators.sorted_windows.kernels.count_rows import count_rows
from penstock.operators.sorted_windows.kernels.open_windows import counts, sessions
from penstock.operators.sorted_windows.kernels.session_lateness import session_lateness
from penstock.operators.sorted_windows.listed_counts import ListedCounts
from penstock.operators.sorted_windows.session_lateness import SessionLateness
from penstock.operators.sorted_windows.sessions import SessionFraming, SessionStage
from penstock.operators.sorted_windows.stage import SortedWindowStage
from penstock.physical import nodes as ph
from penstock.physical.choose_window import HELD_STATES, LISTS
from penstock.physical.split_windows import columns_of, frame_reductions
from penstock.runtime.session import Context
from penstock.runtime.stage import Stage
from penstock.types.calendar import calendar_bounds
from penstock.types.time import Time
from penstock.types.windows import (
    WINDOW_BOUNDS,
    Calendar,
    CarriedWindow,
    Count,
    Session,
    TimeWindow,
    Unbounded,
)


def keyed_windows(
    op: ph.SortedWindows, node: ph.Node, given: ph.Node, kernel_factory: KernelFactory
) -> Callable[[Context], Stage]:
    """Return the constructor of the stage of sessions or windows of rows."""
    states, sort = _states(op, node, given, kernel_factory), sorter(kernel_factory)
    match op.window:
        case Session(gap=gap):
            results = KeyedResults(node.schema, gap, sort, op.by_key)
            return lambda context: IncrementalSessions(states, results, gap, given.schema, context.metrics)
        case Count() as window:
            results = KeyedResults(node.schema, 1, sort, op.by_key)
            return lambda context: IncrementalCounts(
                states, results, window, given.schema, given.clock, context.metrics
            )
    raise AssertionError(f"{op.window} windows have no state per key")


def start_kernel(op: ph.SortedWindows, node: ph.Node, given: ph.Node, kernel_factory: KernelFactory) -> None:
    """Build the kernel a run starts with."""
    _states(op, node, given, kernel_factory).kernel(frozenset(), TRUSTING)


def _states(
    op: ph.SortedWindows, node: ph.Node, given: ph.Node, kernel_factory: KernelFactory
) -> CompiledStates:
    spec = keyed_spec(given.schema, given.clock, op.keys, frame_reductions(op.reductions))
    build = partial(_counts, op.window) if isinstance(op.window, Count) else _sessions
    return CompiledStates(node.id, spec, build, kernel_factory)


@CACHES.results(most=64)  # a second run of a query finds its kernels
def _sessions(spec: KeyedSpec, variant: str) -> KeyedKernel:
    return sessions(spec, judges=variant == JUDGING)


@CACHES.results(most=64)
def _counts(window: Count, spec: KeyedSpec, variant: str) -> KeyedKernel:
    return counts(spec, window)


def sorted_windows(
    op: ph.SortedWindows, node: ph.Node, given: ph.Node, kernel_factory: KernelFactory
) -> Callable[[Context], Stage]:
    """Return the constructor of a `SortedWindows` stage."""
    if op.held == HELD_STATES:
        return keyed_windows(op, node, given, kernel_factory)
    columns, over = columns_of(op.reductions), reducers(op, given, kernel_factory)
    return _Build(op, node, given, kernel_factory, columns, over).stage


def reducers(op: ph.SortedWindows, given: ph.Node, kernel_factory: KernelFactory) -> FrameReducers:
    """Return the reducers of the node's reductions."""
    return FrameReducers(
        given.schema,
        given.clock.stored,
        frame_reductions(op.reductions),
        tuple(reduction.algorithm for reduction in op.reductions),
        shape_of_windows(op.window, op.keys),
        kernel_factory,
    )


@dataclass(frozen=True)
class _Build:
    op: ph.SortedWindows
    node: ph.Node
    given: ph.Node
    kernel_factory: KernelFactory
    columns: tuple[str, ...]
    over: FrameReducers

    def stage(self, context: Context) -> Stage:
        op = self.op
        keys = (*op.keys, *WINDOW_BOUNDS) if self._carried else op.keys
        layout = partition_layout(keys, self.columns, self.kernel_factory, context.engine.workers)
        framing = self._framing(layout)
        time, release = self._clocks
        if op.held == LISTS:
            return self._listed(layout, context)
        rows = self.given.schema, time, release, context.metrics
        parts = framing, layout, self._emission(framing, layout.threads), op.output == "attach", *rows
        if isinstance(framing, SessionFraming):
            return SessionStage(*parts, lateness=framing.lateness)
        # Rows that carry a window are released at its end, not in their order; implied times are not stored.
        in_runs = not context.bounded and time is release and time.period is None
        return SortedWindowStage(*parts, RowsAhead(self.given.schema, layout.sorter) if in_runs else None)

    def _listed(self, layout: PartitionLayout, context: Context) -> ListedCounts:
        """Return the stage of windows of rows that are held in lists per key."""
        assert isinstance(self.op.window, Count)
        framing = CountFraming(self.op.window.size, self.op.window.every, self.op.window.partial)
        frames, threads = GatheredFrames(), layout.threads
        return ListedCounts(
            framing,
            layout,
            self._emission(frames, threads),
            self._emission(framing, threads),
            frames,
            self.op.output == "attach",
            self.given.schema,
            self.given.clock,
            context.metrics,
            self.kernel_factory.call("count_rows", count_rows),
        )

    @property
    def _carried(self) -> bool:
        return isinstance(self.op.window, CarriedWindow)

    @property
    def _clocks(self) -> tuple[Time, Time]:
        """Return the time that orders rows, and the time at which the watermark releases them."""
        time = self.given.clock
        if not self._carried:
            return time, time
        release = Time(WINDOW_BOUNDS[1], time.type, time.unit, shift=-1)
        return (time if time.column in self.given.schema.names else release), release

    def _emission(self, framing: Framed, threads: int) -> Emission:
        op, schema, sort = self.op, self.node.schema, sorter(self.kernel_factory)
        match op.output:
            case "aggregate":
                reductions = self._reductions(threads)
                return WindowResults(framing, reductions, op.keys, schema, sort, op.by_key, threads)
            case "attach":
                return RowResults(framing, self._reductions(threads), not self._carried, schema, sort)
            case ph.Apply(function=function, columns=columns):
                names = schema.names[len(WINDOW_BOUNDS) + len(op.keys) :]
                applied = partial(_applied, function, schema, names)
                return AppliedResults(framing, applied, columns, op.keys, schema, sort)

    def _framing(self, layout: PartitionLayout) -> Framing:
        call = self.kernel_factory.call
        match self.op.window:
            case Session(gap=gap):
                count = call("count_sessions", count_sessions)
                listed = call("list_sessions", list_sessions)
                return SessionFraming(gap, count, listed, layout.threads, self._lateness(gap, layout))
            case Count(size=size, every=every, partial=tail):
                return CountFraming(size, every, tail)
            case Unbounded():
                return UnboundedFraming()
            case CarriedWindow():
                return CarriedFraming(*WINDOW_BOUNDS)
            case Calendar() as calendar:
                listed = call("listed_frames", listed_frames)
                return CalendarFraming(partial(calendar_bounds, calendar), listed)
            case TimeWindow(size=size, every=every, offset=offset):
                grid = WindowGrid(Grid(size, every, offset))
                return GridFraming(grid, call("grid_frames", grid_frames))

    def _lateness(self, gap: int, layout: PartitionLayout) -> SessionLateness:
        """Return the lateness rule. If a later stage reads rows by time, a row must not move a session's start back."""
        begin_earlier = not (self.op.read_by_time and self.op.output == "attach")
        name = ("session_lateness", begin_earlier)
        build = partial(session_lateness, begin_earlier)
        return SessionLateness(gap, layout, lambda: self.kernel_factory.call(name, build))

    def _reductions(self, threads: int) -> Reductions:
        return Reductions(self.over.reducers(threads), len(self.op.reductions))


def _applied(
    function: Callable[[pa.Table], object], schema: pa.Schema, names: list[str], rows: pa.Table
) -> pa.Table:
    return as_table(function(rows), schema, names)
