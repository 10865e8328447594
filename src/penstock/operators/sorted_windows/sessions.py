"""Sessions over sorted partitions: which rows form one, which are complete, and the stage that releases them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa

from penstock.algorithms.sorted_partitions.frames import Frames, Released
from penstock.algorithms.sorted_partitions.partitions import SortedPartitions
from penstock.algorithms.sorted_partitions.rows import Rows, arrived, taken
from penstock.operators.sorted_windows.session_lateness import Judged, SessionLateness
from penstock.operators.sorted_windows.stage import SortedWindowStage
from penstock.runtime.buffers import room
from penstock.runtime.kernels import Call
from penstock.runtime.metrics import Metrics
from penstock.runtime.stage import END_OF_TIME, START_OF_TIME, TimedBatch, within_reach
from penstock.runtime.threads import run_on_threads
from penstock.state.state_table import StateTable

# Fewer rows than this are not worth a second thread.
ROWS_PER_THREAD = 1 << 17


@dataclass
class SessionFraming(Released):
    """Session windows. `count` and `listed` are kernels; no session is complete before the watermark passes `due`.

    `lateness` stores the ends of emitted sessions.
    """

    gap: int
    count: Call
    listed: Call
    threads: int
    lateness: SessionLateness
    due: int = field(default=START_OF_TIME)

    def completes(self, before: int, watermark: int) -> bool:
        return watermark > self.due

    def _sessions(self, partitions: SortedPartitions) -> Frames:
        """All sessions; each thread finds those of some partitions: count first, then fill."""
        given = {"times": partitions.times, "bounds": partitions.bounds, "gap": self.gap}
        parts = [{**given, "begin": begin, "end": end} for begin, end in self._parts(partitions)]
        found = np.zeros(len(parts) + 1, np.int64)

        def count(place: int) -> None:
            found[place + 1] = self.count(parts[place])

        run_on_threads([partial(count, place) for place in range(len(parts))])
        first = np.cumsum(found)
        bounds, start, last = (room(int(first[-1]) + more) for more in (1, 0, 0))
        bounds[-1] = len(partitions)
        made = {"lo": bounds, "start": start, "last": last}
        run_on_threads(
            [
                partial(self.listed, {**part, **made, "first": int(at)})
                for part, at in zip(parts, first, strict=False)
            ]
        )
        return Frames(bounds[:-1], bounds[1:], start, within_reach(last, 0, self.gap) + self.gap)

    def _parts(self, partitions: SortedPartitions) -> list[tuple[int, int]]:
        """Split partitions into a run of about equal rows for each thread."""
        threads = max(min(self.threads, len(partitions) // ROWS_PER_THREAD), 1)
        rows = np.linspace(0, len(partitions), threads + 1)[1:-1]
        inner = np.searchsorted(partitions.bounds, rows).tolist()
        return list(pairwise([0, *inner, partitions.count]))

    def frames(self, partitions: SortedPartitions, watermark: int) -> Frames:
        found = self._sessions(partitions)
        return found if watermark == END_OF_TIME else found.chosen(found.end < watermark)

    def needed(self, partitions: SortedPartitions, watermark: int) -> np.ndarray:
        found = self._sessions(partitions)
        open_yet = found.end >= watermark
        # Later rows, and rows ahead of the watermark, may extend a session; a new session ends no sooner than watermark + gap.
        self.due = min(int(found.end[open_yet].min(initial=END_OF_TIME)), watermark + self.gap)
        ended = self._ended(found, open_yet, partitions, watermark)
        self.lateness.note(
            taken(partitions.arrived_rows.batch, partitions.rows(found.lo[ended])), found.end[ended]
        )
        return np.repeat(open_yet, found.lengths)

    def _ended(
        self, found: Frames, open_yet: np.ndarray, partitions: SortedPartitions, watermark: int
    ) -> np.ndarray:
        """The complete sessions that end at most two gaps before the watermark, or before the next open session of their key."""
        twice = 2 * self.gap
        near = ~open_yet & (found.end >= max(watermark - twice, START_OF_TIME))
        last = np.flatnonzero(~open_yet[:-1] & open_yet[1:])
        apart = (found.start[last + 1] - found.end[last]).view(np.uint64)
        near[
            last[
                (partitions.of_rows(found.lo[last]) == partitions.of_rows(found.lo[last + 1]))
                & (apart <= twice)
            ]
        ] = True
        return np.flatnonzero(near)

    def ahead(self, watermark: int) -> int:
        return watermark if watermark in (START_OF_TIME, END_OF_TIME) else watermark - 1


@dataclass
class SessionStage(SortedWindowStage):
    """Session windows. Batches with rows behind the watermark are admitted when time advances, in arrival order.

    A union pushes the rows of each input separately, and time advances after all of them.
    """

    lateness: SessionLateness = field(kw_only=True)
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
