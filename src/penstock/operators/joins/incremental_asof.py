"""As-of joins between pushes: the last right row of each key is held, and the left rows that wait for a later one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from penstock.algorithms.keyed_states.row_store import FEWEST_DEAD, NULL_KEY, RowStore
from penstock.algorithms.sorted_partitions.rows import Rows
from penstock.operators.joins.asof import EVERYTHING
from penstock.operators.joins.held_sides import NONE, HeldSides, JoinOutput
from penstock.operators.joins.incremental import decoded
from penstock.operators.joins.results import Results, Waits
from penstock.runtime.buffers import longer
from penstock.runtime.kernels import Call
from penstock.runtime.stage import END_OF_TIME, START_OF_TIME

LEFT, ANSWER, KNOWN, WAITING = range(4)  # words of `marks`, see kernels/asof.py
ASOF_KEYS = ("known", "seen", "first", "last")


@dataclass
class IncrementalAsof:
    """Every left row, in order, with the nearest right row. A left row is emitted when no nearer row can arrive."""

    direction: str
    tolerance: int | None
    exact: bool
    sides: HeldSides
    output: JoinOutput
    last_before: Call
    next_rows: Call
    marks: np.ndarray = field(init=False, default_factory=lambda: np.zeros(4, np.int64))
    before: np.ndarray = field(init=False, default_factory=lambda: np.zeros(1, np.int64))
    after: np.ndarray = field(init=False, default_factory=lambda: np.zeros(1, np.int64))
    watermark: int = field(init=False, default=START_OF_TIME)
    settled: int = field(
        init=False, default=FEWEST_DEAD
    )  # right rows that are not worth a search for obsolete ones

    @property
    def stores(self) -> tuple[RowStore, RowStore]:
        return self.sides.stores

    @property
    def waits(self) -> Waits:
        """Results have the time of their left row, which waits for a later right row unless the join is backward."""
        if self.direction == "backward":
            return 0, None
        return END_OF_TIME if self.tolerance is None else self.tolerance, None

    @property
    def delays(self) -> tuple[int, int]:
        return 0, 0

    def undecided(self, side: int) -> int:
        left = self.stores[0]
        return int(left.times[left.first]) if len(left) else END_OF_TIME

    def held(self, side: int) -> np.ndarray:
        return self._needed() if side else np.arange(self.stores[0].first, self.stores[0].end)

    # -- steps ---------------------------------------------------------------------------------------

    def step(self, left: Rows, right: Rows, watermark: int) -> Iterator[pa.RecordBatch]:
        self._compact()
        self.watermark = watermark
        return self._backward(left, right) if self.direction == "backward" else self._later(left, right)

    def _backward(self, left: Rows, right: Rows) -> Iterator[pa.RecordBatch]:
        left = decoded(left, self.stores[0].schema)
        numbers = self.sides.number(0, left)
        begin = self.stores[1].end
        self._add_right(right)
        found = self._last_before(left.times, numbers, begin)
        return self.output.batches(Results(np.arange(len(left)), found), left, self.stores[1].rows())

    def _last_before(self, times: np.ndarray, keys: np.ndarray, begin: int) -> np.ndarray:
        """The right rows of some left rows; right rows from `begin` on are new."""
        store = self.stores[1]
        found = np.full(len(times), NONE)
        if not store.end:
            return found
        given: dict[str, object] = {
            "left": times,
            "left_keys": np.maximum(keys, 0),
            "right": store.times,
            "right_keys": store.keys,
        }
        given |= {"known": self.sides.words["known"], "found": found, "begin": begin}
        self.last_before({**given, "rows": len(times), "others": store.end, "reach": self._reach})
        found[keys == NULL_KEY] = NONE
        return found

    @property
    def _reach(self) -> int:
        return EVERYTHING if self.tolerance is None else self.tolerance

    def _add_right(self, rows: Rows) -> None:
        """Append right rows, except those without a key: no row matches them."""
        if len(rows):
            numbers = self.sides.number(1, rows)
            having = numbers != NULL_KEY
            self.stores[1].add(rows.chosen(having), numbers[having])

    def _later(self, left: Rows, right: Rows) -> Iterator[pa.RecordBatch]:
        first, found = self._run(left, right)
        results = Results(np.arange(first, first + len(found)), found)
        return self.output.batches(results, self.stores[0].rows(), self.stores[1].rows())

    def _run(self, left: Rows, right: Rows) -> tuple[int, np.ndarray]:
        """Enter new rows; return the first left row that leaves, and the right rows of those that do."""
        mine, its = self.stores
        first = mine.first
        self.marks[:] = mine.end, its.end, its.end, first
        self.sides.add(0, left)
        self._add_right(right)
        for name in ("before", "after"):
            if len(getattr(self, name)) < mine.end:
                setattr(self, name, longer(getattr(self, name), 2 * mine.end))
        found = np.empty(len(mine) + 1, np.int64)
        given: dict[str, object] = {
            "marks": self.marks,
            "left": mine.times,
            "left_keys": mine.keys,
            "links": mine.links,
        }
        given |= {"right": its.times, "right_keys": its.keys, "repeated": its.flags, **self.sides.words}
        given |= {"before": self.before, "after": self.after, "found": found}
        given |= {"left_end": mine.end, "right_end": its.end, "reach": self._reach}
        self.next_rows({**given, "watermark": self.watermark, "closing": int(self.watermark == END_OF_TIME)})
        mine.first = int(self.marks[WAITING])
        return first, found[: mine.first - first]

    # -- compaction and state ------------------------------------------------------------------------

    def _needed(self) -> np.ndarray:
        """Right rows from the oldest left row that waits on, and the last earlier one of each key, if it is near enough."""
        store = self.stores[1]
        oldest = min(self.undecided(0), self.watermark)
        cut = int(np.searchsorted(store.times[: store.end], oldest))
        later = np.arange(cut, store.end)
        if self.direction == "forward":
            return later
        last = np.full(len(self.sides.words["known"]), NONE)
        last[store.keys[:cut]] = np.arange(cut)  # rows are in order, so the last write is the latest row
        last = np.sort(last[last != NONE])
        if self.tolerance is not None:
            last = last[store.times[last] >= max(oldest - self.tolerance, START_OF_TIME)]
        return np.concatenate([last, later])

    def _compact(self) -> None:
        left, right = self.stores
        if left.crowded:
            self._shorten()
        if right.end > 2 * self.settled or self.sides.crowded:
            self._forget(self._needed())
            self.settled = max(right.end, FEWEST_DEAD)

    def _shorten(self) -> None:
        """Forget the left rows that have left."""
        left = self.stores[0]
        self.before, self.after = (words[left.first : left.end] for words in (self.before, self.after))
        left.keep(np.arange(left.first, left.end))
        self._wait_again()

    def _forget(self, kept: np.ndarray) -> None:
        """Forget all right rows but some, and the keys without a row."""
        left, right = self.stores
        moved = np.full(right.end + 1, NONE)
        moved[kept] = np.arange(len(kept))  # the last word stays NONE, for the rows without a partner
        for words in (self.before, self.after):
            words[left.first : left.end] = moved[words[left.first : left.end]]
        right.keep(kept)
        if self.sides.crowded:
            self.sides.forget_keys()
        self.sides.reset()
        self._know_again()
        self._wait_again()

    def _know_again(self) -> None:
        right = self.stores[1]
        self.sides.words["known"][right.keys[: right.end]] = np.arange(right.end)

    def _wait_again(self) -> None:
        """Make the lists of the left rows that wait anew."""
        left, words = self.stores[0], self.sides.words
        words["first"].fill(NONE)
        waiting = left.first + np.flatnonzero(self.after[left.first : left.end] == NONE)
        waiting = waiting[left.keys[waiting] >= 0]
        keys = left.keys[waiting]
        order = np.argsort(keys, kind="stable")
        waiting, keys = waiting[order], keys[order]
        begins = np.diff(keys, prepend=NONE) != 0
        ends = np.append(begins[1:], True)[: len(keys)]
        left.links[waiting] = NONE
        left.links[waiting[:-1][~ends[:-1]]] = waiting[1:][~begins[1:]]
        words["first"][keys[begins]] = waiting[begins]
        words["last"][keys[ends]] = waiting[ends]

    def restore(self, left: Rows, right: Rows, watermark: int) -> None:
        self.watermark = watermark
        if self.direction == "backward":
            self._add_right(right)
            self._know_again()
        else:
            self._run(left, right)
