"""The stage for signals over regular time: results at positions become intervals as soon as they are final."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from penstock.algorithms.sorted_partitions.rows import joined
from penstock.loop.abi import OutputColumn, PastResults
from penstock.loop.nodes import U8, Type
from penstock.operators.signals.positional.evaluate import DenseSignals, InputSamples, PositionalColumn
from penstock.operators.signals.stage import SignalStage
from penstock.runtime.buffers import indices, numpy_type, room, time_array, to_arrow
from penstock.runtime.kernels import Call
from penstock.runtime.metrics import Metrics
from penstock.runtime.stage import END_OF_TIME, ROWS_EVER, START_OF_TIME, TimedBatch
from penstock.state.state_table import (
    StateTable,
    complete,
    in_order,
    integers,
    kept_rows,
    numbered_from_zero,
    read_scalars,
    require,
    rows_of,
    scalars,
)

Kernels = Callable[[str, np.dtype, bool], Call]  # by name, type of values, and whether values may be null


@dataclass(frozen=True)
class ResultTimes:
    """The time of results: the i-th begins at `origin + i * stride` ticks.

    With `closes`, each result lasts for one stride, including the last one.
    """

    origin: int
    stride: int
    closes: bool = False

    def at(self, place: int) -> int:
        return self.origin + place * self.stride


@dataclass
class Open:
    """The open run: its start and its values, with validity."""

    start: int
    values: list[np.ndarray]
    valid: list[np.ndarray]


@dataclass
class DenseStage:
    """Holds the samples that future results depend on, and the open run.

    Intervals have the columns of `whole`; `schema` selects the output columns. `few()` makes the fallback stage
    for inputs with too few samples for regular positions (see `shortest`).
    """

    signals: DenseSignals
    clock: ResultTimes
    schemas: Sequence[pa.Schema]
    whole: pa.Schema
    schema: pa.Schema
    metrics: Metrics
    kernels: Kernels
    few: Callable[[], SignalStage]
    samples: list[InputSamples] = field(init=False)
    done: int = field(init=False)
    run: Open | None = field(init=False, default=None)
    ended: bool = field(init=False, default=False)
    ports: list[int] = field(init=False)
    types: list[pa.DataType] = field(init=False)

    def __post_init__(self) -> None:
        self.types = [column.type for column in self.whole]
        self.samples = [InputSamples(joined([], schema)) for schema in self.schemas]
        self.done = self.signals.span(0)[0]
        self.ports = [START_OF_TIME] * len(self.schemas)

    def push(self, port: int, timed_batches: list[TimedBatch]) -> list[TimedBatch]:
        batches = [
            timed_batch.batch.select(self.schemas[port].names)
            for timed_batch in timed_batches
            if timed_batch.batch.num_rows
        ]
        if not batches:
            return []
        if not timed_batches[0].counted:
            self.metrics.accepted += sum(batch.num_rows for batch in batches)
        before = self.samples[port]
        kept = [before.rows] if before.rows.num_rows else []
        self.samples[port] = InputSamples(joined([*kept, *batches], self.schemas[port]), before.base)
        total = min(sample.total for sample in self.samples)
        return self._evaluated(self.signals.ready(total)) if total >= self.signals.program.shortest else []

    def advance(self, port: int, watermark: int) -> tuple[list[TimedBatch], int]:
        """Finish at the end of input; before it, `push` emits results as soon as their samples have arrived."""
        self.ports[port] = max(self.ports[port], watermark)
        if min(self.ports) != END_OF_TIME or self.ended:
            return [], END_OF_TIME if self.ended else self._ahead()
        self.ended = True
        total = max(sample.total for sample in self.samples)
        if min(sample.total for sample in self.samples) < self.signals.program.shortest:
            return self._run_few(), END_OF_TIME
        timed_batches = self._evaluated(self.signals.span(total)[1]) if total else []
        return [*timed_batches, *self._last()], END_OF_TIME

    def _ahead(self) -> int:
        ready = self.clock.at(self.signals.program.outputs_before(self.done))
        return ready if self.run is None else min(self.run.start, ready)

    # -- evaluation ----------------------------------------------------------------------------------

    def _evaluated(self, upto: int) -> list[TimedBatch]:
        """Return the intervals that end before a position, and drop the samples that are no longer needed."""
        if upto <= self.done:
            return []
        columns = self.signals.evaluate(self.samples, self.done, upto)
        first = self.signals.program.outputs_before(self.done)
        batch = self._intervals(columns, first)
        self.done = upto
        self._forget()
        return [TimedBatch(batch, counted=True)] if batch.num_rows else []

    def _forget(self) -> None:
        since = max(self._needed, 0)
        for port, sample in enumerate(self.samples):
            drop = min(max(since - sample.base, 0), sample.rows.num_rows)
            if drop:
                self.samples[port] = InputSamples(sample.rows.slice(drop), sample.base + drop)

    @property
    def _needed(self) -> int:
        """The first position with a sample that future results may depend on."""
        return self.done - self.signals.program.past - self.signals.program.lasting - 1

    def _intervals(self, columns: Sequence[PositionalColumn], first: int) -> pa.RecordBatch:
        """Cut results where they change, and at marks if the program cuts there; the last run stays open."""
        cut = self._cut(first, len(columns[0].values))
        if len(columns) == 1 and cut.start == cut.stop:
            return self._of_one(columns[0], first)
        places = self._places(columns, cut)
        starts = self.clock.origin + (first + places) * self.clock.stride
        values = [column.values[places] for column in columns]
        valid = [_flags(column)[places] for column in columns]
        if self.run is not None:
            starts = np.concatenate([[self.run.start], starts])
            values = [np.concatenate(pair) for pair in zip(self.run.values, values, strict=True)]
            valid = [np.concatenate(pair) for pair in zip(self.run.valid, valid, strict=True)]
        if not len(starts):
            return self._batch(starts, starts, values, valid)
        self.run = Open(
            int(starts[-1]), [value[-1:].copy() for value in values], [v[-1:].copy() for v in valid]
        )
        return self._batch(starts[:-1], starts[1:], [v[:-1] for v in values], [v[:-1] for v in valid])

    def _of_one(self, column: PositionalColumn, first: int) -> pa.RecordBatch:
        """Return the intervals of one signal, written by a kernel; null values form no run."""
        values, rows = column.values, len(column.values)
        starts, ends, out = room(rows + 2), room(rows + 2), room(rows + 2, values.dtype)
        run = self.run if self.run is not None and self.run.valid[0][0] else None
        starts[0], out[0] = (0, 0) if run is None else (run.start, run.values[0][0])
        given = {
            "rows": rows, "origin": self.clock.at(first), "stride": self.clock.stride, "open": int(run is not None),
            "values": values, "starts": starts, "ends": ends, "out": out,
        }  # fmt: skip
        valid = {"valid": column.valid} if column.nulls else {}
        begun = self.kernels("intervals", values.dtype, column.nulls)(given | valid)
        lasts = not column.nulls or bool(column.valid[-1]) if rows else run is not None
        ended = begun - int(lasts)
        last = slice(ended, ended + 1)
        self.run = Open(int(starts[ended]), [out[last].copy()], [np.ones(1, np.uint8)]) if lasts else None
        return self._rows(starts[:ended], ends[:ended], [out[:ended]], [None])

    def _cut(self, first: int, rows: int) -> slice:
        """Return the range of results that are samples; empty if only changes cut."""
        marks, before = self.signals.program.marks, self.signals.program.outputs_before
        if marks is None:
            return slice(0, 0)
        lo, hi = before(marks[0]) - first, before(self.samples[0].total + marks[1]) - first
        return slice(min(max(lo, 0), rows), min(max(hi, 0), rows))

    def _places(self, columns: Sequence[PositionalColumn], cut: slice) -> np.ndarray:
        """Return the starts of runs of several signals: where any signal changes, and at marks."""
        rows = len(columns[0].values)
        if cut == slice(0, rows):
            return np.arange(rows)
        begins = np.zeros(rows, np.bool_)
        for place, column in enumerate(columns):
            begins[self._changes(column, place)] = True
        begins[cut] = True
        return np.flatnonzero(begins)

    def _changes(self, column: PositionalColumn, place: int) -> np.ndarray:
        """Return the starts of runs of one of several signals."""
        rows = len(column.values)
        nullable = column.nulls or (self.run is not None and not self.run.valid[place][0])
        before = np.zeros(1, column.values.dtype) if self.run is None else self.run.values[place]
        places = room(rows + 1)
        first = int(self.run is None)
        given = {"rows": rows, "first": first, "values": column.values, "places": places, "before": before}
        if nullable:
            was = np.ones(1, np.uint8) if self.run is None else self.run.valid[place]
            given |= {"valid": _flags(column), "before_valid": was}
        return places[: self.kernels("beginnings", column.values.dtype, nullable)(given)]

    def _last(self) -> list[TimedBatch]:
        """Close the open run at the end of input: without an end, or with the end of its last result."""
        run = self.run
        if run is None:
            return []
        end = self.clock.at(self.signals.program.outputs_before(self.done)) if self.clock.closes else None
        ends = None if end is None else np.array([end])
        batch = self._batch(np.array([run.start]), ends, run.values, run.valid)
        return [TimedBatch(batch, counted=True)] if batch.num_rows else []

    def _batch(
        self,
        starts: np.ndarray,
        ends: np.ndarray | None,
        values: Sequence[np.ndarray],
        valid: Sequence[np.ndarray],
    ) -> pa.RecordBatch:
        """Return runs as rows; drop runs with nulls in all columns."""
        there = (
            np.logical_or.reduce([array.view(np.bool_) for array in valid]) if len(valid) > 1 else valid[0]
        )
        if not there.all():
            there = there.view(np.bool_)
            starts, ends = starts[there], None if ends is None else ends[there]
            values, valid = [value[there] for value in values], [bits[there] for bits in valid]
        return self._rows(starts, ends, values, valid)

    def _rows(
        self,
        starts: np.ndarray,
        ends: np.ndarray | None,
        values: Sequence[np.ndarray],
        valid: Sequence[np.ndarray | None],
    ) -> pa.RecordBatch:
        """Return intervals as rows; no interval has nulls in all columns."""
        types = self.types
        until = pa.nulls(len(starts), types[1]) if ends is None else time_array(ends, types[1])
        arrays = [time_array(starts, types[0]), until]
        for value, flags, dtype in zip(values, valid, types[2:], strict=True):
            arrays.append(to_arrow(np.ascontiguousarray(value), flags, dtype))
        return pa.RecordBatch.from_arrays(arrays, schema=self.whole).select(self.schema.names)

    def _run_few(self) -> list[TimedBatch]:
        stage = self.few()
        timed_batches: list[TimedBatch] = []
        for port, sample in enumerate(self.samples):
            timed_batches += stage.push(port, [TimedBatch(sample.rows, None, sample.base, counted=True)])
        for port in range(len(self.samples)):
            made, _ = stage.advance(port, END_OF_TIME)
            timed_batches += made
        return timed_batches

    # -- state ---------------------------------------------------------------------------------------

    def save(self) -> Mapping[str, StateTable]:
        places = {f"base_{port}": sample.base for port, sample in enumerate(self.samples)}
        places |= {f"port_{port}": mark for port, mark in enumerate(self.ports)}
        rows = {
            f"rows_{port}": kept_rows(
                pa.Table.from_batches([sample.rows]), np.arange(sample.rows.num_rows) + sample.base, ()
            )
            for port, sample in enumerate(self.samples)
            if sample.rows.num_rows
        }
        wide = int(self.signals.wide)
        return {"marks": scalars(done=self.done, wide=wide, **places), **rows, **self._kept_runs()}

    def _kept_runs(self) -> dict[str, StateTable]:
        kept = {}
        if self.run is not None:
            columns = {"start": indices(np.array([self.run.start]))}
            for place, (values, valid) in enumerate(zip(self.run.values, self.run.valid, strict=True)):
                columns |= {f"value_{place}": _stored(values), f"valid_{place}": _stored(valid)}
            kept["run"] = StateTable(pa.Table.from_arrays(list(columns.values()), names=list(columns)))
        for place, (values, valid) in enumerate(self.signals.histories):
            columns = {
                "place": indices(np.arange(len(values))),
                "value": _stored(values),
                "valid": _stored(valid),
            }
            table = pa.Table.from_arrays(list(columns.values()), names=list(columns))
            kept[f"history_{place}"] = StateTable(table, (), ("place",))
        return kept

    def load(self, tables: Mapping[str, pa.Table]) -> None:
        saved = read_scalars(tables["marks"])
        self.done, self.signals.wide = saved["done"], bool(saved["wide"])
        self.ports = [saved[f"port_{port}"] for port in range(len(self.ports))]
        for port, schema in enumerate(self.schemas):
            rows = joined([], schema)
            if f"rows_{port}" in tables:
                rows = rows_of(in_order(tables[f"rows_{port}"]), schema)
            self.samples[port] = InputSamples(rows, saved[f"base_{port}"])
        self._check_places()
        if "run" in tables:
            self.run = _loaded_run(tables["run"], self.signals.program.outputs)
        memories = self.signals.program.memories
        histories = [tables[name] for place in range(len(memories)) if (name := f"history_{place}") in tables]
        require(len(histories) in (0, len(memories)), "the filters of a signal")
        self.signals.histories = [
            _loaded_history(table, memory) for table, memory in zip(histories, memories, strict=False)
        ]

    def _check_places(self) -> None:
        """Reject positions that no run reaches: results are final up to the last position that samples allow."""
        signals, total = self.signals, min(sample.total for sample in self.samples)
        done = signals.ready(total) if total >= signals.program.shortest else signals.span(0)[0]
        require(self.done == done, "the place of a signal")
        require(
            all(0 <= sample.base <= max(self._needed, 0) < ROWS_EVER for sample in self.samples),
            "the samples of a signal",
        )


def _flags(column: PositionalColumn) -> np.ndarray:
    return column.valid if column.nulls else np.ones(len(column.values), np.uint8)


def _stored(values: np.ndarray) -> pa.Array:
    """Return values as an Arrow column of the same width."""
    kind = {"f": "float", "i": "int", "u": "uint"}[values.dtype.kind]
    dtype = {"float4": pa.float32(), "float8": pa.float64()}.get(
        f"{kind}{values.itemsize}", getattr(pa, f"{kind}{8 * values.itemsize}", None)
    )
    return to_arrow(np.ascontiguousarray(values), None, dtype() if callable(dtype) else dtype)


def _loaded_run(table: pa.Table, outputs: Sequence[OutputColumn]) -> Open:
    values = [_loaded(table, f"value_{place}", output.type) for place, output in enumerate(outputs)]
    valid = [_loaded(table, f"valid_{place}", U8) for place in range(len(outputs))]
    require(table.num_rows == 1, "the open interval of a signal")
    return Open(int(integers(table, "start")[0]), values, valid)


def _loaded_history(table: pa.Table, memory: PastResults) -> tuple[np.ndarray, np.ndarray]:
    require(table.num_rows >= memory.kept, "the results of a filter")
    ordered = numbered_from_zero(table, "place")
    return _loaded(ordered, "value", memory.type), _loaded(ordered, "valid", U8)


def _loaded(table: pa.Table, name: str, type: Type) -> np.ndarray:
    """Return a `_stored` column as a kernel reads it."""
    dtype = _stored(np.empty(0, numpy_type(type))).type
    values: np.ndarray = complete(table, name, dtype).to_numpy(zero_copy_only=False)
    return values.copy()
