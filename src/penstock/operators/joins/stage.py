"""The join stage with two ports: rows are buffered until the watermarks of both sides have passed them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa

from penstock.algorithms.sort.sorting import Sorter
from penstock.algorithms.sorted_partitions.rows import PendingRows, Rows, arrived, rows_back
from penstock.operators.joins.results import Emitted, Waits
from penstock.runtime.buffers import ticks_of
from penstock.runtime.metrics import Metrics
from penstock.runtime.source_stage import on_time
from penstock.runtime.stage import END_OF_TIME, START_OF_TIME, TimedBatch
from penstock.state.state_table import StateTable, read_scalars, require, scalars
from penstock.types.time import Time


class ArrivalRate:
    """Counts the rows that arrive between two emissions of complete windows."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock, self._begin, self._rows = clock, clock(), 0
        self._rate = 0.0  # rows per millisecond, between the last two emissions

    def add(self, rows: int) -> None:
        """Count rows that have arrived."""
        self._rows += rows

    def turn(self) -> None:
        """Update the rate when windows are complete; start a new count."""
        now = self._clock()
        self._rate = self._rows / max((now - self._begin) * 1e3, 1e-6)
        self._begin, self._rows = now, 0

    def milliseconds(self, rows: int) -> float:
        """Return how long a number of rows took to arrive, at the last rate.

        >>> times = iter([0.0, 0.5])
        >>> arrivals = ArrivalRate(lambda: next(times))
        >>> arrivals.add(1000)
        >>> arrivals.turn()
        >>> arrivals.milliseconds(200)
        100.0
        """
        return rows / self._rate if self._rate else 0.0


def at_rest(rows: int) -> float:
    """Return the arrival time of rows that were all present at the start: zero."""
    return 0.0


class Matcher(Protocol):
    """One kind of join."""

    @property
    def waits(self) -> Waits:
        """For each side, how long after a row's time a result with that time may still be emitted; None: never.

        The output watermark depends on nothing else: rows retained only as candidates for a match do not delay
        it.
        """

    def completes(self, before: int, watermark: int) -> bool:
        """Whether there may be new results at `watermark` since the watermark `before`."""

    def emit(self, left: Rows, right: Rows, before: int, watermark: int) -> Emitted:
        """Return the results that are new since the watermark `before`, and masks of the rows to retain.

        Results are made lazily, so that an aggregate downstream consumes them one batch at a time.

        Rows are in order. They are the retained rows and the new (`fresh`) rows before the watermark.
        """


@dataclass
class Port:
    """One input: the pending rows and the watermark."""

    schema: pa.Schema
    time: Time
    keys: tuple[str, ...]
    metrics: Metrics
    waiting: PendingRows = field(init=False)
    watermark: int = field(init=False, default=START_OF_TIME)

    def __post_init__(self) -> None:
        self.waiting = PendingRows(self.schema)

    def add(self, timed_batches: list[TimedBatch]) -> None:
        """Add rows; a row is late if it is before the watermark of its side, whatever the other side's
        watermark is.
        """
        for timed_batch in timed_batches:
            rows = self.taken([timed_batch])
            if rows is not None:
                # Unsorted: they are copied once, in `passed`, with the retained rows.
                self.waiting.add(rows)

    def taken(self, timed_batches: list[TimedBatch]) -> Rows | None:
        """Return the rows that are not late, or None."""
        some = [
            timed_batch for timed_batch in map(self._on_time, timed_batches) if timed_batch.batch.num_rows
        ]
        return arrived(some, self.schema, self.time) if some else None

    def _on_time(self, timed_batch: TimedBatch) -> TimedBatch:
        def late(arrival_watermarks: np.ndarray) -> np.ndarray:
            return np.asarray(
                ticks_of(timed_batch.batch.column(self.time.column), self.time.shift) < arrival_watermarks
            )

        return on_time(timed_batch, self.metrics, late)

    def passed(self, watermark: int, sorter: Sorter) -> Rows:
        """Remove and return the rows before a watermark, in order."""
        now = self.waiting.take()
        if watermark == END_OF_TIME:
            pass
        elif sorter.in_order(now.times):
            cut = int(np.searchsorted(now.times, watermark))
            self.waiting.replace(now.part(cut, len(now)))
            now = now.part(0, cut)
            if now.sequence is None and now.branch is None:
                return now
        else:
            ahead = now.times >= watermark
            self.waiting.replace(now.chosen(ahead))
            now = now.chosen(~ahead)
        order = now.order(sorter)
        return now if order is None else now.chosen(order)

    def ahead(self, now: int, wait: int) -> int:
        """Return the earliest time of future rows, and of pending rows at most `wait` older than `now`."""
        return min(self.watermark, max(self.waiting.oldest, now - wait))

    def keep(self, rows: Rows) -> None:
        """Put back rows that are still needed."""
        if len(rows):
            self.waiting.add_before(rows.seen())


@dataclass
class JoinStage:
    """Two ports, and the matcher that joins their rows."""

    left: Port
    right: Port
    matcher: Matcher
    sorter: Sorter
    arrivals: ArrivalRate | None = None
    watermark: int = field(init=False, default=START_OF_TIME)

    def push(self, port: int, timed_batches: list[TimedBatch]) -> list[TimedBatch]:
        if self.arrivals is not None:
            self.arrivals.add(sum(timed_batch.batch.num_rows for timed_batch in timed_batches))
        (self.right if port else self.left).add(timed_batches)
        return []

    def advance(self, port: int, watermark: int) -> tuple[Iterable[TimedBatch], int]:
        side = self.right if port else self.left
        side.watermark = max(side.watermark, watermark)
        now = min(self.left.watermark, self.right.watermark)
        due = now > self.watermark and (now == END_OF_TIME or self.matcher.completes(self.watermark, now))
        made = self._emit(now) if due else []
        return made, self._ahead(now)

    def _emit(self, watermark: int) -> Iterable[TimedBatch]:
        if self.arrivals is not None:
            self.arrivals.turn()
        left, right = (side.passed(watermark, self.sorter) for side in (self.left, self.right))
        made, left_kept, right_kept = self.matcher.emit(left, right, self.watermark, watermark)
        self.watermark = watermark
        if watermark != END_OF_TIME:
            self.left.keep(left.chosen(left_kept))
            self.right.keep(right.chosen(right_kept))
        return (TimedBatch(batch, counted=True) for batch in made if batch.num_rows)

    def _ahead(self, watermark: int) -> int:
        """Return the output watermark when both sides have advanced to a watermark."""
        sides = zip((self.left, self.right), self.matcher.waits, strict=True)
        return min(side.ahead(watermark, wait) for side, wait in sides if wait is not None)

    def _settle(self) -> None:
        """Process pending rows, so that saved state does not depend on when they were last processed. No window
        is complete.
        """
        now = min(self.left.watermark, self.right.watermark)
        if now > self.watermark:
            made = list(self._emit(now))
            assert not made, "a complete window was not emitted when the watermark passed it"

    def save(self) -> Mapping[str, StateTable]:
        self._settle()
        times = {"left": self.left.watermark, "right": self.right.watermark, "both": self.watermark}
        rows = {name: side.waiting.rows.kept(side.keys) for name, side in self._sides()}
        return {"marks": scalars(**times), **rows}

    def load(self, tables: Mapping[str, pa.Table]) -> None:
        saved = read_scalars(tables["marks"])
        self.watermark = saved["both"]
        require(self.watermark == min(saved["left"], saved["right"]), "the watermarks of a join")
        for name, side in self._sides():
            side.watermark = saved[name]
            if name in tables:
                side.waiting.replace(rows_back(tables[name], side.schema, side.time))

    def _sides(self) -> tuple[tuple[str, Port], tuple[str, Port]]:
        return ("left", self.left), ("right", self.right)
