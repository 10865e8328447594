"""The stage for windows over sorted partitions: buffers rows, partitions them, reduces the frames that are complete.

Rows are buffered until the watermark passes them. Each window, whatever its type, becomes a frame: a range of rows of
a partition. Reductions process frames only (algorithms/sliding/slide.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from penstock.algorithms.sorted_partitions.frames import WindowRules
from penstock.algorithms.sorted_partitions.partitions import PartitionLayout, SortedPartitions
from penstock.algorithms.sorted_partitions.rows import PendingRows, Rows, arrived, arrived_implied, rows_back
from penstock.algorithms.sorted_partitions.rows_ahead import RowsAhead
from penstock.runtime.buffers import ticks_of
from penstock.runtime.metrics import Metrics
from penstock.runtime.source_stage import on_time
from penstock.runtime.stage import END_OF_TIME, START_OF_TIME, TimedBatch
from penstock.state.state_table import StateTable, read_scalars, require_form, scalars
from penstock.types.time import Time


@dataclass
class SortedWindowStage:
    """Windows of one type over rows sorted by key and time.

    `emission(partitions, watermark)` returns the results that are new at a watermark. If `repeats_rows`, the results are the
    rows of windows with their original times, which are older than the watermark. Rows are ordered by `time`, and
    processed once the watermark has passed their `release` time: the same, except for rows that carry a window and are
    released at its end. Batches with an implied time lack its column.

    With `runs`, rows ahead of the watermark wait there in order, and an emission does not read them.
    """

    rules: WindowRules
    layout: PartitionLayout
    emission: Callable[[SortedPartitions, int], list[pa.RecordBatch]]
    repeats_rows: bool
    schema: pa.Schema
    time: Time
    release: Time
    metrics: Metrics
    runs: RowsAhead | None = None
    waiting: PendingRows = field(init=False)
    watermark: int = field(init=False, default=START_OF_TIME)
    looked: bool = field(init=False, default=True)

    def __post_init__(self) -> None:
        self.waiting = PendingRows(self.schema)

    def push(self, port: int, timed_batches: list[TimedBatch]) -> list[TimedBatch]:
        """Buffer rows. Before a partly late row is added, emit the windows that were complete at its arrival."""
        made: list[TimedBatch] = []
        waiting: list[TimedBatch] = []
        for timed_batch in timed_batches:
            for part, complete in self._parts(self._on_time(timed_batch)):
                if complete > self.watermark:
                    self._add(waiting)
                    waiting = []
                    made += self._emit(complete)
                waiting.append(part)
        self._add(waiting)
        return made

    def advance(self, port: int, watermark: int) -> tuple[list[TimedBatch], int]:
        timed_batches: list[TimedBatch] = []
        if watermark > self.watermark:
            self.looked = watermark == END_OF_TIME or self.rules.completes(self.watermark, watermark)
            timed_batches = self._emit(watermark) if self.looked else []
            self.watermark = watermark
        return timed_batches, self._ahead()

    def _settle(self) -> None:
        """Process the buffered rows, so that the saved state does not depend on when that last happened; no window is complete."""
        if not self.looked:
            made = self._emit(self.watermark)
            assert not made, "a complete window was not emitted when the watermark passed it"
            self.looked = True

    def save(self) -> Mapping[str, StateTable]:
        self._settle()
        return {"marks": scalars(watermark=self.watermark), "rows": self._held().kept(self.layout.keys)}

    def _held(self) -> Rows:
        """All rows. Those that were released from runs are put in order, however many were released at a time."""
        rows = self.waiting.rows
        if self.runs is None:
            return rows
        order = rows.order(self.layout.sorter)
        return (rows if order is None else rows.chosen(order)).followed_by(self.runs.rows())

    def load(self, tables: Mapping[str, pa.Table]) -> None:
        require_form(tables.keys() <= {"marks", "rows", "ended"})
        self.watermark = read_scalars(tables["marks"])["watermark"]
        self.rules.resume(self.watermark)
        if "rows" in tables:
            rows = rows_back(tables["rows"], self.schema, self.time)
            if self.runs is not None:
                ahead = rows.times >= self.watermark
                self.runs.add(rows.chosen(ahead))
                rows = rows.chosen(~ahead)
            self.waiting.replace(rows)

    # -- rows ----------------------------------------------------------------------------------------

    def _on_time(self, timed_batch: TimedBatch) -> TimedBatch:
        timely = on_time(
            timed_batch,
            self.metrics,
            lambda arrival_watermarks: self.rules.late(self._released(timed_batch.batch), arrival_watermarks),
        )
        if not timed_batch.counted and timely.arrival_watermarks is not None:
            self.metrics.partly_late += self.rules.partly_late(
                self._released(timely.batch), timely.arrival_watermarks
            )
        return timely

    def _released(self, batch: pa.RecordBatch) -> np.ndarray:
        return ticks_of(batch.column(self.release.column), self.release.shift)

    def _parts(self, timed_batch: TimedBatch) -> Iterator[tuple[TimedBatch, int]]:
        """Split before each row behind its arrival watermark, if windows are newly complete at that watermark."""
        begin, upto = 0, START_OF_TIME
        if timed_batch.arrival_watermarks is not None:
            for row in np.flatnonzero(self._released(timed_batch.batch) < timed_batch.arrival_watermarks):
                before, now = max(self.watermark, upto), int(timed_batch.arrival_watermarks[row])
                if now > before and self.rules.completes(before, now):
                    yield _part(timed_batch, begin, int(row)), upto
                    begin, upto = int(row), now
        yield _part(timed_batch, begin, timed_batch.batch.num_rows), upto

    def _add(self, timed_batches: list[TimedBatch]) -> None:
        some = [timed_batch for timed_batch in timed_batches if timed_batch.batch.num_rows]
        if some:
            take_in = arrived if self.time.period is None else arrived_implied
            target = self.waiting if self.runs is None else self.runs
            target.add(take_in(some, self.schema, self.time))

    # -- windows -------------------------------------------------------------------------------------

    def _emit(self, watermark: int) -> list[TimedBatch]:
        """Emit the windows that are complete at a watermark, and drop the rows that no later window needs."""
        self.watermark = watermark
        rows = self.waiting.take()
        if self.runs is not None:
            rows = rows.followed_by(self.runs.release(watermark))
        ahead = self._released(rows.batch) >= watermark if watermark != END_OF_TIME else None
        partitions = self.layout.partitions(rows if ahead is None else rows.chosen(~ahead))
        made = self.emission(partitions, watermark)
        if ahead is not None:
            needed = partitions.rows(np.flatnonzero(self.rules.needed(partitions, watermark)))
            kept = partitions.arrived_rows.chosen(
                np.sort(needed)
            ).seen()  # in arrival order: ties stay in order
            self.waiting.replace(kept.followed_by(rows.chosen(ahead)))
        return [TimedBatch(batch, counted=True) for batch in made if batch.num_rows]

    def _ahead(self) -> int:
        """The output watermark: repeated rows may be older than the input watermark."""
        if not self.repeats_rows or self.watermark in (START_OF_TIME, END_OF_TIME):
            return self.rules.ahead(self.watermark)
        oldest = self.waiting.oldest if self.runs is None else min(self.waiting.oldest, self.runs.oldest)
        return max(min(oldest, self.rules.oldest(self.watermark)), START_OF_TIME)


def _part(timed_batch: TimedBatch, begin: int, end: int) -> TimedBatch:
    if begin == 0 and end == timed_batch.batch.num_rows:
        return replace(timed_batch, arrival_watermarks=None)
    rows = end - begin
    return TimedBatch(
        timed_batch.batch.slice(begin, rows),
        None,
        timed_batch.first_row + begin,
        None if timed_batch.sequence is None else timed_batch.sequence.slice(begin, rows),
        timed_batch.branch,
    )
