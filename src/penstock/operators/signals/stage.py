"""The signal stage: rows are buffered up to the watermark, then every object is computed from its inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from penstock.algorithms.hash_table.keys import Indexer
from penstock.algorithms.sort.sorting import Sorter
from penstock.algorithms.sorted_partitions.rows import Rows, arrived, no_rows, rows_back
from penstock.operators.rows.stage import RowsStage
from penstock.operators.signals.feedback import FeedbackStep
from penstock.operators.signals.fused.driver import FusedStep
from penstock.operators.signals.intervals import (
    Interleaver,
    ValueRuns,
    advance,
    everything,
    interval_batch,
    merged_batch,
    no_runs,
)
from penstock.operators.signals.objects import BEGINNING_OF_KEYS, ObjectStep
from penstock.operators.signals.points import BEGINNING, PartitionKeys, Points, as_type
from penstock.operators.signals.sampling import Retention, Sampling
from penstock.runtime.buffers import indices, plain, ticks_of, to_arrow
from penstock.runtime.kernels import Call
from penstock.runtime.metrics import Metrics
from penstock.runtime.source_stage import on_time
from penstock.runtime.stage import END_OF_TIME, START_OF_TIME, TimedBatch
from penstock.state.state_table import (
    StateTable,
    array_of,
    integers,
    numbered_from_zero,
    read_scalars,
    require,
    scalars,
)
from penstock.types.time import Time

FEW_PARTITIONS = 1 << 8  # unused partitions that do not justify renumbering


@dataclass
class Taker:
    """Takes samples from the rows of one input: computes their columns, and retains them while they are needed."""

    name: str
    port: int
    rows_stage: RowsStage
    schema: pa.Schema
    time: Time
    sampling: Sampling
    rows: Rows = field(init=False)

    def __post_init__(self) -> None:
        self.rows = no_rows(self.schema)

    def take(self, timed_batch: TimedBatch) -> None:
        made = self.rows_stage.push(0, [timed_batch])
        self.rows = self.rows.followed_by(self._samples(arrived(made, self.schema, self.time)))

    def load(self, table: pa.Table) -> None:
        self.rows = self._samples(rows_back(table, self.schema, self.time))

    def _samples(self, rows: Rows) -> Rows:
        """Drop rows that hold for no time: they are not samples."""
        ends = self.sampling.ends(rows)
        return rows if ends is None else rows.chosen(ends > rows.times)


@dataclass(frozen=True)
class IntervalLayout:
    """The layout of a signal's intervals: keys, values, and the columns of the result.

    `lag` bounds how far before the watermark an interval of a new key begins. `ends`: the result has the ends
    of intervals. Without them, an interval is emitted as soon as it has begun.
    """

    keys: tuple[str, ...]
    key_types: tuple[pa.DataType, ...]
    values: pa.Schema
    schema: pa.Schema
    output: str
    lag: int
    pieces: bool
    ends: bool


def late_rows_dropped(
    timed_batch: TimedBatch, port: int, time: Time, marks: Sequence[int], metrics: Metrics
) -> TimedBatch:
    """Drop and count late rows: those before the smallest watermark of all inputs."""

    def late(arrival_watermarks: np.ndarray) -> np.ndarray:
        others = min((mark for other, mark in enumerate(marks) if other != port), default=END_OF_TIME)
        times = ticks_of(timed_batch.batch.column(time.column), time.shift)
        return np.asarray(times < np.minimum(arrival_watermarks, others))

    return on_time(timed_batch, metrics, late)


@dataclass
class SignalStage:
    """Holds samples and open intervals; emits the intervals that have ended.

    `used` marks partitions with data that future results may depend on.
    """

    takers: Sequence[Taker]
    steps: Mapping[str, ObjectStep]
    layout: IntervalLayout
    times: Sequence[Time]
    metrics: Metrics
    retention: Retention
    new_index: Callable[[], Indexer]
    sorter: Sorter
    finish: Call
    interleaver: Interleaver
    watermark: int = field(init=False, default=START_OF_TIME)
    marks: list[int] = field(init=False)
    keys: PartitionKeys = field(init=False)
    emitted: np.ndarray = field(init=False)
    used: np.ndarray = field(init=False)
    runs: ValueRuns = field(init=False)

    def __post_init__(self) -> None:
        self.marks = [START_OF_TIME] * len(self.times)
        layout = self.layout
        self.keys = PartitionKeys(layout.keys, layout.key_types, self.new_index, self.interleaver.threads)
        self.emitted = np.zeros(0, np.int64)
        self.used = np.zeros(0, np.bool_)
        self.runs = no_runs(self.layout.values)

    def push(self, port: int, timed_batches: list[TimedBatch]) -> list[TimedBatch]:
        for timed_batch in timed_batches:
            timely = late_rows_dropped(timed_batch, port, self.times[port], self.marks, self.metrics)
            if timely.batch.num_rows:
                for taker in self.takers:
                    if taker.port == port:
                        taker.take(timely)
        return []

    def advance(self, port: int, watermark: int) -> tuple[list[TimedBatch], int]:
        self.marks[port] = max(self.marks[port], watermark)
        now = min(self.marks)
        if now <= self.watermark:
            return [], self._ahead()
        self.watermark = now
        batch = self._emit()
        return ([TimedBatch(batch, counted=True)] if batch.num_rows else []), self._ahead()

    # -- evaluation ----------------------------------------------------------------------------------

    def _emit(self) -> pa.RecordBatch:
        released, numbers = self._released()
        partitions = len(self.keys)
        objects: dict[str, Points] = {
            taker.name: taker.sampling.points(rows, number, partitions, self.watermark)
            for taker, rows, number in zip(self.takers, released, numbers, strict=True)
        }
        objects[BEGINNING_OF_KEYS] = _beginning(list(objects.values()), partitions, self.watermark)
        for name, step in self.steps.items():
            if isinstance(step, FusedStep) and name == self.layout.output and not self.layout.pieces:
                objects[name] = step.joined(objects, self.emitted)
            else:
                objects[name] = step.points(objects)
        batch = self._intervals(objects[self.layout.output])
        self._forget(released, numbers)
        return batch

    def _intervals(self, made: Points) -> pa.RecordBatch:
        """Return the intervals that have ended; without `ends`, those that have begun."""
        keys, schema = self.keys.values(), self.layout.schema
        whole = made.joined and everything(self.runs, made, self.emitted)
        merged = self.interleaver.merged(made, keys) if whole else None
        if merged is None:
            layout = self.layout
            given, self.runs = advance(
                self.runs, made, self.emitted, self.finish, pieces=layout.pieces, ends=layout.ends
            )
        self.emitted = np.maximum(self.emitted, made.until)
        if merged is not None:
            return merged_batch(merged, schema)
        return interval_batch(given, keys, schema, self.sorter)

    def _released(self) -> tuple[list[Rows], list[np.ndarray]]:
        """Return the rows before the watermark, and their partitions."""
        if self.watermark == END_OF_TIME:
            released = [taker.rows for taker in self.takers]
        else:
            released = [taker.rows.chosen(taker.rows.times < self.watermark) for taker in self.takers]
        numbers = [self.keys.number(rows) for rows in released]
        grown = len(self.keys) - len(self.emitted)
        self.emitted = np.concatenate([self.emitted, np.full(grown, START_OF_TIME, np.int64)])
        return released, numbers

    def _forget(self, released: Sequence[Rows], numbers: Sequence[np.ndarray]) -> None:
        """Retain the rows and filter results that future points may depend on, and the rows after the watermark."""
        for step in self._filters.values():
            step.forget(self.retention, self.emitted)
        self.used = np.full(len(self.keys), not self.retention.forgets)
        self.used[self.runs.partition] = True
        for taker, rows, number in zip(self.takers, released, numbers, strict=True):
            if self.watermark == END_OF_TIME:
                taker.rows = no_rows(taker.schema)
                continue
            needed = self.retention.needed(rows, number, self.emitted, taker.sampling)
            self.used[number[needed]] = True
            taker.rows = rows.chosen(needed).followed_by(
                taker.rows.chosen(taker.rows.times >= self.watermark)
            )
        self._forget_partitions()

    def _forget_partitions(self) -> None:
        """Drop unused partitions once they outnumber the used ones."""
        partitions = np.flatnonzero(self.used)
        if not self.layout.keys or len(self.used) - len(partitions) <= max(FEW_PARTITIONS, len(partitions)):
            return
        self.keys.keep(partitions)
        self.runs = replace(self.runs, partition=np.searchsorted(partitions, self.runs.partition))
        self.emitted, self.used = self.emitted[partitions], np.ones(len(partitions), np.bool_)

    @property
    def _filters(self) -> dict[str, FeedbackStep]:
        return {name: step for name, step in self.steps.items() if isinstance(step, FeedbackStep)}

    def _ahead(self) -> int:
        """Return the earliest possible start of future intervals.

        An interval may be of a new key, of a partition that lags, or already open, if it is emitted at its end.
        """
        if self.watermark in (START_OF_TIME, END_OF_TIME):
            return self.watermark
        known = [self.watermark, self.watermark - self.layout.lag]
        known += [int(self.runs.start.min())] if self.layout.ends and len(self.runs) else []
        known += [int(self.emitted.min())] if len(self.emitted) else []
        return max(min(known), START_OF_TIME)

    # -- state ---------------------------------------------------------------------------------------

    def save(self) -> Mapping[str, StateTable]:
        numbered = {f"port_{port}": mark for port, mark in enumerate(self.marks)}
        rows = {
            f"rows_{place}": taker.rows.kept(self.layout.keys)
            for place, taker in enumerate(self.takers)
            if len(taker.rows)
        }
        filters = {f"filter_{name}": step.save() for name, step in self._filters.items()}
        taken = scalars(watermark=self.watermark, **numbered)
        return {"marks": taken, "partitions": self._kept_partitions(), **rows, **filters}

    def _kept_partitions(self) -> StateTable:
        """Return the key, progress and open interval of each used partition."""
        partitions = np.flatnonzero(self.used)
        places = np.full(len(self.used), -1, np.int64)
        places[self.runs.partition] = np.arange(len(self.runs))
        place = places[partitions]
        keys = [key.take(indices(partitions)) for key in self.keys.values()]
        columns = {
            **{f"key:{name}": plain(key) for name, key in zip(self.layout.keys, keys, strict=True)},
            "partition": indices(np.arange(len(partitions))),
            "emitted": indices(self.emitted[partitions]),
            "open": indices((place >= 0).astype(np.int64)),
            "start": indices(
                self.runs.start[place] if len(self.runs) else np.zeros(len(partitions), np.int64)
            ),
            **{f"value:{name}": plain(c.take(_or_null(place))) for name, c in self.runs.columns.items()},
        }
        table = pa.Table.from_arrays(list(columns.values()), names=list(columns))
        return StateTable(table, tuple(f"key:{name}" for name in self.layout.keys), ("partition",))

    def load(self, tables: Mapping[str, pa.Table]) -> None:
        saved = read_scalars(tables["marks"])
        self.watermark = saved["watermark"]
        self.marks = [saved[f"port_{port}"] for port in range(len(self.times))]
        for place, taker in enumerate(self.takers):
            if f"rows_{place}" in tables:
                taker.load(tables[f"rows_{place}"])
        if "partitions" in tables:
            self._load_partitions(numbered_from_zero(tables["partitions"], "partition"))
        for name, step in self._filters.items():
            if f"filter_{name}" in tables:
                step.load(tables[f"filter_{name}"], len(self.emitted))

    def _load_partitions(self, table: pa.Table) -> None:
        self.keys.load([array_of(table, f"key:{name}") for name in self.layout.keys], table.num_rows)
        self.emitted = integers(table, "emitted").copy()
        self.used = np.ones(len(self.emitted), np.bool_)
        partitions = np.flatnonzero(integers(table, "open"))
        columns = {
            value.name: as_type(array_of(table, f"value:{value.name}").take(indices(partitions)), value.type)
            for value in self.layout.values
        }
        start = integers(table, "start")[partitions]
        require((start < self.emitted[partitions]).all(), "the open intervals of a signal")
        self.runs = ValueRuns(partitions, start, np.full(len(partitions), END_OF_TIME, np.int64), columns)


def _beginning(samples: Sequence[Points], partitions: int, watermark: int) -> Points:
    """Return the first instant of each partition, as points without marks or values.

    A partition without samples may begin at any time from the watermark on; a partition begins only once.
    """
    first = np.full(partitions, END_OF_TIME, np.int64)
    for sample in samples:
        some = np.diff(sample.bounds) > 0
        first[some] = np.minimum(first[some], sample.times[sample.bounds[:-1][some]])
    some = first != END_OF_TIME
    bounds = np.concatenate([[0], np.cumsum(some)])
    until = np.where(some, END_OF_TIME, max(watermark, BEGINNING))
    return Points(bounds, first[some], np.zeros(int(some.sum()), np.uint8), {}, until)


def _or_null(places: np.ndarray) -> pa.Array:
    return to_arrow(np.maximum(places, 0), places >= 0, pa.int64())
