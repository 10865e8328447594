"""Build the stage of signals, and bind its kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import pyarrow as pa

from penstock.algorithms.kernel_factory import KernelFactory
from penstock.algorithms.sorted_partitions.build import indexer, partitioner, sorter
from penstock.algorithms.sorted_partitions.frames import Frames
from penstock.algorithms.sorted_partitions.partitions import SortedPartitions
from penstock.algorithms.sorted_partitions.rows_ahead import RowsAhead
from penstock.expr import nodes as ex
from penstock.ir.signals import nodes as temporal
from penstock.ir.signals.nodes import at
from penstock.ir.signals.scope import is_lenient, lag, reduced_type, scope
from penstock.loop.abi import Binding
from penstock.loop.nodes import MACHINE_TYPES, Kernel, Type
from penstock.loop.numbers import machine_type
from penstock.operators.rows.build import CompiledRows
from penstock.operators.rows.stage import RowsStage
from penstock.operators.signals.accesses import Reading, SignalAccess, SpanReading
from penstock.operators.signals.build_reductions import (
    Reduce,
    SampleReductions,
    is_accessed,
    is_reduced_alone,
    retention,
    span_reading,
)
from penstock.operators.signals.feedback import FeedbackStep
from penstock.operators.signals.fused.build import fused_expression
from penstock.operators.signals.fused.driver import CHANGES, INSTANTS, SAMPLES
from penstock.operators.signals.incremental.build import TrackRows, event_program
from penstock.operators.signals.incremental.samples import SampleArrivals
from penstock.operators.signals.incremental.stage import EVENTS, IncrementalSignals
from penstock.operators.signals.intervals import Interleaver, Types
from penstock.operators.signals.kernels.coalesce import runs
from penstock.operators.signals.kernels.feedback import FeedbackSpec, build_feedback
from penstock.operators.signals.kernels.interleave import CAPACITY_BITS, interleave, part_of_partitions
from penstock.operators.signals.kernels.walk import WalkSpec, locate, walk
from penstock.operators.signals.objects import (
    BEGINNING_OF_KEYS,
    ChopStep,
    ExpressionStep,
    FieldInputs,
    HeldStep,
    ObjectReductions,
    ObjectStep,
    ResampleStep,
)
from penstock.operators.signals.positional.build import positional
from penstock.operators.signals.sampling import Sampling, stored
from penstock.operators.signals.stage import IntervalLayout, SignalStage, Taker
from penstock.passes.fuse_signals import COUNTS_NONE
from penstock.physical import nodes as ph
from penstock.physical.choose_signals import reductions_of
from penstock.physical.choose_window import HELD_STATES
from penstock.physical.split_windows import read_from_columns
from penstock.runtime.buffers import numpy_type
from penstock.runtime.kernels import Call
from penstock.runtime.metrics import Metrics
from penstock.runtime.session import Context
from penstock.runtime.stage import Stage, TimedBatch
from penstock.types.time import Time


def interleaver(kernel_factory: KernelFactory, threads: int) -> Interleaver:
    """Return the interleaver, which merges the intervals of partitions by time."""

    def call(of_points: Types, of_partitions: Types) -> Call:
        points, partitions = _machine(of_points), _machine(of_partitions)
        return kernel_factory.call(("interleave", points, partitions), lambda: interleave(points, partitions))

    return Interleaver(
        kernel_factory.call("part_of_partitions", part_of_partitions), call, 1 << CAPACITY_BITS, threads
    )


def _machine(types: Types) -> tuple[Type, ...]:
    return tuple(MACHINE_TYPES[f"{np.dtype(dtype).kind}{8 * dtype.itemsize}"] for dtype in types)


_TIME = "time"


def signals(
    op: ph.Signals, node: ph.Node, sources: Sequence[ph.Node], kernel_factory: KernelFactory
) -> Callable[[Context], Stage]:
    """Return the constructor of a `Signals` stage. The positional one hands over if time has gaps or rows are few."""
    made = SignalProgram(op, node, sources, kernel_factory)
    if op.evaluation == "change-to-change":
        return made.stage
    return positional(op, node, sources, kernel_factory, made.over_samples)


@dataclass(frozen=True)
class SignalProgram:
    """A signal over its sources: how samples are taken, and a step for each object made of them."""

    op: ph.Signals
    node: ph.Node
    sources: Sequence[ph.Node]
    kernel_factory: KernelFactory
    showing: bool = False  # build the kernels that a run builds when data arrives, to show them

    @property
    def program(self) -> temporal.Program:
        return self.op.program

    def stage(self, context: Context) -> SignalStage | IncrementalSignals:
        return (
            self._incremental(context.metrics) if self.op.held == HELD_STATES else self.over_samples(context)
        )

    def over_samples(self, context: Context) -> SignalStage:
        """Compute values from all samples that they depend on."""
        program, threads = self.program, context.engine.workers
        return SignalStage(
            [self._taker(obj, threads) for obj in program.objects if _samples(obj)],
            {obj.name: self._step(obj, threads) for obj in program.objects if not _samples(obj)},
            self._layout(),
            [source.clock for source in self.sources],
            context.metrics,
            retention(program),
            lambda: indexer(self.kernel_factory)(len(program.keys)),
            sorter(self.kernel_factory),
            self._made(runs),
            interleaver(self.kernel_factory, threads),
        )

    def _incremental(self, metrics: Metrics) -> IncrementalSignals:
        """Go from event to event, with states per key."""
        tracks, arrivals = [], []
        for this in self.program.objects:
            if isinstance(this.body, temporal.Sampled):
                port, rows, schema, time = self._rows_of_samples(this, this.body)
                values = tuple(map(stored, this.schema.names))
                ahead = RowsAhead(schema, sorter(self.kernel_factory))
                tracks.append(TrackRows(this, schema, time))
                arrivals.append(
                    SampleArrivals(port, RowsStage(rows, Metrics(), 0), schema, time, values, ahead)
                )
        layout = self._layout()
        body = self.program[self.program.output].body
        assert isinstance(body, temporal.Expression)
        events = event_program(
            self.node.id, self.program, tracks, self._accesses(body), layout.ends, self.kernel_factory
        )
        if self.showing:
            events.kernel(frozenset(), EVENTS)
        times = [source.clock for source in self.sources]
        return IncrementalSignals(
            events, arrivals, events.moves, layout, times, metrics, sorter(self.kernel_factory)
        )

    def _algorithms(self, this: temporal.Object) -> tuple[str, ...]:
        """The algorithms of the reductions of an object."""
        return self.op.algorithms[self.program.objects.index(this)]

    def _layout(self) -> IntervalLayout:
        program = self.program
        values, schema = program[program.output].schema, self.node.schema
        return IntervalLayout(
            tuple(program.keys.names),
            tuple(program.keys.types),
            values,
            schema,
            program.output,
            lag(program),
            program.pieces,
            temporal.END in schema.names,
        )

    # -- samples -------------------------------------------------------------------------------------

    def _taker(self, this: temporal.Object, threads: int) -> Taker:
        body = this.body
        assert isinstance(body, temporal.Sampled)
        port, rows, schema, time = self._rows_of_samples(this, body)
        return Taker(
            this.name, port, RowsStage(rows, Metrics(), 0), schema, time, self._sampling(this, body, threads)
        )

    def _rows_of_samples(
        self, this: temporal.Object, body: temporal.Sampled
    ) -> tuple[int, CompiledRows, pa.Schema, Time]:
        """Compute the columns of samples beside their keys, their time, and the end they may carry."""
        port = int(body.input)
        source = self.sources[port]
        given = [*body.keys, source.clock.column, *([body.hold.until] if body.hold.until else [])]
        hidden = [ex.Field(stored(field.name), field.expr) for field in body.fields]
        fields = (*(ex.Field(name, ex.Column(name)) for name in dict.fromkeys(given)), *hidden)
        names = [field.name for field in fields]
        types = [source.schema.field(name).type for name in dict.fromkeys(given)]
        schema = pa.schema(list(zip(names, [*types, *this.schema.types], strict=True)))
        time = source.clock.stored
        op = ph.Rows((), fields)
        rows = CompiledRows(op, source.schema, source.clock, schema, self.kernel_factory)
        return port, rows, schema, time

    def _sampling(self, this: temporal.Object, body: temporal.Sampled, threads: int) -> Sampling:
        hold = body.hold
        return Sampling(
            tuple(this.schema.names),
            hold.lasting,
            hold.until,
            None if hold.resolve is None else self._resolve(this, threads),
            is_accessed(this.name, self.program),
            sorter(self.kernel_factory),
            partitioner(self.kernel_factory, threads),
        )

    def _resolve(
        self, this: temporal.Object, threads: int
    ) -> Callable[[SortedPartitions, Frames], list[pa.Array]]:
        several = reductions_of(this)
        reduce = self._reductions(this, several, [0] * len(several), self._algorithms(this), threads)
        return lambda partitions, frames: reduce(partitions, [frames])

    # -- steps ---------------------------------------------------------------------------------------

    def _step(self, this: temporal.Object, threads: int) -> ObjectStep:
        match this.body:
            case temporal.Expression() as body:
                return self._expression(this, body, threads)
            case temporal.Feedback() as body:
                return self._feedback(this, body, threads)
            case temporal.Resample(source=source, every=every, method=method, max_gap=gap):
                return ResampleStep(source, every, method == "linear", gap, self._locate)
            case temporal.Chop() as body:
                return self._chop(body, this, threads)
            case temporal.SampleAndHold(source=source, clock=clock):
                return HeldStep(source, clock, self._locate)
        raise AssertionError(f"{type(this.body).__name__} is not made of other objects")

    def _expression(self, this: temporal.Object, body: temporal.Expression, threads: int) -> ObjectStep:
        """One kernel where everything is a machine value, else walk, reductions and fields one after the other."""

        def staged() -> ObjectStep:
            return ExpressionStep(self._scope(this, body, threads), self._fields(this, body))

        found = fused_expression(this, self.program, self._accesses(body), self._algorithms(this))
        if found is None:
            return staged()
        if self.showing:
            found.show(self.kernel_factory, self._writes(this.name))
        sampled = self._writes(this.name) == SAMPLES
        return found.step(self.kernel_factory, threads, cache(staged), sampled=sampled)

    def _writes(self, name: str) -> str:
        """The instants of an object that are read; where results are pieces, they show its marks."""
        program = self.program
        if program.pieces:
            return INSTANTS
        if name == program.output:
            return CHANGES
        return SAMPLES if is_reduced_alone(name, program) else INSTANTS

    @property
    def _schemas(self) -> dict[str, pa.Schema]:
        return {obj.name: obj.schema for obj in self.program.objects}

    def _made(self, build: Callable[[], Kernel]) -> Call:
        """A kernel that is made when it is called: many runs never do."""
        return lambda given: self.kernel_factory.call(build.__name__, build)(given)  # noqa: PLW0108 - not before

    @property
    def _locate(self) -> Call:
        return self.kernel_factory.call("locate", locate)

    def _reading(
        self, accesses: Sequence[SignalAccess], spans: Sequence[SpanReading], threads: int
    ) -> Reading:
        spec = WalkSpec(len(accesses), tuple(span.kind for span in spans))
        return Reading(
            tuple(accesses), tuple(spans), self.kernel_factory.call(spec, partial(walk, spec)), threads
        )

    def _accesses(self, body: temporal.Expression | temporal.Feedback) -> list[SignalAccess]:
        """Accesses with the columns that are read of them, then those for marks alone."""
        used = {name for field in body.fields for name in ex.columns_of(field.expr)}
        accesses = [
            SignalAccess(
                access.source,
                access.shift,
                tuple((at(i, n), n) for n in self.program[access.source].schema.names if at(i, n) in used),
            )
            for i, access in enumerate(body.accesses)
        ]
        known = {(access.source, access.shift) for access in accesses}
        for over in body.reductions:
            if not isinstance(over.span, temporal.Window | temporal.Per) and (
                (over.source, over.shift) not in known
            ):
                known.add((over.source, over.shift))
                accesses.append(SignalAccess(over.source, over.shift))
        if isinstance(body, temporal.Expression) and is_lenient(body, self._schemas):
            accesses.append(SignalAccess(BEGINNING_OF_KEYS, 0))
        return accesses

    def _scope(
        self, this: temporal.Object, body: temporal.Expression | temporal.Feedback, threads: int
    ) -> FieldInputs:
        spans = list(dict.fromkeys(span_reading(reduction) for reduction in body.reductions))
        reading = self._reading(self._accesses(body), spans, threads)
        return FieldInputs(reading, tuple(self._reducing(this, body, spans, threads)))

    def _reducing(
        self,
        this: temporal.Object,
        body: temporal.Expression | temporal.Feedback,
        spans: list[SpanReading],
        threads: int,
    ) -> list[ObjectReductions]:
        """The reductions over each object that is reduced, in one go; those that are only walked along are not."""
        read = {n.index for f in body.fields for n in ex.walk(f.expr) if isinstance(n, ex.Reduced)}
        known = [(i, reduction) for i, reduction in enumerate(body.reductions) if i in read]
        found, chosen = [], self._algorithms(this)
        for source in dict.fromkeys(reduction.source for _, reduction in known):
            numbered = [(i, reduction) for i, reduction in known if reduction.source == source]
            own = list(dict.fromkeys(span_reading(reduction) for _, reduction in numbered))
            places = [own.index(span_reading(reduction)) for _, reduction in numbered]
            overs = [reduction for _, reduction in numbered]
            algorithms = tuple(chosen[i] for i, _ in numbered)
            found.append(
                ObjectReductions(
                    source,
                    tuple(spans.index(reading) for reading in own),
                    tuple(reduced_name(i) for i, _ in numbered),
                    tuple(places),
                    tuple(over.function in COUNTS_NONE for over in overs),
                    self._reductions(self.program[source], overs, places, algorithms, threads),
                )
            )
        return found

    def _reductions(
        self,
        source: temporal.Object,
        overs: Sequence[temporal.WindowReduction],
        spans: Sequence[int],
        algorithms: tuple[str, ...],
        threads: int,
    ) -> Reduce:
        over = SampleReductions(self.node.id, source, tuple(overs), tuple(spans), algorithms)
        return over.reduce(self.kernel_factory, threads, self._rows, showing=self.showing)

    def _rows(
        self, op: ph.Rows, given: pa.Schema, time: Time, schema: pa.Schema
    ) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
        """Compute columns of a batch."""
        rows = CompiledRows(op, given, time, schema, self.kernel_factory)
        if self.showing:
            rows.rows(frozenset())

        def compute(batch: pa.RecordBatch) -> pa.RecordBatch:
            (timed_batch,) = RowsStage(rows, Metrics(), 0).push(0, [TimedBatch(batch)])
            return timed_batch.batch

        return compute

    def _fields(
        self, this: temporal.Object, body: temporal.Expression
    ) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
        names = [reduced_name(i) for i in range(len(body.reductions))]
        fields = tuple(ex.Field(field.name, read_from_columns(field.expr, names)) for field in body.fields)
        time = Time(_TIME, pa.int64(), None)
        return self._rows(ph.Rows((), fields), self._scope_schema(body), time, this.schema)

    def _scope_schema(
        self, body: temporal.Expression | temporal.Feedback, own: pa.DataType | None = None
    ) -> pa.Schema:
        schemas = self._schemas
        reduced = [
            pa.field(reduced_name(i), reduced_type(reduction, schemas[reduction.source]))
            for i, reduction in enumerate(body.reductions)
        ]
        return pa.schema([*scope(body, schemas, own), *reduced])

    def _feedback(self, this: temporal.Object, body: temporal.Feedback, threads: int) -> FeedbackStep:
        dtype = this.schema.types[0]
        schema = self._scope_schema(body, dtype)
        names = [reduced_name(i) for i in range(len(body.reductions))]
        expr = read_from_columns(body.fields[0].expr, names)
        time = Time(_TIME, pa.int64(), None)

        def kernel(nullable: frozenset[str]) -> tuple[Call, tuple[Binding, ...]]:
            backs = tuple(self_reference.back for self_reference in body.own)
            spec = FeedbackSpec(schema, time, expr, backs, body.initial, nullable)
            made = build_feedback(spec)
            return self.kernel_factory.call(spec, lambda: made.kernel), made.bindings

        if self.showing:
            kernel(frozenset())
        machine = machine_type(dtype)
        assert machine is not None
        own = tuple((self_reference.back, self_reference.shift) for self_reference in body.own)
        return FeedbackStep(
            self._scope(this, body, threads),
            own,
            kernel,
            self._locate,
            this.schema.names[0],
            dtype,
            numpy_type(machine),
        )

    def _chop(self, body: temporal.Chop, this: temporal.Object, threads: int) -> ChopStep:
        grid = f"{this.name}.grid"
        accesses = [SignalAccess(body.source, 0), SignalAccess(grid, 0)]
        if body.marks is not None:
            accesses.append(SignalAccess(body.marks.source, body.marks.shift))
        reading = self._reading(accesses, [], threads)
        return ChopStep(body.source, body.every, reading, grid, temporal.DURATION if body.durations else None)


def reduced_name(place: int) -> str:
    """Name the column that holds a reduction."""
    return f"reduced.{place}"


def _samples(this: temporal.Object) -> bool:
    return isinstance(this.body, temporal.Sampled)
