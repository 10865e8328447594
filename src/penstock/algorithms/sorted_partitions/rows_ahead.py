"""Rows ahead of the watermark, in chains of sorted runs: adding and releasing rows costs what those rows cost.

Rows that arrive in order extend one chain, whatever is held. Out of order they begin others; as soon as there are many,
the two shortest are merged, so a row is copied a logarithmic number of times.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from penstock.algorithms.sort.sorting import Sorter
from penstock.algorithms.sorted_partitions.rows import Rows, no_rows
from penstock.runtime.stage import END_OF_TIME

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
