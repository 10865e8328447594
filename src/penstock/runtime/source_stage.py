"""The source of a stream: its watermark, times that follow from row numbers, rows without a time, and late rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from penstock.errors import OverflowError, SourceError
from penstock.runtime.buffers import ColumnAddresses, ColumnLayout, Reader, ticks_of, time_array
from penstock.runtime.metrics import Metrics
from penstock.runtime.stage import END_OF_TIME, ROWS_EVER, START_OF_TIME, Tally, TimedBatch, Trace
from penstock.state.state_table import StateTable, read_scalars, require, scalars
from penstock.types.time import Time

BEYOND = "implied times reach beyond the range of 64 bits; start them earlier"


def implied_time(time: Time, row: int) -> int:
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
        reader: Reader | None = None,
    ) -> None:
        """`schema` is the schema readers expect of a batch, with or without the column of an implied time.

        `sequence` names the column that orders rows of equal time, if a reader needs that order. If `numbered`, a
        reader needs the order of arrival. `reader` reads columns natively; without one, NumPy follows the watermark.
        """
        self.time, self.lateness, self.on_bad, self.schema = time, lateness, on_bad, schema
        self.sequence, self.numbered = sequence, numbered
        self.readers, self.bounded, self.metrics = readers, bounded, metrics
        self._reader = reader
        self._layout: ColumnLayout | None = None
        self.rows = 0
        self.watermark = START_OF_TIME
        self.paced = False
        self.late: list[np.ndarray] | None = None  # row numbers of late rows, if they are requested
        self.tally = Tally()
        self._reported = 0

    def push(self, port: int, timed_batches: list[TimedBatch]) -> list[TimedBatch]:
        return [self.admit(timed_batch.batch) for timed_batch in timed_batches if timed_batch.batch.num_rows]

    def advance(self, port: int, watermark: int) -> tuple[list[TimedBatch], int]:
        self.watermark = max(self.watermark, watermark)
        return [], self.watermark

    def save(self) -> Mapping[str, StateTable]:
        return {"marks": scalars(rows=self.rows, watermark=self.watermark)}

    def load(self, tables: Mapping[str, pa.Table]) -> None:
        saved = read_scalars(tables["marks"])
        self.rows, self.watermark = saved["rows"], saved["watermark"]
        require(0 <= self.rows < ROWS_EVER, "the number of rows read")

    def admit(self, batch: pa.RecordBatch) -> TimedBatch:
        """Count rows, drop those without a time, and move the watermark."""
        rows, first = batch.num_rows, self.rows
        self.metrics.read += rows * self.readers
        self.rows += rows
        if self._reader is not None and not self.bounded and not self.paced and self.time.period is None:
            columns = self._read(batch, self._reader)
            if columns is not None:
                return TimedBatch(batch, None, first, self._order(batch), tally=self.tally, columns=columns)
        if self.time.period is not None:
            self._raise_to(implied_time(self.time, self.rows - 1))
            stored = with_implied_time(batch, self.time, first, self.schema)
            return TimedBatch(stored, None, first, self._order(batch))
        times = batch.column(self.time.column)
        timed = batch if times.null_count == 0 else self._with_time(batch)
        order = None if self.sequence is None else self._order(timed)
        if self.bounded or timed.num_rows == 0:
            return TimedBatch(timed, None, first, order)
        arrival_watermarks = self._frontier(
            ticks_of(times if timed is batch else timed.column(self.time.column))
        )
        trace = None if arrival_watermarks is None else self._trace(batch, first)
        return TimedBatch(timed, arrival_watermarks, first, order, trace=trace, tally=self.tally)

    @property
    def reads_natively(self) -> bool:
        """Whether native code can read batches: their times are stored, and no reader needs more than their columns."""
        return (
            self._reader is not None
            and not (self.bounded or self.paced or self.numbered)
            and self.time.period is None
            and self.sequence is None
            and self.late is None
        )

    def layout(self, schema: pa.Schema) -> ColumnLayout:
        """The plan by which batches of a schema are read."""
        return ColumnLayout.of(schema, self.time, self.lateness)

    def passed(self, rows: int, watermark: int) -> None:
        """Count rows that native code read, and move the watermark over them."""
        self.metrics.read += (rows - self.rows) * self.readers
        self.rows, self.watermark = rows, watermark

    def _read(self, batch: pa.RecordBatch, reader: Reader) -> ColumnAddresses | None:
        """Read the columns natively, and move the watermark over the rows; None leaves both to Python."""
        layout = self._layout
        if layout is None or not layout.schema.equals(batch.schema):
            layout = self._layout = ColumnLayout.of(batch.schema, self.time, self.lateness)
        columns = layout.read(batch, self.watermark, reader)
        if columns is not None:
            self.watermark = columns.watermark
        return columns

    def _trace(self, batch: pa.RecordBatch, first: int) -> Trace | None:
        """Number the rows that have a time."""
        if self.late is None and not self.numbered:
            return None
        there = batch.column(self.time.column).is_valid().to_numpy(zero_copy_only=False)
        return Trace(first + np.flatnonzero(there), self.late)

    def late_rows(self) -> np.ndarray:
        """Row numbers of the late rows since the last call, each once, counted from 0 at that call."""
        reported, self._reported = self._reported, self.rows
        found = [] if self.late is None else [*self.late]
        self.late = []
        return np.unique(np.concatenate(found)) - reported if found else np.zeros(0, np.int64)

    def _order(self, batch: pa.RecordBatch) -> pa.Array | None:
        return None if self.sequence is None else batch.column(self.sequence)

    def _with_time(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        times = batch.column(self.time.column)
        if self.on_bad == "fail":
            raise SourceError(
                f"{times.null_count} rows have no time in column {self.time.column!r}; "
                "filter them out, or use on_bad='drop' to count and skip them"
            )
        self.metrics.malformed += times.null_count * self.readers
        return batch.filter(times.is_valid())

    def _frontier(self, times: np.ndarray) -> np.ndarray | None:
        """Move the watermark over the rows; None if no row was behind it at its arrival."""
        # Functions of ufuncs: methods of arrays call through Python.
        before, least = self.watermark, int(np.minimum.reduce(times))
        if self.paced:
            return None if least >= before else np.full(len(times), before)
        latest = np.maximum.accumulate(times)
        self._raise_to(int(latest[-1]))
        if least >= self.watermark:
            return None
        ahead: np.ndarray = np.maximum(latest - self.lateness, before)
        return None if np.logical_and.reduce(times >= ahead) else ahead

    def _raise_to(self, time: int) -> None:
        if not self.paced:  # the watermark stays below END_OF_TIME: no row marks the end of the stream
            self.watermark = max(self.watermark, min(time - self.lateness, END_OF_TIME - 1))


def on_time(
    timed_batch: TimedBatch, metrics: Metrics, late: Callable[[np.ndarray], np.ndarray]
) -> TimedBatch:
    """Keep the rows that are not late; count late and accepted rows, unless they are counted already.

    `late(arrival_watermarks)` returns which rows are late, given the watermark at each row's arrival; it is not called
    if no row can be late.
    """
    behind = None if timed_batch.arrival_watermarks is None else late(timed_batch.arrival_watermarks)
    missed = 0 if behind is None else int(behind.sum())
    if behind is not None and missed:
        timed_batch = timed_batch.without(behind)
    if not timed_batch.counted:
        metrics.late += missed
        metrics.accepted += timed_batch.batch.num_rows
    return timed_batch
