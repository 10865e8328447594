"""The join stage of a running query: what a push costs follows its rows and the results it completes.

Rows ahead of the watermark wait in sorted runs. Those that both sides have passed go to the matcher, once and in order;
it holds those that later rows may match.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa

from penstock.algorithms.keyed_states.row_store import RowStore
from penstock.algorithms.sort.sorting import Sorter
from penstock.algorithms.sorted_partitions.ordered_arrivals import OrderedArrivals
from penstock.algorithms.sorted_partitions.rows import Rows, no_rows, rows_back
from penstock.operators.joins.results import Waits
from penstock.runtime.buffers import plain
from penstock.runtime.metrics import Metrics
from penstock.runtime.stage import END_OF_TIME, START_OF_TIME, TimedBatch
from penstock.state.state_table import StateTable, read_scalars, require, require_form, scalars
from penstock.types.time import Time


class IncrementalMatcher(Protocol):
    """One kind of join, with the rows that it holds between pushes."""

    @property
    def waits(self) -> Waits:
        """For each side, how long after a row's time a result with that time may still be emitted; None: never."""

    @property
    def delays(self) -> tuple[int, int]:
        """How long the rows of each side wait behind the watermark before they are taken."""

    @property
    def stores(self) -> tuple[RowStore, RowStore]:
        """The rows held of both sides."""

    def step(self, left: Rows, right: Rows, watermark: int) -> Iterable[pa.RecordBatch]:
        """Take the rows before a watermark, in order; return the results that are final, made lazily."""

    def undecided(self, side: int) -> int:
        """The earliest time of a held row whose own result is not emitted."""

    def held(self, side: int) -> np.ndarray:
        """The places of the rows that are part of the state, in order."""

    def restore(self, left: Rows, right: Rows, watermark: int) -> None:
        """Take the rows that `held` returned."""


@dataclass
class LiveSide:
    """One input: rows ahead of the watermark of both sides, and the watermark of this side."""

    schema: pa.Schema
    time: Time
    keys: tuple[str, ...]
    sorter: Sorter
    metrics: Metrics
    arrivals: OrderedArrivals = field(init=False)
    nothing: Rows = field(init=False)
    watermark: int = field(init=False, default=START_OF_TIME)

    def __post_init__(self) -> None:
        self.arrivals = OrderedArrivals(self.schema, self.time, self.sorter, self.metrics)
        self.nothing = no_rows(self.schema)

    def release(self, watermark: int) -> Rows:
        """Remove the rows before the watermark, and return them in order."""
        if self.arrivals.rows.oldest >= watermark != END_OF_TIME:
            return self.nothing
        return self.arrivals.release(watermark)


@dataclass
class IncrementalJoinStage:
    """Two inputs, and the matcher that joins their rows."""

    left: LiveSide
    right: LiveSide
    matcher: IncrementalMatcher
    watermark: int = field(init=False, default=START_OF_TIME)

    @property
    def sides(self) -> tuple[LiveSide, LiveSide]:
        return self.left, self.right

    def push(self, port: int, timed_batches: list[TimedBatch]) -> list[TimedBatch]:
        self.sides[port].arrivals.add(timed_batches)
        return []

    def advance(self, port: int, watermark: int) -> tuple[Iterable[TimedBatch], int]:
        side = self.sides[port]
        side.watermark = max(side.watermark, watermark)
        now = min(self.left.watermark, self.right.watermark)
        made: Iterable[TimedBatch] = []
        if now > self.watermark:
            self.watermark = now
            limits = self._limits()
            rows = self.left.release(limits[0]), self.right.release(limits[1])
            made = _timed(self.matcher.step(*rows, now))
        return made, self._ahead(now)

    def _limits(self) -> list[int]:
        """The times before which rows of each side are taken."""
        now = self.watermark
        return [now if now == END_OF_TIME else max(now - wait, START_OF_TIME) for wait in self.matcher.delays]

    def _ahead(self, now: int) -> int:
        """Return the output watermark when both sides have advanced to a watermark."""
        waits = enumerate(self.matcher.waits)
        return min(self._ahead_of(side, now, wait) for side, wait in waits if wait is not None)

    def _ahead_of(self, place: int, now: int, wait: int) -> int:
        """The earliest time of a result with the time of a row of one side."""
        side = self.sides[place]
        oldest = min(side.arrivals.rows.oldest, self.matcher.undecided(place))
        return min(side.watermark, max(oldest, now - wait))

    # -- state ---------------------------------------------------------------------------------------

    def save(self) -> Mapping[str, StateTable]:
        times = {"left": self.left.watermark, "right": self.right.watermark, "both": self.watermark}
        rows = {
            name: self._whole(place).kept(side.keys)
            for place, (name, side) in enumerate(zip(("left", "right"), self.sides, strict=True))
        }
        return {"marks": scalars(**times), **rows}

    def _whole(self, place: int) -> Rows:
        """The rows held of a side, and those ahead of the watermark, which are `fresh`."""
        store, ahead = self.matcher.stores[place], self.sides[place].arrivals.rows.rows()
        held = store.rows().chosen(self.matcher.held(place))
        return held.followed_by(decoded(ahead, store.schema))

    def load(self, tables: Mapping[str, pa.Table]) -> None:
        saved = read_scalars(tables["marks"])
        self.watermark = saved["both"]
        require(self.watermark == min(saved["left"], saved["right"]), "the watermarks of a join")
        held = []
        for name, side, limit in zip(("left", "right"), self.sides, self._limits(), strict=True):
            side.watermark = saved[name]
            rows = rows_back(tables[name], side.schema, side.time) if name in tables else side.nothing
            passed = rows.chosen(rows.times < limit)
            require_form(not passed.fresh.any() and (rows.times[rows.fresh] >= limit).all())
            side.arrivals.rows.add(rows.chosen(rows.times >= limit).unseen())
            held.append(passed)
        if any(map(len, held)):
            self.matcher.restore(held[0], held[1], self.watermark)


def decoded(rows: Rows, schema: pa.Schema) -> Rows:
    """The same rows without dictionaries."""
    if rows.batch.schema.equals(schema):
        return rows
    batch = pa.RecordBatch.from_arrays([plain(column) for column in rows.batch.columns], schema=schema)
    return Rows(batch, rows.times, rows.sequence, rows.branch, rows.fresh)


def _timed(batches: Iterable[pa.RecordBatch]) -> Iterator[TimedBatch]:
    return (TimedBatch(batch, counted=True) for batch in batches if batch.num_rows)
