"""A running query: a graph of stages through which rows and watermarks flow from the sources to the output."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import BindingError, OverflowError, StateError
from penstock.runtime.adapt.controller import USUAL, Policy
from penstock.runtime.adapt.known_plan import KnownPlan
from penstock.runtime.engine import Engine
from penstock.runtime.guarded_step import GuardedStep
from penstock.runtime.metrics import Metrics, StateSize
from penstock.runtime.ring import (
    FIRST_ROW,
    MARK,
    OVERFLOWN,
    REACHED,
    REASON,
    SENSE,
    STOPPED,
    Departure,
    LoopStage,
    Ring,
)
from penstock.runtime.source_stage import SourceStage
from penstock.runtime.stage import END_OF_TIME, KernelOverflowError, Stage, TimedBatch
from penstock.state.state_table import StateTable, read_scalars, require, scalars

METRICS = "metrics"


@dataclass(frozen=True)
class Context:
    """The arguments from which stages are made."""

    engine: Engine
    metrics: Metrics
    bounded: bool
    policy: Policy = USUAL  # how eagerly the run adapts
    known: Mapping[str, KnownPlan] = field(default_factory=dict)  # by node: what earlier runs have found


@dataclass(frozen=True)
class Direct:
    """A source, and the one stage that reads it, whose kernel native code may call."""

    session: Session
    source: SourceStage
    stage: LoopStage
    name: str
    port: int


@dataclass(frozen=True)
class StageSpec:
    """One stage of a pipeline: its name, its input stages, its constructor, and its stream or table if it is a source.

    `overflow` returns the error message for an integer result that does not fit its type.
    """

    name: str
    inputs: tuple[str, ...]
    make: Callable[[Context], Stage]
    stream: str | None = None
    table: str | None = None
    overflow: Callable[[], str] = lambda: "an integer result does not fit its type"


class Pipeline:
    """The graph of stages, built once for all runs of a query."""

    def __init__(self, specs: Sequence[StageSpec], output: str, schema: pa.Schema) -> None:
        self.specs, self.output, self.schema = specs, output, schema
        self.streams = {spec.stream: spec.name for spec in specs if spec.stream is not None}
        self.overflows = {spec.name: spec.overflow for spec in specs}
        self.tables = {spec.table: spec.name for spec in specs if spec.table is not None}
        self.readers: dict[str, list[tuple[str, int]]] = {spec.name: [] for spec in specs}
        for spec in specs:
            for port, source in enumerate(spec.inputs):
                self.readers[source].append((spec.name, port))


class Session:
    """Push batches in, get result batches out.

    `bounded` input is complete when `finish` is called, so no row is late and no result is emitted early.
    Otherwise every push moves the watermark and returns the windows it completes.
    """

    def __init__(self, pipeline: Pipeline, context: Context) -> None:
        self.metrics = context.metrics
        self.schema = pipeline.schema
        self._bounded = context.bounded
        self._pipeline = pipeline
        self._stages = {spec.name: spec.make(context) for spec in pipeline.specs}
        self._results: list[pa.RecordBatch] = []
        self._finished = False
        self.step = GuardedStep()

    def push(self, stream: str, *batches: pa.RecordBatch) -> list[pa.RecordBatch]:
        """Push rows of a stream; return the results they complete."""
        name = self._pipeline.streams.get(stream) if not self._finished else None
        if name is None:
            name = self._source(stream)
        if self.step.halfway:
            self.step.check()
        with self.step:
            stage = self._stages[name]
            assert isinstance(stage, SourceStage)
            self.metrics.batches += len(batches)
            self._spread(name, [stage.admit(batch) for batch in batches if batch.num_rows])
            if not self._bounded:
                for reader, port in self._pipeline.readers[name]:
                    self._advance(reader, stage.watermark, port)
            return self._taken()

    def direct(self, stream: str) -> Direct | None:
        """The stage to which native code may give rows of a stream, and their source; None if there is none."""
        name = self._pipeline.streams[stream]
        source, readers = self._stages[name], self._pipeline.readers[name]
        if self._finished or self._bounded or len(readers) != 1 or name == self._pipeline.output:
            return None
        reader, port = readers[0]
        stage = self._stages[reader]
        if not (isinstance(source, SourceStage) and source.reads_natively and isinstance(stage, LoopStage)):
            return None
        # Rows that pass a filter have more than their columns, which a stage behind it may need.
        behind = not stage.loop_results or reader == self._pipeline.output
        return Direct(self, source, stage, reader, port) if behind else None

    def settle(
        self, direct: Direct, ring: Ring, batch_of: Callable[[Ring], pa.RecordBatch], overlaps: bool
    ) -> tuple[list[pa.RecordBatch], Departure | None]:
        """Take over what the native loop did, and do what it stopped for; return the results.

        With `overlaps` also those that the caller may let `depart` compute while the loop goes on.
        """
        self.step.check()
        with self.step:
            source, stage = direct.source, direct.stage
            words = ring.words
            try:
                before = source.rows
                source.passed(words[FIRST_ROW], words[MARK])
                batches, made, seconds = ring.taken()
                self.metrics.batches += batches
                bound = ring.bound
                if bound is not None:
                    bound.call.spend(seconds)
                results = stage.loop_done(source.rows - before, made)
                if results:
                    self._spread(direct.name, results)
                if words[REASON] == OVERFLOWN:
                    raise KernelOverflowError  # noqa: TRY301 - named below, as errors of stages are
                if ring.waiting and words[REASON] in (STOPPED, SENSE):
                    self._settle_batch(direct, ring, batch_of)
            except KernelOverflowError:
                raise OverflowError(self._pipeline.overflows[direct.name]()) from None
            departure = stage.depart(source.watermark) if overlaps else None
            if departure is None:
                self._advance(direct.name, source.watermark, direct.port)
            return self._taken(), departure

    def depart(self, direct: Direct, departure: Departure) -> list[pa.RecordBatch]:
        """Compute results while the native loop goes on, before the next call of `settle`."""
        self.step.check()
        with self.step:
            try:
                batches = departure.emit()
            except KernelOverflowError:
                raise OverflowError(self._pipeline.overflows[direct.name]()) from None
            self._spread(direct.name, batches)
            for reader, port in self._pipeline.readers[direct.name]:
                self._advance(reader, departure.ahead, port)
            return self._taken()

    def _settle_batch(self, direct: Direct, ring: Ring, batch_of: Callable[[Ring], pa.RecordBatch]) -> None:
        """Process a batch that the loop did not, or not to its end."""
        source, words = direct.source, ring.words
        timed_batch = source.admit(batch_of(ring))
        self.metrics.batches += 1
        if words[REASON] == STOPPED:
            direct.stage.loop_stopped(timed_batch, words[REACHED])
        else:
            self._spread_to(direct, timed_batch)
        ring.skip(source.watermark, source.rows)

    def _spread_to(self, direct: Direct, timed_batch: TimedBatch) -> None:
        made = self._stages[direct.name].push(direct.port, [timed_batch])
        if made:
            self._spread(direct.name, made)

    @property
    def variants(self) -> dict[str, Any]:
        """The nodes of the physical plan as they run now, by name, of the stages that have variants."""
        return {name: stage.variant for name, stage in self._stages.items() if hasattr(stage, "variant")}

    @property
    def sensors(self) -> dict[str, str]:
        """What the tasks of each stage cost and keep, by name, of the stages that measure them."""
        found = {name: stage.sensors for name, stage in self._stages.items() if hasattr(stage, "sensors")}
        return {name: sensor.show() for name, sensor in found.items()}

    @property
    def known_plans(self) -> dict[str, KnownPlan]:
        """The plans of the stages that adapt, by name, for the next run of the query."""
        plans = ((name, getattr(stage, "known_plan", None)) for name, stage in self._stages.items())
        return {name: plan for name, plan in plans if plan is not None}

    def skip(self, stream: str, rows: int, malformed: int = 0) -> None:
        """Count `rows` rows that were not pushed because the query filters them out at every reader.

        `malformed` more rows were found to be malformed before the push.
        """
        stage = self._stages[self._source(stream)]
        assert isinstance(stage, SourceStage)
        self.step.check()
        if not rows and not malformed:
            return
        with self.step:
            self.metrics.read += (rows + malformed) * stage.readers
            self.metrics.filtered += rows * stage.readers
            self.metrics.malformed += malformed * stage.readers

    def pace(self, stream: str | None = None) -> None:
        """Advance the watermark only explicitly, on one stream or on all; other sessions read part of this stream."""
        for name in self._pipeline.streams.values() if stream is None else [self._source(stream)]:
            stage = self._stages[name]
            assert isinstance(stage, SourceStage)
            stage.paced = True

    def late_rows(self, stream: str) -> np.ndarray:
        """Row numbers of the late rows among those pushed since the last call; call it once before the first push."""
        stage = self._stages[self._source(stream)]
        assert isinstance(stage, SourceStage)
        return stage.late_rows()

    def late_count(self, stream: str) -> int:
        """Count the late rows of a stream in this run, once for each reader that dropped them."""
        stage = self._stages[self._pipeline.streams[stream]]
        assert isinstance(stage, SourceStage)
        return stage.tally.late

    def fill(self, table: str, batches: Iterable[pa.RecordBatch]) -> None:
        """Push all rows of a table, before the first row of any stream."""
        timed_batches = [
            TimedBatch(batch, counted=True) for batch in batches
        ]  # metrics do not count rows of tables
        name = self._pipeline.tables[table]
        self._spread(name, self._stages[name].push(0, timed_batches))

    def advance(self, watermark: int, stream: str | None = None) -> list[pa.RecordBatch]:
        """Advance the watermark of one stream or of all: no earlier row will be pushed."""
        names = list(self._pipeline.streams.values()) if stream is None else [self._source(stream)]
        self.step.check()
        with self.step:
            return self._advanced(names, watermark)

    def number_from(self, stream: str, row: int) -> None:
        """Set the number of the next row of a stream; other sessions read the rows before it."""
        stage = self._stages[self._source(stream)]
        assert isinstance(stage, SourceStage)
        stage.rows = row

    def finish(self) -> list[pa.RecordBatch]:
        """Declare the end of all streams; return the remaining results."""
        if self._finished:
            return []
        self.step.check()
        with self.step:
            results = self._advanced(self._pipeline.streams.values(), END_OF_TIME)
            self._finished = True
            return results

    def save(self) -> dict[str, StateTable]:
        """Return the state of all stages, as tables by name, and the row counts."""
        if self._finished:
            raise StateError(
                "this run has finished: nothing is left to continue from; save it before the end"
            )
        self.step.check()
        with self.step:  # saving may merge the tables of a stage
            stages = ((name, stage.save()) for name, stage in self._stages.items())
            kept = {
                f"{name}/{part}": state_table for name, parts in stages for part, state_table in parts.items()
            }
            return {**kept, METRICS: scalars(**self.metrics.counts)}

    def held(self) -> dict[str, StateSize]:
        """Measure the state of every stage, as it would be saved."""
        if self._finished:
            return {}
        self.step.check()
        with self.step:
            return {name: _size_of(stage.save()) for name, stage in self._stages.items()}

    def load(self, tables: Mapping[str, pa.Table]) -> None:
        """Restore the tables that `save` returned in a run of the same query; call it before the first push."""
        try:
            with self.step:
                self._load(tables)
        except (pa.ArrowException, KeyError, TypeError, IndexError, ValueError, AttributeError):
            # Checksum and signature match, so the contents were forged.
            raise StateError(
                "the saved state does not hold what the stages of this query keep; start the query again"
            ) from None

    def _load(self, tables: Mapping[str, pa.Table]) -> None:
        parts: dict[str, dict[str, pa.Table]] = {name: {} for name in self._stages}
        self.metrics.load(read_scalars(tables[METRICS]))
        require(self.metrics.balanced, "its counts of rows")
        for name, table in tables.items():
            owner, _, part = name.rpartition("/")
            parts.get(owner, {})[part] = table
        for name, stage in self._stages.items():
            stage.load(parts[name])

    @property
    def watermark(self) -> int:
        """The smallest watermark of all streams."""
        return min(map(self.watermark_of, self._pipeline.streams))

    def watermark_of(self, stream: str) -> int:
        """The watermark of one stream."""
        stage = self._stages[self._pipeline.streams[stream]]
        assert isinstance(stage, SourceStage)
        return stage.watermark

    def _source(self, stream: str) -> str:
        if self._finished:
            raise BindingError("this run has finished; open the query again to push more rows")
        if stream not in self._pipeline.streams:
            raise BindingError(
                f"this query reads no stream {stream!r}; it reads {sorted(map(str, self._pipeline.streams))}"
            )
        return self._pipeline.streams[stream]

    def _advanced(self, names: Iterable[str], watermark: int) -> list[pa.RecordBatch]:
        for name in names:
            self._advance(name, watermark)
        return self._taken()

    def _advance(self, name: str, watermark: int, port: int = 0) -> None:
        """Advance a stage, then the stages downstream: results go first, so that they are not late there."""
        try:
            timed_batches, ahead = self._stages[name].advance(port, watermark)
            if not isinstance(timed_batches, list):
                for timed_batch in timed_batches:
                    self._spread(name, [timed_batch])
            elif timed_batches:
                self._spread(name, timed_batches)
        except KernelOverflowError:
            raise OverflowError(self._pipeline.overflows[name]()) from None
        for reader, input_port in self._pipeline.readers[name]:
            self._advance(reader, ahead, input_port)

    def _spread(self, name: str, timed_batches: list[TimedBatch]) -> None:
        if not timed_batches:
            return
        if name == self._pipeline.output:
            self._leave(timed_batches)
        for reader, port in self._pipeline.readers[name]:
            try:
                made = self._stages[reader].push(port, timed_batches)
            except KernelOverflowError:
                raise OverflowError(self._pipeline.overflows[reader]()) from None
            if made:
                self._spread(reader, made)

    def _leave(self, timed_batches: list[TimedBatch]) -> None:
        batches = [timed_batch.batch for timed_batch in timed_batches if timed_batch.batch.num_rows]
        rows = sum([batch.num_rows for batch in batches])
        self.metrics.emitted += rows
        if not timed_batches[0].counted:
            self.metrics.accepted += rows
        self._results += batches

    def _taken(self) -> list[pa.RecordBatch]:
        self.metrics.check()
        results, self._results = self._results, []
        return results


def _size_of(parts: Mapping[str, StateTable]) -> StateSize:
    """Measure the tables of a stage; those without keys and ranks hold a few numbers."""
    tables = [part.table for part in parts.values() if part.keys or part.ranks]
    return StateSize(sum(table.num_rows for table in tables), sum(table.nbytes for table in tables))
