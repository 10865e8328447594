"""The stages that keep open windows of rows and open sessions as partial states: a push costs what its rows and results cost.

Rows ahead of the watermark wait in sorted runs; those that it has passed are added in order, once.

Rows are not buffered, since states merge in any order. Which rows are late is decided in the kernel, row by row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from penstock.algorithms.keyed_states.table import KeyedProgram, KeyedResults, KeyedTable
from penstock.algorithms.sorted_partitions.rows import joined, taken
from penstock.algorithms.sorted_partitions.rows_ahead import OrderedArrivals
from penstock.operators.sorted_windows.sessions import arrival_marks, arrival_order, count_late
from penstock.runtime.buffers import indices
from penstock.runtime.metrics import Metrics
from penstock.runtime.stage import END_OF_TIME, START_OF_TIME, TimedBatch, moved
from penstock.state.state_table import StateTable, integers, read_scalars, require, require_form, scalars
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
    tail: np.ndarray = field(init=False, default_factory=lambda: np.zeros(1, np.int64))

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
            given = {"final": final, "tail": self.tail}  # kept: the kernel stays bound to its memory
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


FREE, USED, HEAP = range(3)  # words of `marks`, see kernels/open_windows.py
NONE = -1
MOST_PENDING = 1 << 15  # rows; a run that advances after each push has fewer
JUDGING, TRUSTING = "judging", "trusting"  # kernels: with rows behind their arrival watermarks, and without

SESSION_KEYS = {"newest": NONE, "oldest": NONE, "ended": START_OF_TIME}
SESSION_SLOTS = {"owner": NONE, "older": NONE, "newer": NONE, "start": 0, "last": 0, "heap": 0, "due": 0}


@dataclass
class IncrementalSessions:
    """Session windows whose aggregates have states of fixed size that merge in any order."""

    program: KeyedProgram
    results: KeyedResults
    gap: int
    schema: pa.Schema
    metrics: Metrics
    table: KeyedTable = field(init=False)
    marks: np.ndarray = field(init=False)
    watermark: int = field(init=False, default=START_OF_TIME)
    pending: list[TimedBatch] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.table = KeyedTable(self.program, SESSION_KEYS, SESSION_SLOTS, slot_states=(STATE,))
        self.marks = np.array([NONE, 0, 0])
        self.nothing = joined([], self.schema)

    def push(self, port: int, timed_batches: list[TimedBatch]) -> list[TimedBatch]:
        """Keep rows until time advances: a union pushes the rows of each input separately, and lateness needs all."""
        self.pending += [timed_batch for timed_batch in timed_batches if timed_batch.batch.num_rows]
        rows = sum(timed_batch.batch.num_rows for timed_batch in self.pending)
        if rows > MOST_PENDING and all(
            timed_batch.arrival_watermarks is None for timed_batch in self.pending
        ):
            return self._admit(self.watermark)
        return []

    def advance(self, port: int, watermark: int) -> tuple[list[TimedBatch], int]:
        made: list[TimedBatch] = []
        if self.pending or watermark > self.watermark:
            self.watermark = max(self.watermark, watermark)
            made = self._admit(self.watermark)
        if self.table.crowded():
            self._forget_keys()
        before = self.watermark
        return made, before if before in (START_OF_TIME, END_OF_TIME) else before - 1

    # -- rows ----------------------------------------------------------------------------------------

    def _admit(self, watermark: int) -> list[TimedBatch]:
        """Add the pending rows in the order of arrival, and emit the sessions that are complete."""
        timed_batches, self.pending = self.pending, []
        batch = (
            joined([timed_batch.batch for timed_batch in timed_batches], self.schema)
            if timed_batches
            else self.nothing
        )
        given = {
            "gap": self.gap,
            "watermark": watermark,
            "final": watermark == END_OF_TIME,
            "marks": self.marks,
        }
        if all(timed_batch.arrival_watermarks is None for timed_batch in timed_batches):
            found = self.results.batches(self.table, self.table.run(batch, TRUSTING, given))
            for timed_batch in timed_batches:
                self.metrics.accepted += 0 if timed_batch.counted else timed_batch.batch.num_rows
            return found
        arrival = np.concatenate([arrival_marks(timed_batch) for timed_batch in timed_batches])
        order = arrival_order(timed_batches)
        if order is not None:
            batch, arrival = taken(batch, order), arrival[order]
        late = np.zeros(len(arrival), np.uint8)
        run = self.table.run(batch, JUDGING, {**given, "arrival": arrival, "late": late})
        found = self.results.batches(self.table, run)
        count_late(timed_batches, late.astype(np.bool_), order, self.metrics)
        return found

    # -- keys ----------------------------------------------------------------------------------------

    def _reachable(self) -> np.ndarray:
        """Which keys have an emitted session that a row could still reach."""
        table, count = self.table, len(self.table.directory)
        ended = table.arrays["ended"][:count]
        limits = moved(ended, min(2 * self.gap, END_OF_TIME))
        earliest = np.full(count, END_OF_TIME)
        live = self._live()
        np.minimum.at(earliest, table.arrays["owner"][live], table.arrays["start"][live])
        reachable: np.ndarray = (ended > START_OF_TIME) & ((limits >= self.watermark) | (earliest <= limits))
        return reachable

    def _live(self) -> np.ndarray:
        """The slots of open sessions."""
        used = int(self.marks[USED])
        in_heap = self.table.arrays["heap"][: int(self.marks[HEAP])]
        live = np.zeros(used, np.bool_)
        live[in_heap] = self.table.arrays["owner"][in_heap] >= 0
        return np.flatnonzero(live)

    def _forget_keys(self) -> None:
        """Forget the keys without an open session, unless a row could reach an emitted one."""
        count = len(self.table.directory)
        reachable = self._reachable()
        self.table.arrays["ended"][:count][~reachable] = START_OF_TIME
        kept = np.flatnonzero(reachable | (self.table.arrays["newest"][:count] >= 0))
        live = self._live()
        owners = self.table.arrays["owner"]
        moved_to = self.table.keep_keys(kept)
        owners[live] = moved_to[owners[live]]

    # -- state ---------------------------------------------------------------------------------------

    def save(self) -> Mapping[str, StateTable]:
        assert not self.pending, "time advances after each push of a run that is saved"
        table = self.table
        live, arrays = self._live(), table.arrays
        ended = np.flatnonzero(self._reachable())
        columns = {
            "start": indices(arrays["start"][live]),
            "last": indices(arrays["last"][live]),
            **table.saved_states(STATE, live),
        }
        kept = {
            "marks": scalars(watermark=self.watermark),
            "sessions": table.directory.kept(arrays["owner"][live], ("start",), columns),
        }
        if len(ended):
            ends = {"end": indices(arrays["ended"][ended])}
            kept["ended"] = table.directory.kept(ended, ("end",), ends)
        return kept

    def load(self, tables: Mapping[str, pa.Table]) -> None:
        require_form("rows" not in tables)
        self.watermark = read_scalars(tables["marks"])["watermark"]
        if "ended" in tables:
            numbers = self.table.numbers(tables["ended"])
            self.table.arrays["ended"][numbers] = integers(tables["ended"], "end")
        if "sessions" in tables:
            self._load_sessions(tables["sessions"])

    def _load_sessions(self, saved: pa.Table) -> None:
        """Put sessions into slots by their ends, which makes the list of slots a heap."""
        table = self.table
        start, last = integers(saved, "start"), integers(saved, "last")
        order = np.argsort(last, kind="stable")
        saved, start, last = saved.take(indices(order)).combine_chunks(), start[order], last[order]
        owner, count = table.numbers(saved), len(order)
        table.reserve(max(count, table.slots))
        arrays, slots = table.arrays, np.arange(count)
        values = {
            "owner": owner,
            "start": start,
            "last": last,
            "due": moved(last, self.gap),
            "heap": slots,
        }
        for name, value in values.items():
            arrays[name][:count] = value
        table.load_states(STATE, saved, slots)
        self.marks[:] = NONE, count, count
        by_key = np.lexsort((start, owner))  # oldest first
        same = owner[by_key][1:] == owner[by_key][:-1]
        apart = (start[by_key][1:] - last[by_key][:-1])[same]
        require((apart > self.gap).all() and (start <= last).all(), "its sessions")
        arrays["older"][by_key[1:]] = np.where(same, by_key[:-1], NONE)
        arrays["older"][by_key[:1]] = NONE
        arrays["newer"][by_key[:-1]] = np.where(same, by_key[1:], NONE)
        arrays["newer"][by_key[-1:]] = NONE
        arrays["newest"][owner[by_key]] = by_key  # the last of a key is its newest
        arrays["oldest"][owner[by_key[::-1]]] = by_key[::-1]
