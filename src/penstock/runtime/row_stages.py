"""Row stages: stream source, filter and projection, union."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from penstock.errors import OverflowError, SourceError
from penstock.loop.abi import ACCEPTED, ERRORS, WORDS, positions_table
from penstock.runtime.binding import BatchArguments
from penstock.runtime.buffers import indices, numpy_type, room, ticks_of, time_array, to_arrow
from penstock.runtime.engine import MOST_ROWS
from penstock.runtime.interner import MOST_TEXT, Interner
from penstock.runtime.metrics import Metrics
from penstock.runtime.programs import OutputCall, RowsProgram
from penstock.runtime.stage import (
    END_OF_TIME,
    ROWS_EVER,
    START_OF_TIME,
    KernelOverflowError,
    Tally,
    TimedBatch,
    Trace,
)
from penstock.runtime.state.state_table import StateTable, read_scalars, require, scalars
from penstock.types.time import Time

BEYOND = "implied times reach beyond the range of 64 bits; start them earlier"


class SourceStage:
    """The source of a stream: drops rows without a time and maintains the watermark.

    The watermark is the largest time so far minus the lateness. Rows behind it at their arrival carry it
    (`TimedBatch.arrival_watermarks`), so later stages can decide which of their windows were complete then.
    If `paced`, rows do not move the watermark: the session reads part of the stream, and time advances explicitly.
    """

    def __init__(
        self,
        time: Time,
        lateness: int,
        on_bad: str,
        schema: pa.Schema,
        readers: int,
        bounded: bool,
        metrics: Metrics,
        sequence: str | None = None,
        numbered: bool = False,
    ) -> None:
        """`schema` is the schema readers expect of a batch, with or without the column of an implied time.

        `sequence` names the column that orders rows of equal time, if a reader needs that order. If `numbered`, a
        reader needs the order of arrival.
        """
        self.time, self.lateness, self.on_bad, self.schema = time, lateness, on_bad, schema
        self.sequence, self.numbered = sequence, numbered
        self.readers, self.bounded, self.metrics = readers, bounded, metrics
        self.rows = 0
        self.watermark = START_OF_TIME
        self.paced = False
        self.late: list[np.ndarray] | None = None  # row numbers of late rows, if they are requested
        self.tally = Tally()
        self._told = 0

    def push(self, port: int, flows: list[TimedBatch]) -> list[TimedBatch]:
        return [self._admit(flow.batch) for flow in flows if flow.batch.num_rows]

    def advance(self, port: int, watermark: int) -> tuple[list[TimedBatch], int]:
        self.watermark = max(self.watermark, watermark)
        return [], self.watermark

    def save(self) -> Mapping[str, StateTable]:
        return {"marks": scalars(rows=self.rows, watermark=self.watermark)}

    def load(self, tables: Mapping[str, pa.Table]) -> None:
        saved = read_scalars(tables["marks"])
        self.rows, self.watermark = saved["rows"], saved["watermark"]
        require(0 <= self.rows < ROWS_EVER, "the number of rows read")

    def _admit(self, batch: pa.RecordBatch) -> TimedBatch:
        self.metrics.read += batch.num_rows * self.readers
        first = self.rows
        self.rows += batch.num_rows
        if self.time.period is not None:
            self._raise_to(_implied(self.time, self.rows - 1))
            stored = with_implied_time(batch, self.time, first, self.schema)
            return TimedBatch(stored, None, first, self._order(batch))
        timed = self._with_time(batch)
        if self.bounded or timed.num_rows == 0:
            return TimedBatch(timed, None, first, self._order(timed))
        arrival_watermarks = self._frontier(ticks_of(timed.column(self.time.column)))
        trace = None if arrival_watermarks is None else self._trace(batch, first)
        return TimedBatch(timed, arrival_watermarks, first, self._order(timed), trace=trace, tally=self.tally)

    def _trace(self, batch: pa.RecordBatch, first: int) -> Trace | None:
        """Number the rows that have a time."""
        if self.late is None and not self.numbered:
            return None
        there = batch.column(self.time.column).is_valid().to_numpy(zero_copy_only=False)
        return Trace(first + np.flatnonzero(there), self.late)

    def late_rows(self) -> np.ndarray:
        """Row numbers of the late rows since the last call, each once, counted from 0 at that call."""
        told, self._told = self._told, self.rows
        found = [] if self.late is None else [*self.late]
        self.late = []
        return np.unique(np.concatenate(found)) - told if found else np.zeros(0, np.int64)

    def _order(self, batch: pa.RecordBatch) -> pa.Array | None:
        return None if self.sequence is None else batch.column(self.sequence)

    def _with_time(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        times = BatchArguments(batch, {}).column(self.time.column)
        if times.null_count == 0:
            return batch
        if self.on_bad == "fail":
            raise SourceError(
                f"{times.null_count} rows have no time in column {self.time.column!r}; "
                "filter them out, or use on_bad='drop' to count and skip them"
            )
        self.metrics.malformed += times.null_count * self.readers
        return batch.filter(times.is_valid())

    def _frontier(self, times: np.ndarray) -> np.ndarray | None:
        """Move the watermark over the rows; None if no row was behind it at its arrival."""
        before = self.watermark
        self._raise_to(int(times.max()))
        if int(times.min()) >= self.watermark:
            return None
        if self.paced:
            return np.full(len(times), before)
        ahead: np.ndarray = np.maximum(np.maximum.accumulate(times) - self.lateness, before)
        return ahead

    def _raise_to(self, time: int) -> None:
        if not self.paced:  # the watermark stays below END_OF_TIME: no row marks the end of the stream
            self.watermark = max(self.watermark, min(time - self.lateness, END_OF_TIME - 1))


def _implied(time: Time, row: int) -> int:
    """The time of a row, computed from its row number."""
    assert time.period is not None
    found = time.start + row * time.period
    if found > END_OF_TIME:
        raise OverflowError(BEYOND)
    return found


def implied_times(time: Time, first_row: int, rows: int) -> pa.Array:
    """The times of rows, computed from their row numbers."""
    assert time.period is not None
    return time_array(np.arange(first_row, first_row + rows) * time.period + time.start, time.type)


def with_implied_time(batch: pa.RecordBatch, time: Time, first_row: int, schema: pa.Schema) -> pa.RecordBatch:
    """Materialise the column of an implied time, if the schema has it."""
    if time.column not in schema.names:
        return batch
    arrays = [
        implied_times(time, first_row, batch.num_rows) if name == time.column else batch.column(name)
        for name in schema.names
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class RowsStage:
    """Filter and projection: one kernel computes columns; `take` copies the columns that pass through."""

    def __init__(
        self, program: RowsProgram, metrics: Metrics, paths: int, computes_time: bool = False
    ) -> None:
        """`paths` is how many times a row filtered out here, not yet counted, would be counted downstream.

        If the time of the result is computed, it can be any value: the output watermark advances only at the end of input.
        """
        self.program, self.metrics, self.paths = program, metrics, paths
        self.computes_time = computes_time
        self.nullable: frozenset[str] = frozenset()
        self.interners = {name: Interner(program.texts.intern) for name in program.interned}
        self._positions = positions_table()

    def push(self, port: int, flows: list[TimedBatch]) -> list[TimedBatch]:
        return [self._rows(part) for flow in flows for part in _parts(flow)]

    def advance(self, port: int, watermark: int) -> tuple[list[TimedBatch], int]:
        return [], START_OF_TIME if self.computes_time and watermark != END_OF_TIME else watermark

    def save(self) -> Mapping[str, StateTable]:
        """Save nothing: the stage has no state."""
        return {}

    def load(self, tables: Mapping[str, pa.Table]) -> None: ...

    def _rows(self, flow: TimedBatch) -> TimedBatch:
        batch = self.program.prepare(flow.batch, flow.first_row)
        self.nullable |= {name for name in batch.schema.names if batch.column(name).null_count}
        kernel = self.program.rows(self.nullable)
        if kernel is None:
            return flow.filtered(self._arranged(batch, {}, flow, None), None)
        outputs, count = self._run(kernel, batch, flow)
        chosen = outputs["out_row"][:count] if self.program.filters else None
        if not flow.counted:
            self.metrics.filtered += (batch.num_rows - count) * self.paths
        computed = {
            each.name: (
                outputs[each.values][:count],
                None if each.valid is None else outputs[each.valid][:count],
            )
            for each in kernel.outputs
        }
        return flow.filtered(self._arranged(batch, computed, flow, chosen), chosen)

    def _run(
        self, kernel: OutputCall, batch: pa.RecordBatch, flow: TimedBatch
    ) -> tuple[dict[str, np.ndarray], int]:
        rows = batch.num_rows
        outputs: dict[str, np.ndarray] = {"out_row": room(rows)}
        for each in kernel.outputs:
            outputs[each.values] = room(rows, numpy_type(each.type))
            if each.valid is not None:
                outputs[each.valid] = room(rows, np.uint8)
        head = np.zeros(WORDS, np.int64)
        self._forget_texts()
        given = BatchArguments(batch, self.interners).fill(kernel.bindings)
        limits = {"lo": 0, "hi": rows, "first_row": flow.first_row, "head": head}
        kernel.call({**given, **outputs, **limits, "positions": self._positions})
        if head[ERRORS]:
            raise KernelOverflowError
        return outputs, int(head[ACCEPTED])

    def _forget_texts(self) -> None:
        """Drop the texts of earlier batches once they exceed MOST_TEXT: no code outlives its batch."""
        for name, texts in self.interners.items():
            if texts.nbytes > MOST_TEXT:
                self.interners[name] = Interner(self.program.texts.intern)

    def _arranged(
        self,
        batch: pa.RecordBatch,
        computed: dict[str, tuple[np.ndarray, np.ndarray | None]],
        flow: TimedBatch,
        chosen: np.ndarray | None,
    ) -> pa.RecordBatch:
        arrays = []
        for column in self.program.result:
            if column.origin == "computed":
                arrays.append(to_arrow(*computed[column.name], column.type))
            else:
                arrays.append(_taken(self._source(batch, column.source, flow), chosen))
        return pa.RecordBatch.from_arrays(arrays, schema=self.program.schema)

    def _source(self, batch: pa.RecordBatch, name: str, flow: TimedBatch) -> pa.Array:
        time = self.program.time
        if time.period is not None and name == time.column:
            return implied_times(time, flow.first_row, batch.num_rows)
        return batch.column(name)


def _parts(flow: TimedBatch) -> Iterator[TimedBatch]:
    """Split a batch with more rows than kernels can number."""
    if flow.batch.num_rows <= MOST_ROWS:
        yield flow
        return
    for begin in range(0, flow.batch.num_rows, MOST_ROWS):
        yield replace(
            flow,
            batch=flow.batch.slice(begin, MOST_ROWS),
            arrival_watermarks=None
            if flow.arrival_watermarks is None
            else flow.arrival_watermarks[begin : begin + MOST_ROWS],
            first_row=flow.first_row + begin,
            sequence=None if flow.sequence is None else flow.sequence.slice(begin, MOST_ROWS),
            trace=_traced(flow, begin),
        )


def _traced(flow: TimedBatch, begin: int) -> Trace | None:
    if flow.trace is None:
        return None
    return replace(flow.trace, rows=flow.trace.rows[begin : begin + MOST_ROWS])


def _taken(array: pa.Array, chosen: np.ndarray | None) -> pa.Array:
    return array if chosen is None else array.take(indices(chosen))


class MergeStage:
    """Union: rows pass in arrival order; the watermark is the minimum over the inputs.

    `origins` names the streams behind each input. Inputs that branch off the same stream carry the same rows, so
    the watermark a row carries holds for all of them.
    """

    def __init__(self, origins: Sequence[frozenset[str]]) -> None:
        self.origins = origins
        self.watermarks = [START_OF_TIME] * len(origins)

    def push(self, port: int, flows: list[TimedBatch]) -> list[TimedBatch]:
        elsewhere = (
            mark
            for mark, origin in zip(self.watermarks, self.origins, strict=True)
            if origin != self.origins[port]
        )
        others = min(elsewhere, default=END_OF_TIME)
        return [
            replace(
                flow,
                arrival_watermarks=None
                if flow.arrival_watermarks is None
                else np.minimum(flow.arrival_watermarks, others),
                branch=flow.branch * len(self.origins) + port,
            )
            for flow in flows
        ]

    def advance(self, port: int, watermark: int) -> tuple[list[TimedBatch], int]:
        self.watermarks[port] = max(self.watermarks[port], watermark)
        return [], min(self.watermarks)

    def save(self) -> Mapping[str, StateTable]:
        return {"marks": scalars(**{f"port_{port}": mark for port, mark in enumerate(self.watermarks)})}

    def load(self, tables: Mapping[str, pa.Table]) -> None:
        saved = read_scalars(tables["marks"])
        self.watermarks = [saved[f"port_{port}"] for port in range(len(self.origins))]
