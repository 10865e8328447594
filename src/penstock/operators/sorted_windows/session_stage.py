"""The session stage: rows behind the watermark may join open sessions, so lateness depends on other rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa

from penstock.algorithms.sorted_partitions.rows import Rows, arrived
from penstock.operators.sorted_windows.session_lateness import Judged, SessionLateness
from penstock.operators.sorted_windows.stage import SortedWindowStage
from penstock.runtime.metrics import Metrics
from penstock.runtime.stage import START_OF_TIME, TimedBatch
from penstock.state.state_table import StateTable


@dataclass
class SessionStage(SortedWindowStage):
    """Session windows. Batches with rows behind the watermark are admitted when time advances, in arrival order.

    A union pushes the rows of each input separately, and time advances after all of them.
    """

    lateness: SessionLateness
    pending: list[TimedBatch] = field(init=False, default_factory=list)

    def push(self, port: int, timed_batches: list[TimedBatch]) -> list[TimedBatch]:
        if not self.pending and all(timed_batch.arrival_watermarks is None for timed_batch in timed_batches):
            return super().push(port, timed_batches)
        self.pending += [timed_batch for timed_batch in timed_batches if timed_batch.batch.num_rows]
        return []

    def advance(self, port: int, watermark: int) -> tuple[list[TimedBatch], int]:
        made = self._admit() if self.pending else []
        timed_batches, ahead = super().advance(port, watermark)
        if self.lateness.crowded(self.watermark):
            self.lateness.forget(self.waiting.rows, self.watermark)
        return made + timed_batches, ahead

    def save(self) -> Mapping[str, StateTable]:
        kept = super().save()
        self.lateness.forget(self.waiting.rows, self.watermark)
        return {**kept, "ended": self.lateness.kept()} if len(self.lateness.ends) else kept

    def load(self, tables: Mapping[str, pa.Table]) -> None:
        super().load(tables)
        if "ended" in tables:
            self.lateness.load(tables["ended"], self.schema)

    def _admit(self) -> list[TimedBatch]:
        """Decide which of the pending rows are late, and buffer the others."""
        timed_batches, self.pending = self.pending, []
        rows, marks = (
            arrived(timed_batches, self.schema, self.time),
            np.concatenate([arrival_marks(timed_batch) for timed_batch in timed_batches]),
        )
        order = arrival_order(timed_batches)
        if order is not None:
            rows, marks = rows.chosen(order), marks[order]
        judged = self.lateness.judge(rows, marks, self.waiting)
        count_late(timed_batches, judged.late, order, self.metrics)
        return self._added(rows, judged, marks)

    def _added(self, rows: Rows, judged: Judged, marks: np.ndarray) -> list[TimedBatch]:
        """Buffer rows. Emit complete sessions before a row that would extend one of them."""
        made: list[TimedBatch] = []
        for begin, end in pairwise([0, *judged.cuts.tolist(), len(rows)]):
            if begin and int(marks[begin]) > self.watermark:
                made += self._emit(int(marks[begin]))
            self.waiting.add(rows.part(begin, end).chosen(~judged.late[begin:end]))
        return made


def arrival_marks(timed_batch: TimedBatch) -> np.ndarray:
    """The watermark at the arrival of each row."""
    return (
        np.full(timed_batch.batch.num_rows, START_OF_TIME)
        if timed_batch.arrival_watermarks is None
        else timed_batch.arrival_watermarks
    )


def arrival_order(timed_batches: list[TimedBatch]) -> np.ndarray | None:
    """The order of rows from several inputs of a union by row number in the stream; None if they are in order."""
    traces = [timed_batch.trace for timed_batch in timed_batches if timed_batch.trace is not None]
    if len({timed_batch.branch for timed_batch in timed_batches}) == 1 or len(traces) < len(timed_batches):
        return None
    return np.argsort(np.concatenate([trace.rows for trace in traces]), kind="stable")


def count_late(
    timed_batches: list[TimedBatch], late: np.ndarray, order: np.ndarray | None, metrics: Metrics
) -> None:
    """Count and record the late rows of each flow; `late` is in the order of arrival."""
    if order is not None:
        arrived_late, late = late, np.zeros_like(late)
        late[order] = arrived_late
    begin = 0
    for timed_batch in timed_batches:
        own = late[begin : begin + timed_batch.batch.num_rows]
        begin += len(own)
        timed_batch.note(own)
        if not timed_batch.counted:
            missed = int(np.count_nonzero(own))
            metrics.late += missed
            metrics.accepted += len(own) - missed
