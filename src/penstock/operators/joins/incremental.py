"""Joins between pushes: the rows held of both sides, the stage whose cost follows its rows and results, and sessions.

Rows ahead of the watermark wait in sorted runs. Those that both sides have passed go to the matcher, once and in order;
it holds those that later rows may match.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from penstock.algorithms.keyed_states.row_store import (
    FEWEST_DEAD,
    NULL_KEY,
    KeyNumbers,
    RowStore,
    encoded,
    encoded_array,
)
from penstock.algorithms.sort.sorting import Sorter
from penstock.algorithms.sorted_partitions.rows import Rows, no_rows, rows_back
from penstock.algorithms.sorted_partitions.rows_ahead import OrderedArrivals
from penstock.operators.joins.partitions import PartitionKernels
from penstock.operators.joins.results import InWindows, JoinShape, Results, Waits
from penstock.operators.joins.stage import Matcher
from penstock.runtime.buffers import plain, room
from penstock.runtime.kernels import Call
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


NONE = -1


@dataclass
class HeldSides:
    """Two stores of rows with common numbers of keys, and one word of each of `per_key` for each key.

    A key with a null has no number, unless `null_keys` are keys like others.
    """

    schemas: tuple[pa.Schema, pa.Schema]
    keys: tuple[tuple[str, ...], tuple[str, ...]]
    kernels: PartitionKernels
    per_key: tuple[str, ...]
    null_keys: bool = False
    stores: tuple[RowStore, RowStore] = field(init=False)
    words: dict[str, np.ndarray] = field(init=False)
    _numbers: KeyNumbers = field(init=False)

    def __post_init__(self) -> None:
        self.stores = RowStore(self.schemas[0]), RowStore(self.schemas[1])
        width = len(self.keys[0])
        self._numbers = KeyNumbers(self.kernels.new_index(width) if width else None)
        self.reset()

    def reset(self) -> None:
        """Give all keys the word NONE."""
        size = max(len(self._numbers), 1)
        self.words = {name: np.full(size, NONE) for name in self.per_key}

    def number(self, side: int, rows: Rows) -> np.ndarray:
        """The numbers of the keys of rows of a side; every key has its words."""
        columns = [rows.batch.column(name) for name in self.keys[side]]
        numbers = self._numbers.of(columns, len(rows), self.null_keys)
        keys = len(self._numbers)
        for name, words in self.words.items():
            if len(words) < keys:
                larger = np.full(max(2 * len(words), keys), NONE)
                larger[: len(words)] = words
                self.words[name] = larger
        return numbers

    def add(self, side: int, rows: Rows) -> None:
        """Append rows of a side."""
        if len(rows):
            self.stores[side].add(rows, self.number(side, rows))

    @property
    def crowded(self) -> bool:
        """Whether so many keys have come that it is worth a search for obsolete ones."""
        return self._numbers.crowded

    def forget_keys(self) -> None:
        """Forget the keys of which no row is held. Their words are void, and so are those of all others."""
        used = np.unique(np.concatenate([store.keys[store.first : store.end] for store in self.stores]))
        types = [self.schemas[0].field(name).type for name in self.keys[0]]
        moved = self._numbers.forget(used[used != NULL_KEY], types, self.kernels.new_index(len(types)))
        for store in self.stores:
            store.renumber(moved)
        self.reset()


@dataclass(frozen=True)
class JoinOutput:
    """Result batches from rows without dictionaries."""

    shape: JoinShape
    schema: pa.Schema
    threads: int

    @staticmethod
    def of(shape: JoinShape, threads: int) -> JoinOutput:
        fields = [pa.field(column.name, _value_type(column.type)) for column in shape.schema]
        return JoinOutput(replace(shape, schema=pa.schema(fields)), shape.schema, threads)

    def batches(self, results: Results, left: Rows, right: Rows) -> Iterator[pa.RecordBatch]:
        """Return the result batches of pairs of rows."""
        made = self.shape.batches(results, left, right, self.threads)
        return made if self.shape.schema.equals(self.schema) else map(self._encoded, made)

    def _encoded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        arrays = [
            encoded_array(array, column.type)
            for array, column in zip(batch.columns, self.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _value_type(dtype: pa.DataType) -> pa.DataType:
    return dtype.value_type if pa.types.is_dictionary(dtype) else dtype


def fitting(buffers: Sequence[np.ndarray], most: int) -> list[np.ndarray]:
    """Buffers of four times the size, up to a limit."""
    return [room(min(4 * len(buffer), most)) for buffer in buffers]


NEW, EXPIRING, GONE = 0, 2, 4  # words of `marks`, see kernels/sessions.py
JOINED_SESSION_KEYS = ("left_first", "left_last", "right_first", "right_last", "latest")
_SIDES = ("left", "right")
_CHUNK = 256


@dataclass
class IncrementalSessionJoin:
    """The rows of both sides in open sessions; `matcher` joins those of complete ones."""

    gap: int
    sides: HeldSides
    matcher: Matcher
    session_join: Call
    link: Call
    marks: np.ndarray = field(init=False, default_factory=lambda: np.zeros(6, np.int64))
    oldest: list[int] = field(init=False, default_factory=lambda: [0, 0])
    dead: int = field(init=False, default=0)

    @property
    def stores(self) -> tuple[RowStore, RowStore]:
        return self.sides.stores

    @property
    def waits(self) -> Waits:
        return InWindows.waits

    @property
    def delays(self) -> tuple[int, int]:
        return 0, 0

    def undecided(self, side: int) -> int:
        """The time of the oldest row in an open session."""
        store, at = self.stores[side], self.oldest[side]
        while at < store.end:
            alive = np.flatnonzero(store.flags[at : min(at + _CHUNK, store.end)] == 0)
            if len(alive):
                self.oldest[side] = at + int(alive[0])
                return int(store.times[self.oldest[side]])
            at += _CHUNK
        self.oldest[side] = store.end
        return END_OF_TIME

    def held(self, side: int) -> np.ndarray:
        store = self.stores[side]
        return np.flatnonzero(store.flags[: store.end] == 0)

    def step(self, left: Rows, right: Rows, watermark: int) -> Iterable[pa.RecordBatch]:
        rows = sum(store.end for store in self.stores)
        if 2 * self.dead > rows + FEWEST_DEAD or self.sides.crowded:
            self._compact()
        gone = self._run(left, right, watermark)
        if not any(map(len, gone)):
            return []
        mine, its = (
            encoded(store.rows().chosen(np.sort(places)), schema)
            for store, places, schema in zip(self.stores, gone, self.sides.schemas, strict=True)
        )
        return self.matcher.emit(mine, its, START_OF_TIME, END_OF_TIME)[0]

    def _run(self, left: Rows, right: Rows, watermark: int) -> list[np.ndarray]:
        """Enter new rows; return the places of those in sessions that are complete."""
        for side, rows in enumerate((left, right)):
            self.marks[NEW + side] = self.stores[side].end
            self.sides.add(side, rows)
        given: dict[str, object] = {"marks": self.marks, "gap": self.gap, **self.sides.words}
        gone = [np.empty(store.end + 1, np.int64) for store in self.stores]
        for name, store, places in zip(_SIDES, self.stores, gone, strict=True):
            lists = {"times": store.times, "keys": store.keys, "links": store.links, "gone": store.flags}
            given |= {f"{name}_{hint}": array for hint, array in lists.items()}
            given |= {f"{name}_out": places, f"{name}_end": store.end}
        self.session_join({**given, "watermark": watermark, "closing": int(watermark == END_OF_TIME)})
        counts = self.marks[[GONE, GONE + 1]].tolist()
        self.dead += sum(counts)
        return [places[:count] for places, count in zip(gone, counts, strict=True)]

    def _compact(self) -> None:
        """Forget the rows of sessions that are joined, and the keys without a row."""
        for side, store in enumerate(self.stores):
            kept = self.held(side)
            self.marks[EXPIRING + side] = int(np.searchsorted(kept, self.marks[EXPIRING + side]))
            store.keep(kept)
        self.oldest, self.dead = [0, 0], 0
        if self.sides.crowded:
            self.sides.forget_keys()
        self.sides.reset()
        latest = np.full(len(self.sides.words["latest"]), START_OF_TIME)
        for name, store in zip(_SIDES, self.stores, strict=True):
            lists = {"first": self.sides.words[f"{name}_first"], "last": self.sides.words[f"{name}_last"]}
            rows = {"keys": store.keys, "links": store.links, "flags": store.flags}
            self.link({**rows, **lists, "begin": 0, "end": store.end})
            own = np.full(len(latest), START_OF_TIME)
            own[store.keys[: store.end]] = store.times[: store.end]  # the last write is the latest row
            np.maximum(latest, own, out=latest)
        self.sides.words["latest"] = latest

    def restore(self, left: Rows, right: Rows, watermark: int) -> None:
        self._run(left, right, watermark)
