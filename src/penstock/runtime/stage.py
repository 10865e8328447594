"""The stage protocol, and the timed batches that flow between stages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from penstock.errors import OverflowError
from penstock.runtime.buffers import indices
from penstock.runtime.column_addresses import ColumnAddresses
from penstock.state.state_table import StateTable

START_OF_TIME = -(1 << 63)
END_OF_TIME = (1 << 63) - 1
ROWS_EVER = 1 << 62  # no stream has this many rows, so row numbers fit 64 bits


class KernelOverflowError(OverflowError):
    """An integer result of a kernel does not fit; the session replaces it by an error that names the result."""

    def __init__(self) -> None:
        super().__init__("an integer result does not fit its type; cast an operand to float64")


@dataclass
class Tally:
    """The number of late rows of a stream, counted once for each reader that dropped them."""

    late: int = 0


@dataclass(frozen=True)
class Trace:
    """Row numbers within the stream, and the list that collects those of late rows, if any."""

    rows: np.ndarray
    late: list[np.ndarray] | None


@dataclass(slots=True)  # not frozen: that triples the time to make one, and every push makes some
class TimedBatch:
    """A batch between stages. `arrival_watermarks[i]` is the watermark when row i arrived; None if no row is behind it.

    Carrying the watermark with each row makes lateness depend on the order of rows alone: however the input is cut
    into batches, the same rows are late. `first_row` is the number of the first row in its stream. Rows of equal time
    are ordered by `sequence`, if the source has one, then by the `branch` of the union they passed through. `trace` is
    set if rows may be late and their numbers are needed; `tally` counts the late rows. Each row is `counted` once in
    the metrics: by the first stage that stores it, whose results are then counted already, or as output. `columns` are
    the addresses of the columns as the source read them.
    """

    batch: pa.RecordBatch
    arrival_watermarks: np.ndarray | None = None
    first_row: int = 0
    sequence: pa.Array | None = None
    branch: int = 0
    trace: Trace | None = None
    counted: bool = False
    tally: Tally | None = None
    columns: ColumnAddresses | None = None

    @property
    def addresses(self) -> ColumnAddresses | None:
        """The addresses of the columns; None if they are not known, or the batch is another than was read."""
        return self.columns if self.columns is not None and self.columns.batch is self.batch else None

    def filtered(self, batch: pa.RecordBatch, chosen: np.ndarray | None) -> TimedBatch:
        """Keep the chosen rows, given as `batch`; None keeps all."""
        if chosen is None:
            if batch is self.batch:
                return self
            return replace(self, batch=batch)
        marks, sequence, trace = self.arrival_watermarks, self.sequence, self.trace
        return TimedBatch(
            batch,
            None if marks is None else marks[chosen],
            self.first_row,
            None if sequence is None else sequence.take(indices(chosen)),
            self.branch,
            None if trace is None else replace(trace, rows=trace.rows[chosen]),
            self.counted,
            self.tally,
        )

    def without(self, late: np.ndarray, noted: np.ndarray | None = None) -> TimedBatch:
        """Drop the late rows, and record them, or those in `noted`, as late."""
        self.note(late if noted is None else noted)
        kept = np.flatnonzero(~late)
        return self.filtered(self.batch.take(indices(kept)), kept)

    def note(self, late: np.ndarray) -> None:
        """Record the numbers of late rows, and count them."""
        if self.trace is not None and self.trace.late is not None:
            self.trace.late.append(self.trace.rows[late])
        if self.tally is not None:
            self.tally.late += int(np.count_nonzero(late))


class Stage(Protocol):
    """One step of a running query. Ports number a stage's inputs."""

    def push(self, port: int, timed_batches: list[TimedBatch]) -> list[TimedBatch]:
        """Take rows and return those that can already be emitted. In one call, all flows are `counted`, or none is."""

    def advance(self, port: int, watermark: int) -> tuple[Iterable[TimedBatch], int]:
        """Advance the input watermark: no earlier row will arrive. Return results and the output watermark.

        Results that are not a list are computed lazily; the session consumes them before it calls the stage again.
        """

    def save(self) -> Mapping[str, StateTable]:
        """Return the stage's state as tables by name; the stage can continue afterwards."""

    def load(self, tables: Mapping[str, pa.Table]) -> None:
        """Restore the state from saved tables, before the first row; empty tables are omitted."""
