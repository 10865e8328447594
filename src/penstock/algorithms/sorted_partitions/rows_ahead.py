"""Rows ahead of the watermark in chains of sorted runs, and their way to an operator that reads them in order.

Rows that arrive in order extend one chain, whatever is held. Out of order they begin others; as soon as there are many,
the two shortest are merged, so a row is copied a logarithmic number of times.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from penstock.algorithms.sort.sorting import Sorter
from penstock.algorithms.sorted_partitions.rows import Rows, arrived, no_rows, rows_back
from penstock.runtime.buffers import ticks_of
from penstock.runtime.metrics import Metrics
from penstock.runtime.source_stage import on_time
from penstock.runtime.stage import END_OF_TIME, START_OF_TIME, TimedBatch
from penstock.state.state_table import StateTable, read_scalars, require_form, scalars
from penstock.types.time import Time

MOST_CHAINS = 8


@dataclass
class SortedRun:
    """Rows in order of time, those of equal time in order of arrival; `arrival` numbers rows by arrival."""

    rows: Rows
    arrival: np.ndarray

    def __len__(self) -> int:
        return len(self.rows)

    def part(self, begin: int, end: int) -> SortedRun:
        return SortedRun(self.rows.part(begin, end), self.arrival[begin:end])


@dataclass
class RowsAhead:
    """Rows of one schema. `release` returns those before a time, in order."""

    schema: pa.Schema
    sorter: Sorter
    chains: list[deque[SortedRun]] = field(default_factory=list)
    arrived: int = 0

    def add(self, rows: Rows) -> None:
        """Add rows in order of arrival."""
        if not len(rows):
            return
        arrival = np.arange(self.arrived, self.arrived + len(rows))
        self.arrived += len(rows)
        if not self.sorter.in_order(rows.times, 1):
            order = self.sorter.order(rows.times)
            rows, arrival = rows.chosen(order), arrival[order]
        self._append(SortedRun(rows, arrival))

    @property
    def oldest(self) -> int:
        """The earliest time; END_OF_TIME without rows."""
        return min([int(chain[0].rows.times[0]) for chain in self.chains], default=END_OF_TIME)

    def release(self, watermark: int) -> Rows:
        """Remove the rows before the watermark, and return them by (time, sequence, branch, arrival)."""
        released = [_released(chain, watermark) for chain in self.chains]
        in_one_chain = len(self.chains) == 1
        self.chains = [chain for chain in self.chains if chain]
        rows = self._whole(released)
        if in_one_chain and rows.sequence is None and rows.branch is None:
            return rows
        order = rows.order(self.sorter)
        return rows if order is None else rows.chosen(order)

    def rows(self) -> Rows:
        """All rows, those of equal time in order of arrival; they stay."""
        return self._whole([list(chain) for chain in self.chains])

    def _append(self, run: SortedRun) -> None:
        first = int(run.rows.times[0])
        fitting = [chain for chain in self.chains if int(chain[-1].rows.times[-1]) <= first]
        if fitting:
            max(fitting, key=lambda chain: int(chain[-1].rows.times[-1])).append(run)
            return
        self.chains.append(deque([run]))
        if len(self.chains) > MOST_CHAINS:
            self._merge_shortest()

    def _merge_shortest(self) -> None:
        self.chains.sort(key=lambda chain: sum(map(len, chain)), reverse=True)
        merged = _joined([*self.chains.pop(), *self.chains.pop()], self.schema)
        order = np.lexsort((merged.arrival, merged.rows.times))
        self.chains.append(deque([SortedRun(merged.rows.chosen(order), merged.arrival[order])]))

    def _whole(self, several: list[list[SortedRun]]) -> Rows:
        """The rows of some chains, those of equal time in order of arrival, as they are within a chain."""
        whole = _joined([run for runs in several for run in runs], self.schema)
        if sum(map(bool, several)) < 2:
            return whole.rows
        return whole.rows.chosen(np.argsort(whole.arrival, kind="stable"))


def _released(chain: deque[SortedRun], watermark: int) -> list[SortedRun]:
    """Remove the rows of a chain that are before the watermark."""
    found = []
    while chain and (watermark == END_OF_TIME or int(chain[0].rows.times[-1]) < watermark):
        found.append(chain.popleft())
    if chain and int(chain[0].rows.times[0]) < watermark:
        run = chain.popleft()
        cut = int(np.searchsorted(run.rows.times, watermark))
        found.append(run.part(0, cut))
        chain.appendleft(run.part(cut, len(run)))
    return found


def _joined(runs: list[SortedRun], schema: pa.Schema) -> SortedRun:
    if len(runs) == 1:
        return runs[0]
    first = runs[0].rows if runs else no_rows(schema)
    rows = first.followed_by(*(run.rows for run in runs[1:]))
    return SortedRun(rows, np.concatenate([run.arrival for run in runs] or [np.zeros(0, np.int64)]))


@dataclass
class OrderedArrivals:
    """Rows are released in order once the watermark has passed them. A row behind the watermark is late."""

    schema: pa.Schema
    time: Time
    sorter: Sorter
    metrics: Metrics
    watermark: int = field(init=False, default=START_OF_TIME)
    rows: RowsAhead = field(init=False)

    def __post_init__(self) -> None:
        self.rows = RowsAhead(self.schema, self.sorter)

    def add(self, timed_batches: list[TimedBatch]) -> None:
        timely = [self._on_time(timed_batch) for timed_batch in timed_batches]
        some = [timed_batch for timed_batch in timely if timed_batch.batch.num_rows]
        if some:
            self.rows.add(arrived(some, self.schema, self.time))

    def _on_time(self, timed_batch: TimedBatch) -> TimedBatch:
        def late(arrival_watermarks: np.ndarray) -> np.ndarray:
            behind: np.ndarray = (
                ticks_of(timed_batch.batch.column(self.time.column), self.time.shift) < arrival_watermarks
            )
            return behind

        return on_time(timed_batch, self.metrics, late)

    def release(self, watermark: int) -> Rows:
        """Remove and return the rows that the watermark has passed."""
        self.watermark = max(self.watermark, watermark)
        return self.rows.release(self.watermark)

    def save(self, keys: Sequence[pa.Field]) -> dict[str, StateTable]:
        """The state tables of the rows that wait; `keys` are their key columns."""
        names = [key.name for key in keys]
        return {"marks": scalars(watermark=self.watermark), "rows": self.rows.rows().kept(names)}

    def load(self, tables: Mapping[str, pa.Table]) -> None:
        self.watermark = read_scalars(tables["marks"])["watermark"]
        if "rows" in tables:
            rows = rows_back(tables["rows"], self.schema, self.time)
            require_form((rows.times >= self.watermark).all())
            self.rows.add(rows)
