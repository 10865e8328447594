"""The stage of look-backs that keeps running aggregates per key, one for each span: rows enter and leave them once.

Rows ahead of the watermark wait in sorted runs. Of the rows it has passed, those that a later look-back holds are kept
as the states of one row each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa

from penstock.algorithms.keyed_states.table import KeyedProgram, KeyedTable
from penstock.algorithms.order_statistics.trees import TREE_KEYS, TREE_SAVED, TREE_SLOTS, tree_word
from penstock.algorithms.sort.sorting import Sorter
from penstock.algorithms.sorted_partitions.rows_ahead import OrderedArrivals
from penstock.runtime.buffers import indices
from penstock.runtime.metrics import Metrics
from penstock.runtime.stage import END_OF_TIME, TimedBatch
from penstock.state.state_table import StateTable, integers, require
from penstock.types.time import Time

FREE, USED, OLDEST, NEWEST, NUMBER, HELD, WRITTEN = range(7)  # words of `marks`, see kernels.py
NONE = -1
LOOK_BACK_KEYS = {"first": NONE, "last": NONE, "middle": NONE, "held": 0}
LOOK_BACK_SLOTS = {"owner": NONE, "time": 0, "number": 0, "after": NONE, "next": NONE, "previous": NONE}
STATE, ALONE, SUFFIX = "state", "alone", "suffix"
HOLDING, RESTORING = "holding", "restoring"  # kernels


class LookBackProgram(KeyedProgram, Protocol):
    """Look-backs of one span; `trees` counts the search trees of each key, for aggregates of all values."""

    @property
    def trees(self) -> int: ...


@dataclass
class LookBackRows:
    """The rows that one look-back holds, and the aggregates of their keys."""

    program: LookBackProgram
    table: KeyedTable = field(init=False)
    marks: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        trees = range(self.program.trees)
        keys = {tree_word(place, name): word for place in trees for name, word in TREE_KEYS.items()}
        slots = {tree_word(place, name): word for place in trees for name, word in TREE_SLOTS.items()}
        words = {**LOOK_BACK_KEYS, **keys}, {**LOOK_BACK_SLOTS, **slots}
        self.table = KeyedTable(self.program, *words, (STATE,), (ALONE, SUFFIX))
        self.marks = np.array([NONE, 0, NONE, NONE, 0, 0, 0])

    def reduced(self, rows: pa.RecordBatch, watermark: int) -> list[pa.Array]:
        """Hold rows, and return the aggregates at each of them; release what no row from the watermark on looks back on."""
        self.marks[[HELD, WRITTEN]] = 0
        given = {"marks": self.marks, "watermark": watermark}
        found = list(self.table.run(rows, HOLDING, given, row_results=True))
        if self.table.crowded():
            self._forget_keys()
        return found[0].reduced if found else []

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

    def save(self) -> StateTable:
        slots, arrays = self._slots(), self.table.arrays
        times = arrays["time"][slots]
        columns = {"time": indices(times), "place": indices(_places(times))}
        columns |= {name: indices(arrays[name][slots]) for name in self._saved_words()}
        states = self.table.saved_states(ALONE, slots)
        return self.table.directory.kept(arrays["owner"][slots], ("time", "place"), {**columns, **states})

    def _saved_words(self) -> list[str]:
        """The names of the values of held rows in trees; the trees themselves are not saved."""
        return [tree_word(place, name) for place in range(self.program.trees) for name in TREE_SAVED]

    def load(self, saved: pa.Table, watermark: int, nothing: pa.RecordBatch) -> None:
        """Restore saved rows; `nothing` is a batch without rows."""
        table = self.table
        order = np.lexsort((integers(saved, "place"), integers(saved, "time")))
        saved, slots = saved.take(indices(order)).combine_chunks(), np.arange(len(order))
        times = integers(saved, "time")
        require((times < watermark).all(), "its held rows")
        owner = table.numbers(saved)
        table.reserve(max(len(slots), table.slots))
        for name, values in {"owner": owner, "time": times, "number": slots}.items():
            table.arrays[name][: len(slots)] = values
        for name in self._saved_words():
            table.arrays[name][: len(slots)] = integers(saved, name)
        table.load_states(ALONE, saved, slots)
        self.marks[[USED, NUMBER]] = len(slots)
        for _ in table.run(nothing, RESTORING, {"marks": self.marks, "watermark": watermark}):
            raise AssertionError("restored rows have no results")


@dataclass
class IncrementalLookBack:
    """Look-backs over spans of time or the last rows of a key, whose aggregates have states of fixed size.

    `programs` has one for each span; `places` gives the positions of its results among the result columns.
    """

    programs: Sequence[LookBackProgram]
    places: Sequence[Sequence[int]]
    keys: Sequence[pa.Field]
    schema: pa.Schema
    rows: pa.Schema
    time: Time
    sorter: Sorter
    metrics: Metrics
    spans: list[LookBackRows] = field(init=False)
    ahead: OrderedArrivals = field(init=False)

    def __post_init__(self) -> None:
        self.spans = [LookBackRows(program) for program in self.programs]
        self.ahead = OrderedArrivals(self.rows, self.time, self.sorter, self.metrics)

    def push(self, port: int, timed_batches: list[TimedBatch]) -> list[TimedBatch]:
        self.ahead.add(timed_batches)
        return []

    def advance(self, port: int, watermark: int) -> tuple[list[TimedBatch], int]:
        before = self.ahead.watermark
        rows = self.ahead.release(watermark).batch
        made = self._run(rows) if rows.num_rows or watermark > before else []
        return made, self.ahead.watermark

    def _run(self, rows: pa.RecordBatch) -> list[TimedBatch]:
        reduced = [span.reduced(rows, self.ahead.watermark) for span in self.spans]
        if not rows.num_rows:
            return []
        columns: list[pa.Array] = list(rows.columns)
        columns += [pa.nulls(0)] * sum(map(len, self.places))
        for places, arrays in zip(self.places, reduced, strict=True):
            for place, array in zip(places, arrays, strict=True):
                columns[rows.num_columns + place] = array
        return [TimedBatch(pa.RecordBatch.from_arrays(columns, schema=self.schema), counted=True)]

    # -- state ---------------------------------------------------------------------------------------

    def save(self) -> Mapping[str, StateTable]:
        held = {name: span.save() for name, span in zip(self._names, self.spans, strict=True)}
        return {**self.ahead.save(self.keys), **held}

    def load(self, tables: Mapping[str, pa.Table]) -> None:
        self.ahead.load(tables)
        nothing = self.ahead.rows.release(-END_OF_TIME).batch
        for name, span in zip(self._names, self.spans, strict=True):
            if name in tables:
                span.load(tables[name], self.ahead.watermark, nothing)

    @property
    def _names(self) -> list[str]:
        """The names of the saved tables of held rows."""
        return ["held"] if len(self.spans) == 1 else [f"held_{place}" for place in range(len(self.spans))]


def _places(times: np.ndarray) -> np.ndarray:
    """The position of each of some ordered times among the equal ones."""
    number = np.arange(len(times))
    begins = np.diff(times, prepend=times[:1]) != 0
    found: np.ndarray = number - np.maximum.accumulate(np.where(begins, number, 0))
    return found
