"""Joins in windows of a running query: rows wait in sorted runs until a window that holds them is complete.

A push appends its rows to runs. When windows are complete, the rows before the first open window are released in order
and joined. So a row is read once, and rows ahead of the watermark are not read at all; only rows of windows that overlap
are read again, once for each time that windows end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from penstock.algorithms.sorted_partitions.rows import Rows, rows_back
from penstock.operators.joins.incremental import LiveSide
from penstock.operators.joins.stage import ArrivalRate, Matcher
from penstock.runtime.stage import END_OF_TIME, START_OF_TIME, TimedBatch
from penstock.state.state_table import StateTable, read_scalars, require, require_form, scalars


class OpenWindows(Protocol):
    """One kind of window, as time moves."""

    def opening(self, watermark: int) -> tuple[int, int]:
        """Return a time before which all rows are in complete windows or in none, and the watermark that may complete
        the next window.
        """


@dataclass
class WindowJoinStage:
    """Two inputs, and the matcher that joins the rows of complete windows."""

    left: LiveSide
    right: LiveSide
    matcher: Matcher
    windows: OpenWindows
    rate: ArrivalRate
    retained: tuple[Rows, Rows] = field(init=False)
    watermark: int = field(init=False, default=START_OF_TIME)
    joined: int = field(init=False, default=START_OF_TIME)  # the watermark of the last join
    due: int = field(init=False, default=START_OF_TIME)

    def __post_init__(self) -> None:
        self.retained = self.left.nothing, self.right.nothing

    @property
    def sides(self) -> tuple[LiveSide, LiveSide]:
        return self.left, self.right

    def push(self, port: int, timed_batches: list[TimedBatch]) -> list[TimedBatch]:
        self.rate.add(sum(timed_batch.batch.num_rows for timed_batch in timed_batches))
        self.sides[port].arrivals.add(timed_batches)
        return []

    def advance(self, port: int, watermark: int) -> tuple[Iterable[TimedBatch], int]:
        side = self.sides[port]
        side.watermark = max(side.watermark, watermark)
        now = min(self.left.watermark, self.right.watermark)
        made: Iterable[TimedBatch] = []
        if now > self.watermark:
            self.watermark = now
            if now >= self.due or now == END_OF_TIME:
                self.rate.turn()
                made = self._join(self._limit())
        return made, self._ahead()

    def _limit(self) -> int:
        """Find when the next window may be complete; return the time before which rows are joined now."""
        if self.watermark == END_OF_TIME:
            return END_OF_TIME
        limit, self.due = self.windows.opening(self.watermark)
        return limit

    def _join(self, limit: int) -> Iterable[TimedBatch]:
        """Join the rows before a time, and retain those in open windows."""
        before, self.joined = self.joined, self.watermark
        left, right = (
            held.followed_by(side.release(limit))
            for held, side in zip(self.retained, self.sides, strict=True)
        )
        if not len(left) and not len(right):
            return []
        made, left_kept, right_kept = self.matcher.emit(left, right, before, self.watermark)
        self.retained = left.chosen(left_kept).seen(), right.chosen(right_kept).seen()
        return (TimedBatch(batch, counted=True) for batch in made if batch.num_rows)

    def _ahead(self) -> int:
        """The output watermark: the earliest time of a row that a later result may have."""
        times = [int(rows.times[0]) for rows in self.retained if len(rows)]
        times += [min(side.watermark, side.arrivals.rows.oldest) for side in self.sides]
        return min(times)

    # -- state ---------------------------------------------------------------------------------------

    def save(self) -> Mapping[str, StateTable]:
        if self.watermark > START_OF_TIME:
            made = list(self._join(self.watermark))
            assert not made, "a complete window was not emitted when the watermark passed it"
        times = {"left": self.left.watermark, "right": self.right.watermark, "both": self.watermark}
        rows = {
            name: held.followed_by(side.arrivals.rows.rows()).kept(side.keys)
            for name, held, side in zip(("left", "right"), self.retained, self.sides, strict=True)
        }
        return {"marks": scalars(**times), **rows}

    def load(self, tables: Mapping[str, pa.Table]) -> None:
        saved = read_scalars(tables["marks"])
        self.watermark = self.joined = saved["both"]
        require(self.watermark == min(saved["left"], saved["right"]), "the watermarks of a join")
        held = []
        for name, side in zip(("left", "right"), self.sides, strict=True):
            side.watermark = saved[name]
            rows = rows_back(tables[name], side.schema, side.time) if name in tables else side.nothing
            passed = rows.chosen(rows.times < self.watermark)
            require_form(not passed.fresh.any() and rows.fresh[rows.times >= self.watermark].all())
            side.arrivals.rows.add(rows.chosen(rows.times >= self.watermark).unseen())
            held.append(passed)
        self.retained = held[0], held[1]
