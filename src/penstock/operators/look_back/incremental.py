"""The stage of look-backs that keeps a running aggregate per key: rows enter and leave it once.

Rows ahead of the watermark wait in sorted runs. Of the rows it has passed, those that a later look-back holds are kept
as the states of one row each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from penstock.algorithms.keyed_states.table import KeyedProgram, KeyedTable
from penstock.algorithms.sort.sorting import Sorter
from penstock.algorithms.sorted_partitions.ordered_arrivals import OrderedArrivals
from penstock.runtime.buffers import indices
from penstock.runtime.metrics import Metrics
from penstock.runtime.stage import END_OF_TIME, TimedBatch
from penstock.state.state_table import StateTable, integers, require
from penstock.types.time import Time

FREE, USED, OLDEST, NEWEST, NUMBER, HELD, WRITTEN = range(7)  # words of `marks`, see kernels/look_back.py
NONE = -1
LOOK_BACK_KEYS = {"first": NONE, "last": NONE, "middle": NONE, "held": 0}
LOOK_BACK_SLOTS = {"owner": NONE, "time": 0, "number": 0, "after": NONE, "next": NONE, "previous": NONE}
STATE, ALONE, SUFFIX = "state", "alone", "suffix"
HOLDING, RESTORING = "holding", "restoring"  # kernels


@dataclass
class IncrementalLookBack:
    """One look-back, over a span of time or the last rows of a key, whose aggregates have states of fixed size."""

    program: KeyedProgram
    schema: pa.Schema
    rows: pa.Schema
    time: Time
    sorter: Sorter
    metrics: Metrics
    table: KeyedTable = field(init=False)
    ahead: OrderedArrivals = field(init=False)
    marks: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.table = KeyedTable(self.program, LOOK_BACK_KEYS, LOOK_BACK_SLOTS, (STATE,), (ALONE, SUFFIX))
        self.ahead = OrderedArrivals(self.rows, self.time, self.sorter, self.metrics)
        self.marks = np.array([NONE, 0, NONE, NONE, 0, 0, 0])

    def push(self, port: int, timed_batches: list[TimedBatch]) -> list[TimedBatch]:
        self.ahead.add(timed_batches)
        return []

    def advance(self, port: int, watermark: int) -> tuple[list[TimedBatch], int]:
        before = self.ahead.watermark
        rows = self.ahead.release(watermark).batch
        made = self._run(rows) if rows.num_rows or watermark > before else []
        if self.table.crowded():
            self._forget_keys()
        return made, self.ahead.watermark

    def _run(self, rows: pa.RecordBatch) -> list[TimedBatch]:
        self.marks[[HELD, WRITTEN]] = 0
        given = {"marks": self.marks, "watermark": self.ahead.watermark}
        made = []
        for found in self.table.run(rows, HOLDING, given, row_results=True):
            batch = pa.RecordBatch.from_arrays([*rows.columns, *found.reduced], schema=self.schema)
            made.append(TimedBatch(batch, counted=True))
        return made

    def _forget_keys(self) -> None:
        """Forget the keys of which no row is held."""
        table = self.table
        slots = self._slots()
        moved = table.keep_keys(np.flatnonzero(table.arrays["held"][: len(table.directory)]))
        table.arrays["owner"][slots] = moved[table.arrays["owner"][slots]]

    def _slots(self) -> np.ndarray:
        """The slots of the held rows, in the order in which they came."""
        used = int(self.marks[USED])
        slots = np.flatnonzero(self.table.arrays["owner"][:used] >= 0)
        ordered: np.ndarray = slots[np.argsort(self.table.arrays["number"][slots])]
        return ordered

    # -- state ---------------------------------------------------------------------------------------

    def save(self) -> Mapping[str, StateTable]:
        slots, arrays = self._slots(), self.table.arrays
        times = arrays["time"][slots]
        columns = {"time": indices(times), "place": indices(_places(times))}
        states = self.table.saved_states(ALONE, slots)
        held = self.table.directory.kept(arrays["owner"][slots], ("time", "place"), {**columns, **states})
        return {**self.ahead.save(self.program.keys), "held": held}

    def load(self, tables: Mapping[str, pa.Table]) -> None:
        self.ahead.load(tables)
        if "held" in tables:
            self._load_held(tables["held"])

    def _load_held(self, saved: pa.Table) -> None:
        table = self.table
        order = np.lexsort((integers(saved, "place"), integers(saved, "time")))
        saved, slots = saved.take(indices(order)).combine_chunks(), np.arange(len(order))
        times = integers(saved, "time")
        require((times < self.ahead.watermark).all(), "its held rows")
        owner = table.numbers(saved)
        table.reserve(max(len(slots), table.slots))
        for name, values in {"owner": owner, "time": times, "number": slots}.items():
            table.arrays[name][: len(slots)] = values
        table.load_states(ALONE, saved, slots)
        self.marks[[USED, NUMBER]] = len(slots)
        nothing = self.ahead.rows.release(-END_OF_TIME).batch
        for _ in table.run(nothing, RESTORING, {"marks": self.marks, "watermark": self.ahead.watermark}):
            raise AssertionError("restored rows have no results")


def _places(times: np.ndarray) -> np.ndarray:
    """The position of each of some ordered times among the equal ones."""
    number = np.arange(len(times))
    begins = np.diff(times, prepend=times[:1]) != 0
    found: np.ndarray = number - np.maximum.accumulate(np.where(begins, number, 0))
    return found
