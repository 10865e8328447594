"""What moves between stages, and what a stage is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from penstock.errors import OverflowError
from penstock.runtime.buffers import indices
from penstock.runtime.state.state_table import StateTable

START_OF_TIME = -(1 << 63)
END_OF_TIME = (1 << 63) - 1
ROWS_EVER = 1 << 62  # no stream has so many rows, so their numbers fit 64 bits


class KernelOverflowError(OverflowError):
    """A kernel met an integer result that does not fit; the session, which knows the stage, says which one."""

    def __init__(self) -> None:
        super().__init__("an integer result does not fit its type; cast an operand to float64")


@dataclass
class Tally:
    """How many rows of a stream came too late, once for each reader that left them out."""

    late: int = 0


@dataclass(frozen=True)
class Trace:
    """The numbers of rows in their stream, and where those of rows that come too late are noted, if anywhere."""

    rows: np.ndarray
    late: list[np.ndarray] | None


@dataclass(frozen=True)
class TimedBatch:
    """Rows on their way. `arrival_watermarks[i]` is the watermark when row i arrived; None when no row is behind it.

    Carrying the watermark with each row makes lateness a property of the order of rows alone: however
    the input is cut into batches, the same rows are late. `first_row` numbers the rows of a stream.
    Rows of one time are ordered by `sequence`, where their source has one, then by the `branch` of a union
    they came through. `trace` is there where rows may be late and their numbers are needed; `tally` counts those that are.
    Rows are `counted` once in the metrics: by the first stage that holds them, whose results are counted from the start,
    or as output.
    """

    batch: pa.RecordBatch
    arrival_watermarks: np.ndarray | None = None
    first_row: int = 0
    sequence: pa.Array | None = None
    branch: int = 0
    trace: Trace | None = None
    counted: bool = False
    tally: Tally | None = None

    def filtered(self, batch: pa.RecordBatch, chosen: np.ndarray | None) -> TimedBatch:
        """What is left of the flow when only the chosen rows pass, as `batch`; None: all of them."""
        if chosen is None:
            return replace(self, batch=batch)
        return replace(
            self,
            batch=batch,
            arrival_watermarks=None if self.arrival_watermarks is None else self.arrival_watermarks[chosen],
            sequence=None if self.sequence is None else self.sequence.take(indices(chosen)),
            trace=None if self.trace is None else replace(self.trace, rows=self.trace.rows[chosen]),
        )

    def without(self, late: np.ndarray, noted: np.ndarray | None = None) -> TimedBatch:
        """What is left of the flow without the rows that come too late; they, or some of them, are noted."""
        self.note(late if noted is None else noted)
        kept = np.flatnonzero(~late)
        return self.filtered(self.batch.take(indices(kept)), kept)

    def note(self, late: np.ndarray) -> None:
        """Note which rows come too late, and how many they are."""
        if self.trace is not None and self.trace.late is not None:
            self.trace.late.append(self.trace.rows[late])
        if self.tally is not None:
            self.tally.late += int(np.count_nonzero(late))


class Stage(Protocol):
    """One step of a running query. Ports number a stage's inputs."""

    def push(self, port: int, flows: list[TimedBatch]) -> list[TimedBatch]:
        """Take rows and give those that can already leave. Of one call, all flows are `counted`, or none is."""

    def advance(self, port: int, watermark: int) -> tuple[Iterable[TimedBatch], int]:
        """Learn that no row before `watermark` will come; give results and the watermark behind them.

        Results that are no list are made one by one as they are taken, all before the stage is called again.
        """

    def save(self) -> Mapping[str, StateTable]:
        """Give what the stage remembers, as tables by name; it goes on as if nothing had happened."""

    def load(self, tables: Mapping[str, pa.Table]) -> None:
        """Go on, before any row has come, from tables that were saved; those without rows are left out."""
