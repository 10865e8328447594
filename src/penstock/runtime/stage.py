"""The stage protocol, timed batches that flow between stages, and their times: late rows, slow splits, and limits of 64 bits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from penstock.errors import OverflowError
from penstock.runtime.buffers import ColumnAddresses, indices
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
            return self if batch is self.batch else self.with_batch(batch)
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

    def with_batch(self, batch: pa.RecordBatch) -> TimedBatch:
        """The same rows with other columns. (`dataclasses.replace` takes four times as long.)"""
        return TimedBatch(
            batch,
            self.arrival_watermarks,
            self.first_row,
            self.sequence,
            self.branch,
            self.trace,
            self.counted,
            self.tally,
            self.columns,
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


@dataclass(slots=True)
class Splits:
    """The latest time of each split, in ticks, and when it was last updated, in microseconds of wall-clock time.

    A split at END_OF_TIME has ended and does not hold back the time.

    >>> splits = Splits()
    >>> splits.hear("a", 50, now=0)
    >>> splits.hear("b", 90, now=7)
    >>> splits.time(now=8, idle_after=None), splits.time(now=10, idle_after=10), splits.time(now=99, idle_after=10)
    (50, 90, 90)
    """

    latest: dict[str, int] = field(default_factory=dict)
    heard: dict[str, int] = field(default_factory=dict)

    def hear(self, split: str, latest: int | None, now: int) -> None:
        """Update a split, and its latest time if known."""
        self.latest[split] = max(
            self.latest.get(split, START_OF_TIME), START_OF_TIME if latest is None else latest
        )
        self.heard[split] = now

    def time(self, now: int, idle_after: int | None) -> int:
        """The latest time of the slowest split that is not idle; if all are idle, that of the last to become idle."""
        going = {split: latest for split, latest in self.latest.items() if latest != END_OF_TIME}
        awake = [latest for split, latest in going.items() if not self._silent(split, now, idle_after)]
        if awake:
            return min(awake)
        last = max((self.heard.get(split, START_OF_TIME) for split in going), default=START_OF_TIME)
        return max(
            (going[split] for split in going if self.heard.get(split, START_OF_TIME) == last),
            default=START_OF_TIME,
        )

    def silent(self, now: int, idle_after: int | None) -> bool:
        """Whether all splits are idle."""
        return all(
            self._silent(split, now, idle_after)
            for split, latest in self.latest.items()
            if latest != END_OF_TIME
        )

    def _silent(self, split: str, now: int, idle_after: int | None) -> bool:
        return idle_after is not None and now - self.heard.get(split, now) >= idle_after


_BEYOND = "a window reaches beyond the range of 64-bit times; filter the rows that do"


def does_not_fit(dtype: pa.DataType) -> OverflowError:
    """The error for window bounds that do not fit the time column's type."""
    if dtype.bit_width == 64:
        return OverflowError(_BEYOND)
    return OverflowError(
        f"the bounds of a window do not fit the time column's type {dtype}; cast it to a wider one"
    )


def is_within_reach(times: np.ndarray, below: int, above: int) -> bool:
    """Whether each time minus `below` and plus `above` fits 64 bits."""
    return not len(times) or (
        int(times.min()) >= START_OF_TIME + below and int(times.max()) <= END_OF_TIME - above
    )


def within_reach(times: np.ndarray, below: int, above: int) -> np.ndarray:
    """Refuse times so near the limits of 64 bits that windows around them would overflow."""
    if not is_within_reach(times, below, above):
        raise OverflowError(_BEYOND)
    return times


def moved(times: np.ndarray, by: int) -> np.ndarray:
    """Times shifted by `by`, which may be negative, clamped to the 64-bit range."""
    if by >= 0:
        return np.where(times > END_OF_TIME - by, END_OF_TIME, times + by)
    return np.where(times < START_OF_TIME - by, START_OF_TIME, times + by)
