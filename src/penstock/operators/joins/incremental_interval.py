"""Interval joins between pushes: rows are held in lists per key, and a row meets just the rows it matches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from penstock.algorithms.joins.joiner import Pairs
from penstock.algorithms.keyed_states.row_store import RowStore
from penstock.algorithms.sorted_partitions.rows import Rows
from penstock.operators.joins.incremental import HeldSides, JoinOutput, fitting
from penstock.operators.joins.results import (
    MOST_PAIRS,
    Residual,
    Results,
    Waits,
    alone,
    gives_left_rows,
    left_rows,
    preserves,
    satisfying,
    with_alone,
)
from penstock.runtime.buffers import room
from penstock.runtime.kernels import Call
from penstock.runtime.stage import END_OF_TIME, START_OF_TIME, moved

LEFT, RIGHT, AT, MADE = range(4)  # words of `marks`, see kernels/interval.py
AFRESH, MORE = -2, 1
FEWEST_PAIRS = 1 << 10
INTERVAL_KEYS = ("left_first", "left_last", "right_first", "right_last")
_PAIR, _LEFT, _RIGHT = 1, 2, 3  # sort order among results at one time
_NO_PAIRS = np.zeros(0, np.int64), np.zeros(0, np.int64)


def reaches(how: str, lo: int, hi: int) -> tuple[int, int]:
    """How long the rows of each side are held: a later row may match them, or a row they may have matched is undecided."""
    mine, its = max(hi, 0), max(-lo, 0)
    left = hi + (its if preserves(how, 1) else 0)
    right = -lo + (mine if preserves(how, 0) or gives_left_rows(how) else 0)
    return (left, right) if how == "inner" else (max(left, mine), max(right, its))


@dataclass
class IncrementalInterval:
    """Match right rows from `lo` to `hi` after a left row, both included.

    A pair is emitted when its later row is passed, in the order of later rows; an unmatched row, when no match can follow.
    """

    lo: int
    hi: int
    how: str
    residual: Residual | None
    sides: HeldSides
    output: JoinOutput
    join: Call
    link: Call
    decided: list[int] = field(init=False, default_factory=lambda: [0, 0])
    marks: np.ndarray = field(init=False, default_factory=lambda: np.array([0, 0, AFRESH, 0]))
    pairs: list[np.ndarray] = field(
        init=False, default_factory=lambda: [room(FEWEST_PAIRS), room(FEWEST_PAIRS)]
    )

    @property
    def stores(self) -> tuple[RowStore, RowStore]:
        return self.sides.stores

    @property
    def wait(self) -> tuple[int, int]:
        """How long after a row of each side a match may follow."""
        return max(self.hi, 0), max(-self.lo, 0)

    @property
    def waits(self) -> Waits:
        """A pair has the time of its later row, which is new; a pending row may be emitted later as unmatched."""
        mine, its = self.wait
        if gives_left_rows(self.how):
            return mine, None
        return mine if preserves(self.how, 0) else 0, its if preserves(self.how, 1) else 0

    @property
    def delays(self) -> tuple[int, int]:
        return 0, 0

    @property
    def flags_alone(self) -> bool:
        """Whether one partner decides, and the kernel flags left rows instead of writing pairs."""
        return gives_left_rows(self.how) and self.residual is None

    def undecided(self, side: int) -> int:
        store, at = self.stores[side], self.decided[side]
        decides = preserves(self.how, side) or (side == 0 and gives_left_rows(self.how))
        return int(store.times[at]) if decides and at < store.end else END_OF_TIME

    def held(self, side: int) -> np.ndarray:
        return np.arange(self.stores[side].first, self.stores[side].end)

    # -- steps ---------------------------------------------------------------------------------------

    def step(self, left: Rows, right: Rows, watermark: int) -> Iterator[pa.RecordBatch]:
        self._compact()
        self._take(left, right)
        until = [
            self._place(side, watermark, wait, self.decided[side]) for side, wait in enumerate(self.wait)
        ]
        begin, self.decided = self.decided, until
        for side, reach in enumerate(reaches(self.how, self.lo, self.hi)):
            self.stores[side].first = self._place(side, watermark, reach, self.stores[side].first)
        return self._results(begin, until)

    def _take(self, left: Rows, right: Rows) -> None:
        """Append new rows; the kernel begins with them."""
        self.marks[[LEFT, RIGHT]] = self.stores[0].end, self.stores[1].end
        self.sides.add(0, left)
        self.sides.add(1, right)

    def _place(self, side: int, watermark: int, wait: int, begin: int) -> int:
        """The first row of a side that is at most `wait` before a watermark."""
        if watermark == END_OF_TIME:
            return self.stores[side].end
        return self.stores[side].place_of(min(max(watermark - wait, START_OF_TIME), END_OF_TIME), begin)

    def _results(self, begin: list[int], until: list[int]) -> Iterator[pa.RecordBatch]:
        rows = self.stores[0].rows(), self.stores[1].rows()
        for results in self._found(rows, begin, until):
            yield from self.output.batches(results, *rows)

    def _found(self, rows: tuple[Rows, Rows], begin: list[int], until: list[int]) -> Iterator[Results]:
        if gives_left_rows(self.how):
            for pairs, _ in self._new_pairs(rows):
                self._flag(pairs)
            due = np.arange(begin[0], until[0])
            yield Results(*alone(left_rows(self.how, self.stores[0].flags[due] > 0, due), 0))
        elif self.how == "inner":
            yield from (Results(*pairs) for pairs, _ in self._new_pairs(rows))
        else:
            yield from self._with_unmatched(rows, begin, until)

    # -- pairs ---------------------------------------------------------------------------------------

    def _new_pairs(self, rows: tuple[Rows, Rows]) -> Iterator[tuple[Pairs, int]]:
        """Yield the pairs whose later row is new, in the order of that row, then of the other.

        Each part comes with a time before which all pairs have been found.
        """
        more = True
        while more:
            more = self._run() == MORE
            made = int(self.marks[MADE])
            pairs = self.pairs[0][:made].copy(), self.pairs[1][:made].copy()
            if more and len(self.pairs[0]) < MOST_PAIRS:
                self.pairs = fitting(self.pairs, MOST_PAIRS)
            yield satisfying(pairs, self.residual, *rows), self._reached() if more else END_OF_TIME
        if len(self.pairs[0]) > MOST_PAIRS >> 4:  # one large step; those that follow may be small
            self.pairs = [room(FEWEST_PAIRS), room(FEWEST_PAIRS)]

    def _run(self) -> int:
        left, right = self.stores
        given: dict[str, object] = {"marks": self.marks, "flags": left.flags, **self.sides.words}
        for name, store in (("left", left), ("right", right)):
            given |= {f"{name}_times": store.times, f"{name}_keys": store.keys, f"{name}_links": store.links}
        lo, hi = self.lo, self.hi
        given |= {
            "left_end": left.end,
            "left_least": max(-hi, 1),
            "left_most": -lo,
            "left_held": int(hi >= 0),
        }
        given |= {
            "right_end": right.end,
            "right_least": max(lo, 0),
            "right_most": hi,
            "right_held": int(lo < 0),
        }
        given |= {"own": self.pairs[0], "other": self.pairs[1], "capacity": len(self.pairs[0])}
        return self.join(given)

    def _reached(self) -> int:
        """The time of the row that the kernel has reached."""
        return min(
            int(store.times[place]) if place < store.end else END_OF_TIME
            for store, place in zip(self.stores, self.marks[[LEFT, RIGHT]].tolist(), strict=True)
        )

    # -- unmatched rows --------------------------------------------------------------------------------

    def _flag(self, pairs: Pairs) -> None:
        for store, places in zip(self.stores, pairs, strict=True):
            store.flags[places] = 1

    def _with_unmatched(
        self, rows: tuple[Rows, Rows], begin: list[int], until: list[int]
    ) -> Iterator[Results]:
        """Yield pairs and unmatched rows; an unmatched row is placed at the time at which no match can follow."""
        at = list(begin)
        for pairs, reached in self._new_pairs(rows):
            self._flag(pairs)
            unmatched_rows = []
            for side, wait in enumerate(self.wait):
                due = _NO_PAIRS
                if preserves(self.how, side):
                    end = min(until[side], max(self._place(side, reached, wait, at[side]), at[side]))
                    due, at[side] = self._unmatched(side, at[side], end), end
                unmatched_rows.append(due)
            yield self._among(rows, pairs, unmatched_rows)

    def _unmatched(self, side: int, begin: int, end: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the unmatched rows of a range, and the times at which they became final."""
        store = self.stores[side]
        places = begin + np.flatnonzero(store.flags[begin:end] == 0)
        return places, moved(store.times[places], self.wait[side])

    def _among(
        self, rows: tuple[Rows, Rows], pairs: Pairs, unmatched_rows: list[tuple[np.ndarray, np.ndarray]]
    ) -> Results:
        """Merge pairs and unmatched rows in order of time."""
        times = np.maximum(rows[0].times[pairs[0]], rows[1].times[pairs[1]])
        (free, left_known), (others, right_known) = unmatched_rows
        if not len(free) and not len(others):
            return Results(*pairs)
        left, right = with_alone(with_alone(pairs, free, 0), others, 1)
        kind = np.repeat([_PAIR, _LEFT, _RIGHT], [len(times), len(free), len(others)])
        order = self.sides.kernels.sorter.order(np.concatenate([times, left_known, right_known]), kind)
        return Results(left[order], right[order])

    # -- compaction and state ------------------------------------------------------------------------

    def _compact(self) -> None:
        crowded = [store.crowded for store in self.stores]
        if not any(crowded) and not self.sides.crowded:
            return
        for side, store in enumerate(self.stores):
            self.decided[side] = max(self.decided[side] - store.first, 0)
            store.keep(np.arange(store.first, store.end))
        if self.sides.crowded:
            self.sides.forget_keys()
        self.sides.reset()
        self._relink()

    def _relink(self) -> None:
        """Make the lists of all keys anew."""
        held = self.hi >= 0, self.lo < 0
        for name, store, is_held in zip(("left", "right"), self.stores, held, strict=True):
            skipped = (
                store.flags if self.flags_alone and name == "left" else np.zeros(store.end + 1, np.uint8)
            )
            words = {"first": self.sides.words[f"{name}_first"], "last": self.sides.words[f"{name}_last"]}
            if is_held:
                given = {"keys": store.keys, "links": store.links, "flags": skipped, **words}
                self.link({**given, "begin": 0, "end": store.end})

    def restore(self, left: Rows, right: Rows, watermark: int) -> None:
        self._take(left, right)
        self.decided = [self._place(side, watermark, wait, 0) for side, wait in enumerate(self.wait)]
        if self.how == "inner":
            self._relink()
            return
        for pairs, _ in self._new_pairs((self.stores[0].rows(), self.stores[1].rows())):
            self._flag(pairs)
