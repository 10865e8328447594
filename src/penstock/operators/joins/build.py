"""Build the stages of joins from kernels, conditions and reductions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa

from penstock.algorithms.kernel_factory import KernelFactory
from penstock.algorithms.sliding.kernel import FrameShape
from penstock.algorithms.sort.kernels import count_partitions, fill_partitions
from penstock.algorithms.sorted_partitions.build import FrameReducers, indexer, sorter
from penstock.algorithms.sorted_partitions.results import Reductions
from penstock.algorithms.sorted_partitions.rows import no_rows
from penstock.loop.nodes import I64
from penstock.operators.joins.algorithm_pairs import ROWS_JOINED_BY_PARTITION, AlgorithmPairing, Sorting
from penstock.operators.joins.asof import AsofMatcher
from penstock.operators.joins.band import BandPairing
from penstock.operators.joins.build_algorithms import (
    auto_in_order,
    eager,
    grid_of,
    in_order,
    lazy_joiner,
    overlapping_windows,
    windows_apart,
)
from penstock.operators.joins.build_incremental import IncrementalParts
from penstock.operators.joins.eager import EagerJoinStage, Parts, whole_numbers
from penstock.operators.joins.incremental import (
    IncrementalJoinStage,
    JoinOutput,
    LiveSide,
)
from penstock.operators.joins.interval import IntervalMatcher
from penstock.operators.joins.kernels.ranges import (
    expand_ranges,
    find_ranges,
    gather,
    gather_later,
    last_before,
    next_after,
)
from penstock.operators.joins.large_windows import OverlapMatcher, PairingJoin, RunMatcher, WindowJoin
from penstock.operators.joins.lookup import LookupStage
from penstock.operators.joins.partitions import PartitionKernels
from penstock.operators.joins.results import Gather, JoinShape, Residual
from penstock.operators.joins.rolling import RollingMatcher
from penstock.operators.joins.sliding import SlidingMatcher
from penstock.operators.joins.stage import ArrivalRate, JoinStage, Matcher, Port, at_rest
from penstock.operators.joins.window_pairs import PartitionPairing, WindowMatcher, WindowReport
from penstock.operators.joins.window_runs import WindowJoinStage
from penstock.operators.joins.windows import GridWindows
from penstock.operators.rows.build import CompiledRows
from penstock.operators.rows.stage import RowsStage
from penstock.physical import nodes as ph
from penstock.physical.choose_join import LISTS, RUNS, Band, band_of, bounds_of
from penstock.physical.split_windows import condition_columns, condition_of, frame_reductions
from penstock.runtime.buffers import values_view
from penstock.runtime.metrics import ChosenAlgorithm, JoinMetrics, JoinReport, Metrics
from penstock.runtime.session import Context
from penstock.runtime.stage import Stage, TimedBatch
from penstock.types.windows import (
    LEFT_ROW_KINDS,
    WINDOW_END,
    WINDOW_START,
    CarriedWindow,
    InWindow,
    Lookup,
    TimeWindow,
    Within,
)


def join(
    op: ph.Join,
    node: ph.Node,
    left: ph.Node,
    right: ph.Node,
    paths: int,
    kernel_factory: KernelFactory,
    reports: dict[str, JoinReport],
) -> Callable[[Context], Stage]:
    """Return the constructor of a `Join` stage.

    `paths` is how often later stages would have counted a row that has no match in a lookup table. `reports`
    accumulate what was chosen over all runs, for `explain`.
    """
    build = _Build(op, node, left, right, kernel_factory, reports)
    match op.pairing:
        case Lookup(table=table):
            return partial(build.lookup, table, paths)
        case _ if op.eager:
            return build.eager
        case _ if op.held == RUNS:
            return build.in_runs
        case _ if op.held == LISTS:
            return build.incremental
        case _:
            return build.lazy


@dataclass(frozen=True)
class _Build:
    op: ph.Join
    node: ph.Node
    left: ph.Node
    right: ph.Node
    kernel_factory: KernelFactory
    reports: dict[str, JoinReport]

    def lazy(self, context: Context) -> JoinStage:
        """Return the stage that emits pairs once the watermark has passed them."""
        kernels = partition_kernels(self.kernel_factory, context.engine.workers)
        arrivals = ArrivalRate() if self.op.paced else None
        return JoinStage(
            *self._ports(context), self._matcher(kernels, context, arrivals), kernels.sorter, arrivals
        )

    def incremental(self, context: Context) -> IncrementalJoinStage:
        """Return the stage that holds rows in lists per key between pushes."""
        kernels = partition_kernels(self.kernel_factory, context.engine.workers)
        parts = IncrementalParts(
            self.op,
            self.node,
            (self.left, self.right),
            self._keys,
            JoinOutput.of(self._shape, kernels.threads),
            kernels,
            self.kernel_factory,
        )
        matcher = parts.matcher(self._residual(context), lambda: self._matcher(kernels, context, None))
        return IncrementalJoinStage(*self._sides(kernels, context), matcher)

    def in_runs(self, context: Context) -> WindowJoinStage:
        """Return the stage that holds rows in sorted runs until their windows are complete."""
        assert isinstance(self.op.pairing, InWindow)
        kernels = partition_kernels(self.kernel_factory, context.engine.workers)
        several, rate = overlapping_windows(self.op.pairing), ArrivalRate()
        windows = several if several is not None else windows_apart(self.op.pairing.left, kernels)
        matcher = self._matcher(kernels, context, rate)
        return WindowJoinStage(*self._sides(kernels, context), matcher, windows, rate)

    def _sides(self, kernels: PartitionKernels, context: Context) -> tuple[LiveSide, LiveSide]:
        left, right = (
            LiveSide(side.schema, side.clock, keys, kernels.sorter, context.metrics)
            for side, keys in zip((self.left, self.right), self._keys, strict=True)
        )
        return left, right

    def eager(self, context: Context) -> EagerJoinStage:
        """Return the stage that emits pairs as rows arrive."""
        op, ports = self.op, self._ports(context)
        assert isinstance(op.pairing, InWindow)
        grid = op.pairing.left
        assert isinstance(grid, TimeWindow)
        parts = Parts(
            eager(op.algorithm, self.kernel_factory, op.optimise),
            op.how,
            self._keys,
            self._residual(context),
            self._shape,
            partition_kernels(self.kernel_factory, context.engine.workers),
            all(whole_numbers(port) for port in ports),
            (no_rows(self.left.schema), no_rows(self.right.schema)),
            partial(self._note, context.metrics),
        )
        return EagerJoinStage(*ports, GridWindows(grid_of(grid)), parts)

    def lookup(self, table: int, paths: int, context: Context) -> LookupStage:
        """Return the stage that matches rows with a table as they arrive."""
        return LookupStage(
            table,
            self.op.how,
            self._keys,
            self._residual(context),
            self._shape,
            (self.left, self.right)[table].schema,
            partition_kernels(self.kernel_factory, context.engine.workers),
            context.metrics,
            paths,
        )

    def _note(self, metrics: Metrics, chosen: ChosenAlgorithm, window: JoinMetrics, windows: int = 1) -> None:
        for reports in (metrics.joins, self.reports):
            reports.setdefault(self.node.id, JoinReport()).add(chosen, window, windows)

    def _ports(self, context: Context) -> tuple[Port, Port]:
        sides = zip((self.left, self.right), self._keys, strict=True)
        left, right = (Port(side.schema, side.clock, keys, context.metrics) for side, keys in sides)
        return left, right

    @property
    def _keys(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return tuple(one for one, _ in self.op.on), tuple(other for _, other in self.op.on)

    @property
    def _shape(self) -> JoinShape:
        return JoinShape(self.op.columns, self.node.schema, self._gather)

    @property
    def _gather(self) -> Gather:
        call = self.kernel_factory.call
        return Gather(
            lambda value, place: call(("gather", value, place), lambda: gather(value, place)),
            lambda place: call(("gather_later", place), lambda: gather_later(place)),
        )

    # -- conditions ----------------------------------------------------------------------------------

    def _residual(self, context: Context) -> Residual | None:
        """Return the residual condition as a filter over batches of pairs."""
        where = self.op.residual
        if where is None:
            return None
        condition = condition_of(where, self.node.clock, self.left.schema, self.right.schema)
        rows = CompiledRows(
            condition.rows, condition.pairs, self.node.clock, condition.schema, self.kernel_factory
        )
        stage, number = RowsStage(rows, context.metrics, 0), condition.number

        def holds(batch: pa.RecordBatch) -> np.ndarray:
            timed_batches = stage.push(0, [TimedBatch(batch)])
            return np.concatenate(
                [values_view(timed_batch.batch.column(number)) for timed_batch in timed_batches]
            )

        return Residual(condition_columns(where), number, holds)

    # -- the types of joins --------------------------------------------------------------------------

    def _matcher(self, kernels: PartitionKernels, context: Context, arrivals: ArrivalRate | None) -> Matcher:
        match self.op.pairing:
            case ph.Nearest(direction=direction, tolerance=tolerance, exact=exact):
                return AsofMatcher(direction, tolerance, exact, self._keys, self._shape, kernels)
            case Within(lo=lo, hi=hi):
                residual = self._residual(context)
                return IntervalMatcher(lo, hi, self.op.how, self._keys, residual, self._shape, kernels)
            case ph.Around(lo=lo, hi=hi, reductions=reductions):
                over = self._reductions(reductions, kernels.threads)
                return RollingMatcher(lo, hi, self._keys, over, self.node.schema, kernels)
            case InWindow() as pairing:
                return self._windowed(pairing, kernels, context, arrivals)
        raise AssertionError(f"{self.op.pairing} has no matcher")

    def _reductions(self, reductions: tuple[ph.Reduction, ...], threads: int) -> Reductions:
        """Return the aggregates over the rows of the other side."""
        reducers = FrameReducers(
            self.right.schema,
            self.right.clock,
            frame_reductions(reductions),
            tuple(reduction.algorithm for reduction in reductions),
            FrameShape(dense=True, may_be_empty=True),
            self.kernel_factory,
        )
        return Reductions(reducers.reducers(threads), len(reductions))

    def _windowed(
        self, pairing: InWindow, kernels: PartitionKernels, context: Context, arrivals: ArrivalRate | None
    ) -> Matcher:
        residual = self._residual(context)
        carried = isinstance(pairing.left, CarriedWindow)
        bounds = (WINDOW_START, WINDOW_END) if carried else ()
        keys = (*self._keys[0], *bounds), (*self._keys[1], *bounds)
        partitions = PartitionPairing(residual, carried, kernels)
        watch = WindowReport(partial(self._note, context.metrics))
        band = None if residual is None or carried else self._band(residual, partitions, context)
        several = overlapping_windows(pairing)
        if several is not None:
            plain = SlidingMatcher(several, self.op.how, self._keys, residual, self._shape, kernels)
            return self._overlapping(plain, partitions, band, watch, arrivals)
        windows = windows_apart(pairing.left, kernels)
        if not self.op.on:
            return WindowMatcher(windows, band or partitions, self.op.how, keys, self._shape, kernels, watch)
        join = self._window_join(partitions, band, watch, arrivals)
        how = partitions if carried else join.pairing
        together = WindowMatcher(windows, how, self.op.how, keys, self._shape, kernels, watch)
        return RunMatcher(together, join)

    def _overlapping(
        self,
        plain: SlidingMatcher,
        partitions: PartitionPairing,
        band: BandPairing | None,
        watch: WindowReport,
        arrivals: ArrivalRate | None,
    ) -> Matcher:
        """Match large windows, named algorithms and conditions without keys one window at a time, all else at once."""
        if self.op.how in LEFT_ROW_KINDS:
            return plain
        if self.op.algorithm != "auto":
            return OverlapMatcher(plain, self._window_join(partitions, band, watch, None), always=True)
        if self.op.on:
            large = self._window_join(partitions, band, watch, arrivals)
            return OverlapMatcher(plain, large, least=ROWS_JOINED_BY_PARTITION, if_many=True)
        if band is None:
            return plain
        join = PairingJoin(band, self.op.how, self._keys, self._shape, plain.kernels, watch)
        return OverlapMatcher(plain, join)

    def _window_join(
        self,
        partitions: PartitionPairing,
        band: BandPairing | None,
        watch: WindowReport,
        arrivals: ArrivalRate | None,
    ) -> WindowJoin:
        """Return the join of one large window, on all threads or on one."""
        alone = replace(partitions, kernels=replace(partitions.kernels, threads=1))
        return WindowJoin(
            self._pairing(partitions, band, arrivals),
            self.op.how,
            self._shape,
            watch,
            partial(self._pairing, alone, band, arrivals),
        )

    def _pairing(
        self, partitions: PartitionPairing, band: BandPairing | None, arrivals: ArrivalRate | None
    ) -> AlgorithmPairing:
        """Return the pairing by the algorithm that the query names, or by an adaptive choice."""
        kernel_factory, kernels, residual = self.kernel_factory, partitions.kernels, partitions.residual
        if self.op.algorithm != "auto":
            named = in_order(self.op.algorithm, kernel_factory, kernels)
            return AlgorithmPairing(named, True, self._keys, residual, partitions, kernels)
        auto = auto_in_order(kernel_factory, kernels, at_rest if arrivals is None else arrivals.milliseconds)
        sorting = None if band is None else Sorting(band, lazy_joiner("npj", kernel_factory))
        return AlgorithmPairing(auto, False, self._keys, residual, partitions, kernels, sorting)

    def _band(self, residual: Residual, partitions: PartitionPairing, context: Context) -> BandPairing | None:
        """Return a sort-based pairing if the condition bounds a right column, else None."""
        assert self.op.residual is not None
        band = band_of(self.op.residual, self.left.schema, self.right.schema)
        if band is None:
            return None
        return BandPairing(
            band.column,
            len(band.lower),
            (self._bounds(band, 0, context), self._bounds(band, 1, context)),
            residual,
            partitions,
            partitions.kernels,
            bool(self.op.on),
        )

    def _bounds(self, band: Band, side: int, context: Context) -> Callable[[pa.RecordBatch], list[pa.Array]]:
        rows = (self.left, self.right)[side]
        op, schema = bounds_of(band, side, rows.schema)
        compiled = CompiledRows(op, rows.schema, rows.clock, schema, self.kernel_factory)
        stage = RowsStage(compiled, context.metrics, 0)

        def bounds(batch: pa.RecordBatch) -> list[pa.Array]:
            timed_batches = stage.push(0, [TimedBatch(batch)])
            return [
                pa.concat_arrays([timed_batch.batch.column(name) for timed_batch in timed_batches])
                for name in schema.names
            ]

        return bounds


def partition_kernels(kernel_factory: KernelFactory, threads: int) -> PartitionKernels:
    """Return the kernels that partition, sort and match the rows of joins."""
    call = kernel_factory.call
    return PartitionKernels(
        call("count_partitions", count_partitions),
        call(("fill_partitions", (I64, I64)), lambda: fill_partitions((I64, I64))),
        lambda listed: call(("find_ranges", listed), lambda: find_ranges(listed)),
        call("expand_ranges", expand_ranges),
        lambda exact: call(("last_before", exact), lambda: last_before(exact)),
        lambda exact: call(("next_after", exact), lambda: next_after(exact)),
        sorter(kernel_factory),
        indexer(kernel_factory),
        threads,
    )
