"""As-of joins: the last row of each key is held, and left rows that wait for a later one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from penstock.algorithms.keyed_states.row_store import FEWEST_DEAD, NULL_KEY, RowStore
from penstock.algorithms.sorted_partitions.rows import Rows
from penstock.operators.joins.incremental import NONE, HeldSides, JoinOutput, decoded
from penstock.operators.joins.partitions import Numbers, PartitionKernels, number_keys
from penstock.operators.joins.results import NULL_ROW, Emitted, JoinShape, Results, RowByRow, Waits
from penstock.runtime.buffers import longer
from penstock.runtime.kernels import Call
from penstock.runtime.stage import END_OF_TIME, START_OF_TIME

EVERYTHING = -1  # the kernel's value for no limit


@dataclass(frozen=True)
class AsofMatcher(RowByRow):
    """Every left row, in order, with the nearest right row. A left row is emitted when no nearer row can arrive."""

    direction: str
    tolerance: int | None
    exact: bool
    keys: tuple[tuple[str, ...], tuple[str, ...]]
    shape: JoinShape
    kernels: PartitionKernels

    @property
    def waits(self) -> Waits:
        """Results have the time of their left row, which is buffered for a later right row unless the join is
        backward.
        """
        if self.direction == "backward":
            return 0, None
        return END_OF_TIME if self.tolerance is None else self.tolerance, None

    def emit(self, left: Rows, right: Rows, before: int, watermark: int) -> Emitted:
        columns = [
            [rows.batch.column(name) for name in names]
            for rows, names in zip((left, right), self.keys, strict=True)
        ]
        numbers = number_keys(columns[0], columns[1], (len(left), len(right)), self.kernels)
        last = np.full(numbers.partitions, NULL_ROW)
        found, final = self._found(left, right, numbers, watermark, last)
        leaving = len(left) if final is None or final.all() else int(np.argmin(final))
        made = self.shape.rows_with(left, found[:leaving], right, self.kernels.threads)
        kept = np.zeros(len(left), np.bool_)
        kept[leaving:] = True
        oldest = int(left.times[leaving]) if leaving < len(left) else watermark
        if watermark == END_OF_TIME:
            return made, kept, np.zeros(len(right), np.bool_)
        return made, kept, self._needed(left, right, numbers, oldest, last)

    def _found(
        self, left: Rows, right: Rows, numbers: Numbers, watermark: int, last: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the nearest row of each left row, and whether it is final (None: all are); write the last right row
        of each key to `last`.
        """
        if self.direction == "backward":
            return self._nearest(left, right, numbers, last, backward=True), None
        after = self._nearest(left, right, numbers, np.full(numbers.partitions, NULL_ROW), backward=False)
        final = (
            np.ones(len(left), np.bool_) if watermark == END_OF_TIME else self._final(left, after, watermark)
        )
        if self.direction == "forward":
            return after, final
        before = self._nearest(left, right, numbers, last, backward=True)
        since = _apart(_times(right, before), left.times)
        if watermark != END_OF_TIME:
            final |= (before != NULL_ROW) & (since < _apart(left.times, np.int64(watermark)))
        nearer = (before == NULL_ROW) | (
            (after != NULL_ROW) & (_apart(left.times, _times(right, after)) <= since)
        )
        return np.where(nearer, after, before), final

    def _final(self, left: Rows, after: np.ndarray, watermark: int) -> np.ndarray:
        """A next row before the watermark is final; so is its absence once the tolerance has passed."""
        final: np.ndarray = after != NULL_ROW
        if self.tolerance is not None:
            final |= left.times < max(watermark - self.tolerance, START_OF_TIME)
        return final

    def _nearest(
        self, left: Rows, right: Rows, numbers: Numbers, known: np.ndarray, *, backward: bool
    ) -> np.ndarray:
        if not len(right) or not len(left):
            return np.full(len(left), NULL_ROW)
        found = np.empty(len(left), np.int64)
        given = {"left": left.times, "left_keys": numbers.left, "right": right.times}
        given |= {"right_keys": numbers.right, "known": known, "found": found}
        reach = EVERYTHING if self.tolerance is None else self.tolerance
        sizes = {"rows": len(left), "others": len(right), "reach": reach}
        if backward:
            self.kernels.last_before(self.exact)({**given, **sizes, "begin": 0})
        else:
            self.kernels.next_after(self.exact)({**given, **sizes})
        return found

    def _needed(self, left: Rows, right: Rows, numbers: Numbers, oldest: int, last: np.ndarray) -> np.ndarray:
        """Retain right rows from the oldest pending left row on, and the last earlier row of each key."""
        kept: np.ndarray = right.times >= oldest
        if self.direction == "forward":
            return kept
        if kept.any() or not len(left):  # else `last` covers exactly the earlier rows
            earlier = np.flatnonzero(~kept)
            last = np.full(numbers.partitions, NULL_ROW)
            last[numbers.right[earlier]] = earlier  # rows are in order, so the last write is the latest row
        last = last[last != NULL_ROW]
        if self.tolerance is not None:
            last = last[right.times[last] >= max(oldest - self.tolerance, START_OF_TIME)]
        kept[last] = True
        return kept


def _apart(before: np.ndarray, after: np.ndarray | np.int64) -> np.ndarray:
    """Return the differences of times as unsigned numbers: they may exceed 63 bits."""
    return (after - before).view(np.uint64)


def _times(rows: Rows, places: np.ndarray) -> np.ndarray:
    return rows.times[np.maximum(places, 0)] if len(rows) else np.zeros(len(places), np.int64)


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
