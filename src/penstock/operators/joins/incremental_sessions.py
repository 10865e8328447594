"""Joins in sessions between pushes: rows are held in lists per key, and those of complete sessions are joined once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from penstock.algorithms.keyed_states.row_store import FEWEST_DEAD, RowStore
from penstock.algorithms.sorted_partitions.rows import Rows
from penstock.operators.joins.held_sides import HeldSides, encoded
from penstock.operators.joins.results import InWindows, Waits
from penstock.operators.joins.stage import Matcher
from penstock.runtime.kernels import Call
from penstock.runtime.stage import END_OF_TIME, START_OF_TIME

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
