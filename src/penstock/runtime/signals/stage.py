"""Signals as a stage: rows wait for the watermark, then every object follows from what it reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from penstock.runtime.buffers import indices, plain, ticks_of, to_arrow, values_view
from penstock.runtime.flow import FOREVER, NEVER, Flow
from penstock.runtime.indexer import Indexer
from penstock.runtime.lanes.partition import dense_numbers
from penstock.runtime.lanes.rows import Rows, arrived, no_rows, rows_back
from penstock.runtime.lanes.sorting import Sorter
from penstock.runtime.lateness import on_time
from penstock.runtime.metrics import Metrics
from penstock.runtime.programs import Call
from penstock.runtime.row_stages import RowsStage
from penstock.runtime.signals.feedback import FeedbackStep
from penstock.runtime.signals.fused import FusedStep
from penstock.runtime.signals.interleaving import Interleaver
from penstock.runtime.signals.intervals import (
    Runs,
    advance,
    everything,
    interval_batch,
    merged_batch,
    no_runs,
)
from penstock.runtime.signals.points import BEGINNING, Points
from penstock.runtime.signals.retention import Retention
from penstock.runtime.signals.sampling import Sampling
from penstock.runtime.signals.steps import BEGINNING_OF_KEYS, Step
from penstock.runtime.state.kept import Kept, array_of, integers, marked, marks
from penstock.types.time import Time

FEW_ROWS = 1 << 12  # below this, a table of keys is not worth making


@dataclass
class Taker:
    """Takes samples from the rows of one input: computes their columns, and holds them while they matter."""

    name: str
    port: int
    rows_stage: RowsStage
    schema: pa.Schema
    time: Time
    sampling: Sampling
    rows: Rows = field(init=False)

    def __post_init__(self) -> None:
        self.rows = no_rows(self.schema)

    def take(self, flow: Flow) -> None:
        made = self.rows_stage.push(0, [flow])
        self.rows = self.rows.followed_by(arrived(made, self.schema, self.time))


@dataclass(frozen=True)
class Layout:
    """What a signal's intervals are made of: keys, values, and the columns of the result."""

    keys: tuple[str, ...]
    key_types: tuple[pa.DataType, ...]
    values: pa.Schema
    schema: pa.Schema
    output: str
    reach: int
    pieces: bool


@dataclass
class SignalStage:
    """Holds samples and open intervals; gives the intervals that have ended."""

    takers: Sequence[Taker]
    steps: Mapping[str, Step]
    layout: Layout
    times: Sequence[Time]
    metrics: Metrics
    retention: Retention
    new_index: Callable[[], Indexer]
    sorter: Sorter
    finish: Call
    interleaver: Interleaver
    watermark: int = field(init=False, default=NEVER)
    marks: list[int] = field(init=False)
    index: Indexer | None = field(init=False)
    emitted: np.ndarray = field(init=False)
    runs: Runs = field(init=False)

    def __post_init__(self) -> None:
        self.marks = [NEVER] * len(self.times)
        self.index = self.new_index() if self.layout.keys else None
        self.emitted = np.zeros(0, np.int64)
        self.runs = no_runs(self.layout.values)

    def push(self, port: int, flows: list[Flow]) -> list[Flow]:
        for flow in flows:
            timely = self._on_time(port, flow)
            if timely.batch.num_rows:
                for taker in self.takers:
                    if taker.port == port:
                        taker.take(timely)
        return []

    def advance(self, port: int, watermark: int) -> tuple[list[Flow], int]:
        self.marks[port] = max(self.marks[port], watermark)
        now = min(self.marks)
        if now <= self.watermark:
            return [], self._ahead()
        self.watermark = now
        batch = self._emit()
        return ([Flow(batch, counted=True)] if batch.num_rows else []), self._ahead()

    def _on_time(self, port: int, flow: Flow) -> Flow:
        """Drop and count the rows that come too late: behind the slowest of all streams."""
        time = self.times[port]

        def late(frontier: np.ndarray) -> np.ndarray:
            others = min((mark for other, mark in enumerate(self.marks) if other != port), default=FOREVER)
            times = ticks_of(flow.batch.column(time.column), time.shift)
            return np.asarray(times < np.minimum(frontier, others))

        return on_time(flow, self.metrics, late)

    # -- evaluation ----------------------------------------------------------------------------------

    def _emit(self) -> pa.RecordBatch:
        released, numbers = self._released()
        lanes = self._lanes()
        objects: dict[str, Points] = {
            taker.name: taker.sampling.points(rows, number, lanes, self.watermark)
            for taker, rows, number in zip(self.takers, released, numbers, strict=True)
        }
        objects[BEGINNING_OF_KEYS] = _beginning(list(objects.values()), lanes, self.watermark)
        for name, step in self.steps.items():
            if isinstance(step, FusedStep) and name == self.layout.output and not self.layout.pieces:
                objects[name] = step.joined(objects, self.emitted)
            else:
                objects[name] = step.points(objects)
        batch = self._intervals(objects[self.layout.output])
        self._forget(released, numbers)
        return batch

    def _intervals(self, made: Points) -> pa.RecordBatch:
        """Those that have ended."""
        keys, schema = self._keys(), self.layout.schema
        whole = made.joined and everything(self.runs, made, self.emitted)
        merged = self.interleaver.merged(made, keys) if whole else None
        if merged is None:
            ended, self.runs = advance(self.runs, made, self.emitted, self.layout.pieces, self.finish)
        self.emitted = np.maximum(self.emitted, made.until)
        if merged is not None:
            return merged_batch(merged, schema)
        return interval_batch(ended, keys, schema, self.sorter)

    def _released(self) -> tuple[list[Rows], list[np.ndarray]]:
        """The rows before the watermark, and the lanes they belong to."""
        if self.watermark == FOREVER:
            released = [taker.rows for taker in self.takers]
        else:
            released = [taker.rows.chosen(taker.rows.times < self.watermark) for taker in self.takers]
        numbers = [self._numbers(rows) for rows in released]
        grown = self._lanes() - len(self.emitted)
        self.emitted = np.concatenate([self.emitted, np.full(grown, NEVER, np.int64)])
        return released, numbers

    def _numbers(self, rows: Rows) -> np.ndarray:
        if self.index is None:
            return np.zeros(len(rows), np.int64)
        columns = [rows.batch.column(name) for name in self.layout.keys]
        dense = (
            dense_numbers(columns[0], self.interleaver.threads)
            if len(columns) == 1 and len(rows) > FEW_ROWS
            else None
        )
        return self.index.number(columns) if dense is None else self._by_table(columns[0], dense)

    def _by_table(self, column: pa.Array, dense: np.ndarray) -> np.ndarray:
        """Number the few values of many rows, and look the rows up."""
        assert self.index is not None
        seen = np.bincount(dense)
        some = np.flatnonzero(seen)
        values = values_view(column)
        own = some + (int(values[0]) - int(dense[0]))
        table = np.zeros(len(seen), np.int64)
        table[some] = self.index.number([to_arrow(own.astype(values.dtype), None, column.type)])
        return dense if (table[some] == some).all() else table[dense]

    def _lanes(self) -> int:
        return 1 if self.index is None else len(self.index)

    def _keys(self) -> list[pa.Array]:
        if self.index is None:
            return []
        found = self.index.values(self.layout.key_types)
        return [_typed(key, dtype) for key, dtype in zip(found, self.layout.key_types, strict=True)]

    def _forget(self, released: Sequence[Rows], numbers: Sequence[np.ndarray]) -> None:
        """Keep the rows, and results of filters, that points to come may depend on; and rows still ahead."""
        for step in self._filters.values():
            step.forget(self.retention, self.emitted)
        for taker, rows, number in zip(self.takers, released, numbers, strict=True):
            if self.watermark == FOREVER:
                taker.rows = no_rows(taker.schema)
                continue
            needed = self.retention.needed(rows, number, self.emitted, taker.sampling.ends(rows))
            taker.rows = rows.chosen(needed).followed_by(
                taker.rows.chosen(taker.rows.times >= self.watermark)
            )

    @property
    def _filters(self) -> dict[str, FeedbackStep]:
        return {name: step for name, step in self.steps.items() if isinstance(step, FeedbackStep)}

    def _ahead(self) -> int:
        """The earliest start that intervals to come can have."""
        if self.watermark in (NEVER, FOREVER):
            return self.watermark
        known = [self.watermark - self.layout.reach]
        known += [int(self.runs.start.min())] if len(self.runs) else []
        known += [int(self.emitted.min())] if len(self.emitted) else []
        return max(min(known), NEVER)

    # -- state ---------------------------------------------------------------------------------------

    def save(self) -> Mapping[str, Kept]:
        numbered = {f"port_{port}": mark for port, mark in enumerate(self.marks)}
        rows = {
            f"rows_{place}": taker.rows.kept(self.layout.keys)
            for place, taker in enumerate(self.takers)
            if len(taker.rows)
        }
        filters = {f"filter_{name}": step.save() for name, step in self._filters.items()}
        taken = marks(watermark=self.watermark, **numbered)
        return {"marks": taken, "lanes": self._kept_lanes(), **rows, **filters}

    def _kept_lanes(self) -> Kept:
        """Each lane's key, how far it is, and what is open in it."""
        lanes = np.arange(len(self.emitted))
        place = np.full(len(lanes), -1, np.int64)
        place[self.runs.lane] = np.arange(len(self.runs))
        keys = [key.slice(0, len(lanes)) for key in self._keys()]
        columns = {
            **{f"key:{name}": plain(key) for name, key in zip(self.layout.keys, keys, strict=True)},
            "lane": indices(lanes),
            "emitted": indices(self.emitted),
            "open": indices((place >= 0).astype(np.int64)),
            "start": indices(self.runs.start[place] if len(self.runs) else np.zeros(len(lanes), np.int64)),
            **{f"value:{name}": plain(c.take(_or_null(place))) for name, c in self.runs.columns.items()},
        }
        table = pa.Table.from_arrays(list(columns.values()), names=list(columns))
        return Kept(table, tuple(f"key:{name}" for name in self.layout.keys), ("lane",))

    def load(self, tables: Mapping[str, pa.Table]) -> None:
        saved = marked(tables["marks"])
        self.watermark = saved["watermark"]
        self.marks = [saved[f"port_{port}"] for port in range(len(self.times))]
        for place, taker in enumerate(self.takers):
            if f"rows_{place}" in tables:
                taker.rows = rows_back(tables[f"rows_{place}"], taker.schema, taker.time)
        for name, step in self._filters.items():
            if f"filter_{name}" in tables:
                step.load(tables[f"filter_{name}"])
        if "lanes" in tables:
            table = tables["lanes"]
            self._load_lanes(table.take(indices(np.argsort(integers(table, "lane")))))

    def _load_lanes(self, table: pa.Table) -> None:
        if self.index is not None:
            self.index.number([array_of(table, f"key:{name}") for name in self.layout.keys])
        self.emitted = integers(table, "emitted").copy()
        lanes = np.flatnonzero(integers(table, "open"))
        columns = {
            each.name: _typed(array_of(table, f"value:{each.name}").take(indices(lanes)), each.type)
            for each in self.layout.values
        }
        start = integers(table, "start")[lanes]
        self.runs = Runs(lanes, start, np.full(len(lanes), FOREVER, np.int64), columns)


def _beginning(samples: Sequence[Points], lanes: int, watermark: int) -> Points:
    """The first instant of each lane, as points without marks or values.

    A lane without samples may begin at any time from the watermark on; one that has begun does not begin again.
    """
    first = np.full(lanes, FOREVER, np.int64)
    for each in samples:
        some = np.diff(each.bounds) > 0
        first[some] = np.minimum(first[some], each.times[each.bounds[:-1][some]])
    some = first != FOREVER
    bounds = np.concatenate([[0], np.cumsum(some)])
    until = np.where(some, FOREVER, max(watermark, BEGINNING))
    return Points(bounds, first[some], np.zeros(int(some.sum()), np.uint8), {}, until)


def _or_null(places: np.ndarray) -> pa.Array:
    return to_arrow(np.maximum(places, 0), places >= 0, pa.int64())


def _typed(column: pa.Array, dtype: pa.DataType) -> pa.Array:
    if column.type == dtype:
        return column
    if pa.types.is_dictionary(dtype):
        encoded = column.cast(dtype.value_type).dictionary_encode()
        return pa.DictionaryArray.from_arrays(encoded.indices.cast(dtype.index_type), encoded.dictionary)
    return column.cast(dtype)
