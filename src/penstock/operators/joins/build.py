"""Build the stages of joins from kernels, conditions and reductions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa

from penstock.algorithms.hash_table.indexer import Indexer
from penstock.algorithms.kernel_factory import KernelFactory
from penstock.algorithms.sliding.kernel import Shape as FrameShape
from penstock.algorithms.sort.partition import count_lanes, fill_lanes
from penstock.algorithms.sorted_partitions.build import FrameReducers, sorter
from penstock.algorithms.sorted_partitions.results import Reductions
from penstock.algorithms.sorted_partitions.rows import no_rows
from penstock.expr import nodes as ex
from penstock.ir import joins as jn
from penstock.ir import nodes as ir
from penstock.loop.nodes import I64
from penstock.operators.joins.algorithm_pairs import FEW_ROWS, AlgorithmPairing, Sorting
from penstock.operators.joins.arrival_rate import Arrivals, at_rest
from penstock.operators.joins.asof import AsofMatcher
from penstock.operators.joins.band import BandPairing
from penstock.operators.joins.build_algorithms import auto_in_order, eager, in_order, lazy_joiner
from penstock.operators.joins.build_windows import grid_of, overlapping_windows, windows_apart
from penstock.operators.joins.eager import EagerJoinStage, Parts, whole_numbers
from penstock.operators.joins.gather_columns import Gather
from penstock.operators.joins.interval import IntervalMatcher
from penstock.operators.joins.kernels.gather import gather, gather_later
from penstock.operators.joins.kernels.ranges import expand_ranges, find_ranges, last_before, next_after
from penstock.operators.joins.large_windows import PairingJoin, RunMatcher, WindowJoin
from penstock.operators.joins.lookup import LookupStage
from penstock.operators.joins.overlapping_windows import OverlapMatcher
from penstock.operators.joins.partitions import Kernels
from penstock.operators.joins.results import Residual, ResultColumn, Shape
from penstock.operators.joins.rolling import RollingMatcher
from penstock.operators.joins.sliding import SlidingMatcher
from penstock.operators.joins.stage import JoinStage, Matcher, Port
from penstock.operators.joins.window_pairs import LanePairing, WindowMatcher
from penstock.operators.joins.window_report import Watch
from penstock.operators.joins.windows import GridWindows
from penstock.operators.rows.build import CompiledRows
from penstock.operators.rows.stage import RowsStage
from penstock.physical.band_conditions import Band, band_of, bounds_samples
from penstock.physical.choose_join import is_eager
from penstock.physical.split_joins import (
    ResultField,
    SpelledRolling,
    condition_columns,
    condition_object,
    result_fields,
    spell_rolling,
)
from penstock.runtime.buffers import values_view
from penstock.runtime.join_metrics import Chosen, JoinMetrics, JoinReport
from penstock.runtime.metrics import Metrics
from penstock.runtime.session import Context, StageSpec
from penstock.runtime.stage import Stage, TimedBatch
from penstock.types.pairing import LEFT_ROW_KINDS, InWindow, Lookup, Within
from penstock.types.windows import WINDOW_END, WINDOW_START, CarriedWindow, TimeWindow


@dataclass(frozen=True)
class JoinProgram:
    """A join with its two inputs, as stages of the pipeline."""

    this: ir.Object
    left: ir.Object
    right: ir.Object
    kernel_factory: KernelFactory
    algorithms: tuple[str, ...] = ()
    reports: dict[str, JoinReport] = field(default_factory=dict)  # accumulated over all runs, for `explain`

    def stages(self, paths: int) -> list[StageSpec]:
        """Return the join's stage; for a rolling join also the stages that compute its arguments and result fields.

        `paths` is how often later stages would have counted a row that has no match in a lookup table.
        """
        body = self.this.body
        sources = self.left.name, self.right.name
        match body:
            case jn.Join(pairing=Lookup(table=table)):
                return [StageSpec(self.this.name, sources, self._lookup(body, table, paths))]
            case jn.Join() | jn.Asof():
                return [StageSpec(self.this.name, sources, self._stage(self._matcher(body)))]
            case jn.RollingJoin():
                return self._rolling(body)
        raise AssertionError(f"{type(body).__name__} joins nothing")

    def _stage(
        self, matcher: Callable[[Kernels, Context, Arrivals | None], Matcher]
    ) -> Callable[[Context], Stage]:
        def make(context: Context) -> Stage:
            kernels = lane_kernels(self.kernel_factory, context.engine.workers)
            ports = self._port(0, self.left, context), self._port(1, self.right, context)
            if not context.bounded and is_eager(self.this.body):
                return self._arriving(ports, kernels, context)
            arrivals = None if context.bounded else Arrivals()
            return JoinStage(*ports, matcher(kernels, context, arrivals), kernels.sorter, arrivals)

        return make

    def _arriving(self, ports: tuple[Port, Port], kernels: Kernels, context: Context) -> EagerJoinStage:
        """Return the stage that emits pairs as rows arrive."""
        body = self.this.body
        assert isinstance(body, jn.Join) and isinstance(body.pairing, InWindow)
        grid = body.pairing.left
        assert isinstance(grid, TimeWindow)
        parts = Parts(
            eager(body.algorithm, self.kernel_factory, body.optimise),
            body.how,
            self._keys,
            self._residual(body.where, context),
            self._shape,
            kernels,
            all(whole_numbers(port) for port in ports),
            (no_rows(self.left.schema), no_rows(self.right.schema)),
            partial(self._note, context.metrics),
        )
        return EagerJoinStage(*ports, GridWindows(grid_of(grid)), parts)

    def _note(self, metrics: Metrics, chosen: Chosen, window: JoinMetrics, windows: int = 1) -> None:
        for reports in (metrics.joins, self.reports):
            reports.setdefault(self.this.name, JoinReport()).add(chosen, window, windows)

    def _port(self, side: int, source: ir.Object, context: Context) -> Port:
        return Port(source.schema, source.time, self._keys[side], context.metrics)

    @property
    def _keys(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        body = self.this.body
        assert isinstance(body, jn.Join | jn.Asof | jn.RollingJoin)
        return tuple(one for one, _ in body.on), tuple(other for _, other in body.on)

    @property
    def _shape(self) -> Shape:
        body = self.this.body
        assert isinstance(body, jn.Join | jn.Asof)
        return Shape(tuple(_column(each) for each in result_fields(body)), self.this.schema, self._gather)

    @property
    def _gather(self) -> Gather:
        call = self.kernel_factory.call
        return Gather(
            lambda value, place: call(("gather", value, place), lambda: gather(value, place)),
            lambda place: call(("gather_later", place), lambda: gather_later(place)),
        )

    # -- conditions ----------------------------------------------------------------------------------

    def _residual(self, where: ex.Expr | None, context: Context) -> Residual | None:
        """Return the residual condition as a filter over batches of pairs."""
        if where is None:
            return None
        source, samples, result, number = condition_object(self.this, where, self.left, self.right)
        rows = CompiledRows(samples, source, result, self.kernel_factory)
        stage = RowsStage(rows, context.metrics, 0)

        def holds(batch: pa.RecordBatch) -> np.ndarray:
            flows = stage.push(0, [TimedBatch(batch)])
            return np.concatenate([values_view(flow.batch.column(number)) for flow in flows])

        return Residual(condition_columns(where), number, holds)

    # -- the types of joins --------------------------------------------------------------------------

    def _lookup(self, body: jn.Join, table: int, paths: int) -> Callable[[Context], Stage]:
        rows = (self.left, self.right)[table]

        def make(context: Context) -> LookupStage:
            residual = self._residual(body.where, context)
            kernels = lane_kernels(self.kernel_factory, context.engine.workers)
            shape, metrics = self._shape, context.metrics
            return LookupStage(
                table, body.how, self._keys, residual, shape, rows.schema, kernels, metrics, paths
            )

        return make

    def _matcher(self, body: jn.Join | jn.Asof) -> Callable[[Kernels, Context, Arrivals | None], Matcher]:
        match body:
            case jn.Asof(direction=direction, tolerance=tolerance, exact=exact):
                return lambda kernels, context, arrivals: AsofMatcher(
                    direction, tolerance, exact, self._keys, self._shape, kernels
                )
            case jn.Join(pairing=Within(lo=lo, hi=hi)):
                return lambda kernels, context, arrivals: IntervalMatcher(
                    lo, hi, body.how, self._keys, self._residual(body.where, context), self._shape, kernels
                )
            case jn.Join(pairing=InWindow() as pairing):
                return partial(self._windowed, body, pairing)
        raise AssertionError(f"{body} has no matcher")

    def _windowed(
        self,
        body: jn.Join,
        pairing: InWindow,
        kernels: Kernels,
        context: Context,
        arrivals: Arrivals | None,
    ) -> Matcher:
        residual = self._residual(body.where, context)
        carried = isinstance(pairing.left, CarriedWindow)
        bounds = (WINDOW_START, WINDOW_END) if carried else ()
        keys = (*self._keys[0], *bounds), (*self._keys[1], *bounds)
        lanes = LanePairing(residual, carried, kernels)
        watch = Watch(partial(self._note, context.metrics))
        band = None if residual is None or carried else self._band(body, residual, lanes, context)
        several = overlapping_windows(pairing)
        if several is not None:
            plain = SlidingMatcher(several, body.how, self._keys, residual, self._shape, kernels)
            return self._overlapping(body, plain, lanes, band, watch, arrivals)
        windows = windows_apart(pairing.left, kernels)
        if not body.on:
            return WindowMatcher(windows, band or lanes, body.how, keys, self._shape, kernels, watch)
        join = self._window_join(body, lanes, band, watch, arrivals)
        how = lanes if carried else join.pairing
        together = WindowMatcher(windows, how, body.how, keys, self._shape, kernels, watch)
        return RunMatcher(together, join)

    def _overlapping(
        self,
        body: jn.Join,
        plain: SlidingMatcher,
        lanes: LanePairing,
        band: BandPairing | None,
        watch: Watch,
        arrivals: Arrivals | None,
    ) -> Matcher:
        """Match large windows, named algorithms and conditions without keys one window at a time, all else at once."""
        if body.how in LEFT_ROW_KINDS:
            return plain
        if body.algorithm != "auto":
            return OverlapMatcher(plain, self._window_join(body, lanes, band, watch, None), always=True)
        if body.on:
            large = self._window_join(body, lanes, band, watch, arrivals)
            return OverlapMatcher(plain, large, least=FEW_ROWS, if_many=True)
        if band is None:
            return plain
        join = PairingJoin(band, body.how, self._keys, self._shape, plain.kernels, watch)
        return OverlapMatcher(plain, join)

    def _window_join(
        self,
        body: jn.Join,
        lanes: LanePairing,
        band: BandPairing | None,
        watch: Watch,
        arrivals: Arrivals | None,
    ) -> WindowJoin:
        """Return the join of one large window, on all threads or on one."""
        alone = replace(lanes, kernels=replace(lanes.kernels, threads=1))
        return WindowJoin(
            self._pairing(body, lanes, band, arrivals),
            body.how,
            self._shape,
            watch,
            partial(self._pairing, body, alone, band, arrivals),
        )

    def _pairing(
        self, body: jn.Join, lanes: LanePairing, band: BandPairing | None, arrivals: Arrivals | None
    ) -> AlgorithmPairing:
        """Return the pairing by the algorithm that the query names, or by an adaptive choice."""
        kernel_factory, kernels, residual = self.kernel_factory, lanes.kernels, lanes.residual
        if body.algorithm != "auto":
            asked = in_order(body.algorithm, kernel_factory, kernels)
            return AlgorithmPairing(asked, True, self._keys, residual, lanes, kernels)
        auto = auto_in_order(kernel_factory, kernels, at_rest if arrivals is None else arrivals.milliseconds)
        sorting = None if band is None else Sorting(band, lazy_joiner("npj", kernel_factory))
        return AlgorithmPairing(auto, False, self._keys, residual, lanes, kernels, sorting)

    def _band(
        self, body: jn.Join, residual: Residual, lanes: LanePairing, context: Context
    ) -> BandPairing | None:
        """Return a sort-based pairing if the condition bounds a right column, else None."""
        assert body.where is not None
        band = band_of(body.where, self.left, self.right)
        if band is None:
            return None
        return BandPairing(
            band.column,
            len(band.lower),
            (self._bounds(band, 0, context), self._bounds(band, 1, context)),
            residual,
            lanes,
            lanes.kernels,
            bool(body.on),
        )

    def _bounds(self, band: Band, side: int, context: Context) -> Callable[[pa.RecordBatch], list[pa.Array]]:
        rows = (self.left, self.right)[side]
        samples, result = bounds_samples(band, side, rows)
        stage = RowsStage(CompiledRows(samples, rows, result, self.kernel_factory), context.metrics, 0)

        def bounds(batch: pa.RecordBatch) -> list[pa.Array]:
            flows = stage.push(0, [TimedBatch(batch)])
            return [
                pa.concat_arrays([flow.batch.column(name) for flow in flows]) for name in result.schema.names
            ]

        return bounds

    # -- aggregates over the other side --------------------------------------------------------------

    def _rolling(self, body: jn.RollingJoin) -> list[StageSpec]:
        made = spell_rolling(self.this, body, self.left, self.right)
        rows = CompiledRows(made.samples, self.right, made.ready, self.kernel_factory)
        fields = CompiledRows(made.fields, made.plain, self.this, self.kernel_factory)
        join = JoinProgram(made.plain, self.left, made.ready, self.kernel_factory, self.algorithms)
        return [
            StageSpec(
                made.ready.name,
                (self.right.name,),
                lambda context: RowsStage(rows, context.metrics, 1),
            ),
            StageSpec(
                made.plain.name,
                (self.left.name, made.ready.name),
                join._stage(partial(join._rolling_matcher, body, made)),
            ),
            StageSpec(
                self.this.name, (made.plain.name,), lambda context: RowsStage(fields, context.metrics, 0)
            ),
        ]

    def _rolling_matcher(
        self,
        body: jn.RollingJoin,
        made: SpelledRolling,
        kernels: Kernels,
        context: Context,
        arrivals: Arrivals | None,
    ) -> Matcher:
        shape = FrameShape(dense=True, may_be_empty=True)
        lanes = FrameReducers(
            made.ready, made.reductions, self.algorithms, shape, self.kernel_factory, kernels.threads
        )
        reductions = Reductions(lanes.reducers(), len(made.reductions))
        within = body.within
        return RollingMatcher(within.lo, within.hi, self._keys, reductions, made.plain.schema, kernels)


def lane_kernels(kernel_factory: KernelFactory, threads: int) -> Kernels:
    """Return the kernels that partition, sort and match the rows of joins."""
    call = kernel_factory.call
    return Kernels(
        call("count_lanes", count_lanes),
        call(("fill_lanes", (I64, I64)), lambda: fill_lanes((I64, I64))),
        lambda listed: call(("find_ranges", listed), lambda: find_ranges(listed)),
        call("expand_ranges", expand_ranges),
        lambda exact: call(("last_before", exact), lambda: last_before(exact)),
        lambda exact: call(("next_after", exact), lambda: next_after(exact)),
        sorter(kernel_factory),
        lambda width: Indexer(width, kernel_factory.index, kernel_factory.texts),
        threads,
    )


def _column(field: ResultField) -> ResultColumn:
    return ResultColumn(field.name, field.origin, field.source, field.partner)
