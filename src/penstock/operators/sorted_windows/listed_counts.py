"""The stage of windows of rows that read their rows: they are held in lists per key, and a window reads its own alone.

Rows ahead of the watermark wait in sorted runs. Those that it has passed are appended to a store, in order, once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa

from penstock.algorithms.hash_table.keys import Indexer
from penstock.algorithms.keyed_states.row_store import FEWEST_DEAD, KeyNumbers, RowStore, encoded
from penstock.algorithms.sorted_partitions.frames import CountFraming
from penstock.algorithms.sorted_partitions.gathered import GatheredFrames, GatheredWindows
from penstock.algorithms.sorted_partitions.partitions import PartitionLayout
from penstock.algorithms.sorted_partitions.results import Emission
from penstock.algorithms.sorted_partitions.rows import Rows, rows_back
from penstock.algorithms.sorted_partitions.rows_ahead import OrderedArrivals
from penstock.runtime.buffers import room
from penstock.runtime.kernels import Call
from penstock.runtime.metrics import Metrics
from penstock.runtime.stage import END_OF_TIME, START_OF_TIME, TimedBatch, within_reach
from penstock.state.state_table import StateTable, read_scalars, require_form
from penstock.types.time import Time

NEXT, MADE, DEAD = range(3)  # words of `marks`, see kernels/count_rows.py
NONE = -1
FEWEST_PLACES, MOST_GATHERED = 1 << 10, 1 << 20
CHUNK = 256


@dataclass
class ListedCounts:
    """Windows of rows by key. `gathered` reduces the rows of complete windows, `sorted_rows` all rows held."""

    framing: CountFraming
    layout: PartitionLayout
    gathered: Emission
    sorted_rows: Emission
    frames: GatheredFrames
    repeats_rows: bool
    schema: pa.Schema
    time: Time
    metrics: Metrics
    count_rows: Call
    arrivals: OrderedArrivals = field(init=False)
    store: RowStore = field(init=False)
    numbers: KeyNumbers = field(init=False)
    seen: np.ndarray = field(init=False)
    last: np.ndarray = field(init=False)
    places: np.ndarray = field(init=False, default_factory=lambda: room(FEWEST_PLACES))
    marks: np.ndarray = field(init=False, default_factory=lambda: np.zeros(3, np.int64))
    oldest: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.arrivals = OrderedArrivals(self.schema, self.time, self.layout.sorter, self.metrics)
        self.store, self.numbers = RowStore(self.schema), KeyNumbers(self._new_index())
        self._reset_keys()

    def _new_index(self) -> Indexer:
        return self.layout.new_index(len(self.layout.keys))

    def _reset_keys(self) -> None:
        size = max(len(self.numbers), 1)
        self.seen, self.last = np.zeros(size, np.int64), np.full(size, NONE)

    def push(self, port: int, timed_batches: list[TimedBatch]) -> list[TimedBatch]:
        self.arrivals.add(timed_batches)
        return []

    def advance(self, port: int, watermark: int) -> tuple[list[TimedBatch], int]:
        rows, made = self.arrivals.release(watermark), []
        if self._crowded():
            self._compact()
        if watermark == END_OF_TIME:
            made = self._sorted(rows, watermark)
        elif len(rows):
            made = [batch for part in self._parts(rows) for batch in self._emitted(part, watermark)]
        return [TimedBatch(batch, counted=True) for batch in made if batch.num_rows], self._ahead(watermark)

    # -- rows ----------------------------------------------------------------------------------------

    def _parts(self, rows: Rows) -> Iterator[Rows]:
        """Cut rows where the time changes, so that the windows they complete have a bounded number of rows."""
        most = max(MOST_GATHERED * self.framing.every // self.framing.size, 1)
        cuts = [0]
        while cuts[-1] + most < len(rows):
            cuts.append(int(np.searchsorted(rows.times, rows.times[cuts[-1] + most], side="right")))
        if cuts[-1] < len(rows):
            cuts.append(len(rows))
        return (rows.part(begin, end) for begin, end in pairwise(cuts))

    def _emitted(self, rows: Rows, watermark: int) -> list[pa.RecordBatch]:
        """Enter rows, and return the results of the windows that they complete: from the fewer rows to read."""
        reads = len(rows) * self.framing.size // self.framing.every
        if reads > len(rows) + self.store.end - int(self.marks[DEAD]):
            return self._sorted(rows, watermark)
        self._enter(rows, writes=True)
        places = self.places[: int(self.marks[MADE])]
        if not len(places):
            return []
        own, size = encoded(self.store.rows().chosen(places), self.schema), self.framing.size
        first = np.arange(0, len(places), size)
        times = within_reach(own.times, 0, 1)
        self.frames.set(first, first + size, times[first], times[first + size - 1] + 1)
        return self.gathered(GatheredWindows.of(own, first, places), watermark)

    def _sorted(self, rows: Rows, watermark: int) -> list[pa.RecordBatch]:
        """Enter rows, and return the results of complete windows from all rows held."""
        held = self.store.rows().chosen(self._held())
        self._enter(rows, writes=False)
        every = encoded(held, self.schema).followed_by(rows.unseen())
        return self.sorted_rows(self.layout.partitions(every), watermark)

    def _enter(self, rows: Rows, *, writes: bool) -> None:
        """Append rows to the lists of their keys."""
        keys = self.numbers.of(self._keys_of(rows), len(rows), null_keys=True)
        if len(self.seen) < len(self.numbers):
            more = 2 * len(self.numbers) - len(self.seen)
            self.seen = np.concatenate([self.seen, np.zeros(more, np.int64)])
            self.last = np.concatenate([self.last, np.full(more, NONE)])
        self.marks[[NEXT, MADE]] = self.store.end, 0
        self.store.add(rows, keys)
        while self._run(writes):
            larger = room(max(4 * len(self.places), 2 * self.framing.size))
            made = int(self.marks[MADE])
            larger[:made] = self.places[:made]
            self.places = larger

    def _keys_of(self, rows: Rows) -> list[pa.Array]:
        return [rows.batch.column(name) for name in self.layout.keys]

    def _run(self, writes: bool) -> int:
        store, framing = self.store, self.framing
        lists = {"keys": store.keys, "links": store.links, "gone": store.flags, "end": store.end}
        keys = {"seen": self.seen, "last": self.last}
        window = {
            "size": framing.size,
            "every": framing.every,
            "reach": max(framing.size, framing.every),
        }
        memory = {"out": self.places, "capacity": len(self.places), "marks": self.marks, "writes": writes}
        return self.count_rows({**lists, **keys, **window, **memory})

    def _held(self) -> np.ndarray:
        """The places of the rows of open windows."""
        return np.flatnonzero(self.store.flags[: self.store.end] == 0)

    def _ahead(self, watermark: int) -> int:
        """The output watermark: rows that are repeated are older than the input watermark."""
        if not self.repeats_rows or watermark in (START_OF_TIME, END_OF_TIME):
            return self.framing.ahead(watermark)
        return max(min(watermark, self._oldest(), self.arrivals.rows.oldest), START_OF_TIME)

    def _oldest(self) -> int:
        """The time of the oldest row of an open window."""
        store, at = self.store, self.oldest
        while at < store.end:
            alive = np.flatnonzero(store.flags[at : min(at + CHUNK, store.end)] == 0)
            if len(alive):
                self.oldest = at + int(alive[0])
                return int(store.times[self.oldest])
            at += CHUNK
        self.oldest = store.end
        return END_OF_TIME

    # -- compaction and state ------------------------------------------------------------------------

    def _crowded(self) -> bool:
        return 2 * int(self.marks[DEAD]) > self.store.end + FEWEST_DEAD or self.numbers.crowded

    def _compact(self) -> None:
        """Forget the rows that no window holds, and the keys without a row; count the others anew."""
        self.store.keep(self._held())
        self.oldest, self.marks[:] = 0, 0
        if self.numbers.crowded:
            types = [self.schema.field(name).type for name in self.layout.keys]
            used = np.unique(self.store.keys[: self.store.end])
            self.store.renumber(self.numbers.forget(used, types, self._new_index()))
        self._reset_keys()
        self._run(False)

    def save(self) -> Mapping[str, StateTable]:
        kept = self.arrivals.save([])
        ahead, held = self.arrivals.rows.rows(), self.store.rows().chosen(self._held())
        return {**kept, "rows": encoded(held, self.schema).followed_by(ahead).kept(self.layout.keys)}

    def load(self, tables: Mapping[str, pa.Table]) -> None:
        require_form(tables.keys() <= {"marks", "rows"})
        self.arrivals.watermark = read_scalars(tables["marks"])["watermark"]
        if "rows" in tables:
            rows = rows_back(tables["rows"], self.schema, self.time)
            passed = rows.times < self.arrivals.watermark
            require_form(not rows.fresh[passed].any())
            self.arrivals.rows.add(rows.chosen(~passed).unseen())
            held = rows.chosen(passed)
            require_form(bool((np.diff(held.times) >= 0).all()))
            self._enter(held, writes=False)
