"""The stage that keeps the open window of rows of each key as a partial state.

Rows ahead of the watermark wait in sorted runs; those that it has passed are added in order, once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from penstock.algorithms.keyed_states.results import KeyedResults
from penstock.algorithms.keyed_states.table import KeyedProgram, KeyedTable
from penstock.algorithms.sorted_partitions.ordered_arrivals import OrderedArrivals
from penstock.runtime.buffers import indices
from penstock.runtime.metrics import Metrics
from penstock.runtime.stage import END_OF_TIME, START_OF_TIME, TimedBatch
from penstock.state.state_table import StateTable, integers, require
from penstock.types.time import Time
from penstock.types.windows import Count

STATE = "state"
COUNT_KEYS = {"seen": 0, "start": 0, "last": 0}


@dataclass
class IncrementalCounts:
    """Windows of rows that do not overlap, whose aggregates have states of fixed size."""

    program: KeyedProgram
    results: KeyedResults
    window: Count
    schema: pa.Schema
    time: Time
    metrics: Metrics
    table: KeyedTable = field(init=False)
    ahead: OrderedArrivals = field(init=False)

    def __post_init__(self) -> None:
        self.table = KeyedTable(self.program, COUNT_KEYS, {}, key_states=(STATE,))
        self.ahead = OrderedArrivals(self.schema, self.time, self.results.sorter, self.metrics)

    def push(self, port: int, timed_batches: list[TimedBatch]) -> list[TimedBatch]:
        self.ahead.add(timed_batches)
        return []

    def advance(self, port: int, watermark: int) -> tuple[list[TimedBatch], int]:
        rows, final = self.ahead.release(watermark), watermark == END_OF_TIME
        made: list[TimedBatch] = []
        if len(rows) or final:
            given = {"final": final, "tail": np.zeros(1, np.int64)}
            made = self.results.batches(self.table, self.table.run(rows.batch, "", given))
        if self.table.crowded():
            self.table.keep_keys(self._open())
        waits = self.window.partial and not final
        return made, START_OF_TIME if waits else self.ahead.watermark

    def _open(self) -> np.ndarray:
        """The keys whose window has begun."""
        return np.flatnonzero(self.table.arrays["seen"][: len(self.table.directory)])

    def save(self) -> Mapping[str, StateTable]:
        keys = self._open()
        columns = {name: indices(self.table.arrays[name][keys]) for name in COUNT_KEYS}
        states = self.table.saved_states(STATE, keys)
        windows = self.table.directory.kept(keys, (), {**columns, **states})
        return {**self.ahead.save(self.program.keys), "windows": windows}

    def load(self, tables: Mapping[str, pa.Table]) -> None:
        self.ahead.load(tables)
        if "windows" in tables:
            self._load_windows(tables["windows"])

    def _load_windows(self, saved: pa.Table) -> None:
        keys = self.table.numbers(saved)
        require(len(np.unique(keys)) == len(keys), "its windows of rows")
        for name in COUNT_KEYS:
            self.table.arrays[name][keys] = integers(saved, name)
        seen = self.table.arrays["seen"]
        require((seen >= 0).all() and (seen < self.window.every).all(), "its counts of rows")
        self.table.load_states(STATE, saved, keys)
