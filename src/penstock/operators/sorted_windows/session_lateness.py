"""Lateness of session rows: a row behind the watermark may join an open session, but not an emitted one.

Open sessions are derived from the buffered rows. The ends of emitted sessions are stored here, at most one per key,
while a row could still join both an open session and the emitted one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from penstock.algorithms.sorted_partitions.partitions import PartitionLayout, same_keys
from penstock.algorithms.sorted_partitions.rows import PendingRows, Rows
from penstock.runtime.buffers import indices, plain
from penstock.runtime.kernels import Call
from penstock.runtime.stage import END_OF_TIME, START_OF_TIME
from penstock.state.state_table import StateTable, integers, typed

LATE, CUT = 1, 2  # the kernel's results
_KEY = "key:"
FEW_ENDS = 1 << 10  # up to this many ends are kept without a search for obsolete ones


@dataclass(frozen=True)
class SessionEnds:
    """Ends of emitted sessions and their keys. `end` is START_OF_TIME if it has been dropped already.

    Sessions that end at or before `upto` were accounted for row by row, although they have not been emitted yet.
    """

    keys: list[pa.Array]
    end: np.ndarray
    upto: np.ndarray

    def __len__(self) -> int:
        return len(self.end)

    def chosen(self, which: np.ndarray) -> SessionEnds:
        if which.dtype == np.bool_:
            which = np.flatnonzero(which)
        return SessionEnds([key.take(indices(which)) for key in self.keys], self.end[which], self.upto[which])

    def followed_by(self, other: SessionEnds) -> SessionEnds:
        if not len(self) or not len(other):
            return self if len(self) else other
        keys = [pa.concat_arrays(pair) for pair in zip(self.keys, other.keys, strict=True)]
        joined = (np.concatenate(pair) for pair in ((self.end, other.end), (self.upto, other.upto)))
        return SessionEnds(keys, *joined)


@dataclass(frozen=True)
class Judged:
    """Which rows are late, and before which rows complete sessions must be emitted."""

    late: np.ndarray
    cuts: np.ndarray


@dataclass
class SessionLateness:
    """Lateness for sessions of one gap; `kernel` compiles operators/sorted_windows/kernels/session_lateness.py on first use: few runs need it."""

    gap: int
    layout: PartitionLayout
    kernel: Callable[[], Call]
    ends: SessionEnds = field(init=False)
    settled: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.ends = _no_ends()

    def judge(self, rows: Rows, marks: np.ndarray, waiting: PendingRows) -> Judged:
        """Decide lateness row by row; `marks` has the watermark at each row's arrival.

        Keys without a row behind the watermark are skipped, and so are the rows after the last such row.
        """
        behind = np.flatnonzero(rows.times < marks)
        fates = np.zeros(len(rows), np.uint8)
        if len(behind):
            upto = int(behind[-1]) + 1
            fates[:upto] = self._fates(rows.part(0, upto), marks[:upto], behind, waiting.rows)
        return Judged(fates == LATE, np.flatnonzero(fates == CUT))

    def _fates(self, rows: Rows, marks: np.ndarray, behind: np.ndarray, waiting: Rows) -> np.ndarray:
        self.ends = self._last_ends()
        near, far = self._within_reach(int(rows.times[behind].min()), waiting)
        keys = self._keys(rows.batch)
        come, held, old, known = self._numbers(
            (keys, len(rows)),
            *(self._held(waiting, side) for side in (near, far)),
            (self.ends.keys, len(self.ends)),
        )
        judged, first = np.unique(come[behind], return_index=True)
        in_come, in_held, in_old, in_known = (_among(group, judged) for group in (come, held, old, known))
        before = int(np.count_nonzero(in_held))
        ended, upto = np.full((2, len(judged)), START_OF_TIME)
        ended[np.searchsorted(judged, known[in_known])] = self.ends.end[in_known]
        earliest = np.full(len(judged), END_OF_TIME)
        np.minimum.at(earliest, np.searchsorted(judged, old[in_old]), waiting.times[far[in_old]])
        fates = self._run(
            np.searchsorted(judged, np.concatenate([held[in_held], come[in_come]])),
            np.concatenate([waiting.times[near[in_held]], rows.times[in_come]]),
            np.concatenate([np.full(before, START_OF_TIME), marks[in_come]]),
            {"ended": ended, "upto": upto, "earliest": earliest},
        )
        verdict = SessionEnds([key.take(indices(behind[first])) for key in keys], ended, upto)
        self.ends = self.ends.chosen(~in_known).followed_by(
            verdict.chosen((ended > START_OF_TIME) | (upto > START_OF_TIME))
        )
        found = np.zeros(len(rows), np.uint8)
        found[in_come] = fates[before:]
        return found

    def _within_reach(self, earliest: int, waiting: Rows) -> tuple[np.ndarray, np.ndarray]:
        """Positions of the buffered rows that affect rows from `earliest` on, and of older rows that a stored end still needs.

        No row from `earliest` on can reach a session that ended more than two gaps earlier.
        """
        since = max(earliest - 3 * self.gap, START_OF_TIME)
        limit = min(int(self.ends.end.max(initial=START_OF_TIME)) + self._twice, END_OF_TIME)
        times = waiting.times
        return np.flatnonzero(times >= since), np.flatnonzero((times < since) & (times <= limit))

    def _held(self, waiting: Rows, which: np.ndarray) -> tuple[Sequence[pa.Array], int]:
        chosen = [key.take(indices(which)) for key in self._columns(waiting.batch)]
        return same_keys([plain(key) for key in chosen]), len(which)

    def _run(
        self, keys: np.ndarray, times: np.ndarray, marks: np.ndarray, given: dict[str, np.ndarray]
    ) -> np.ndarray:
        """Number the (key, bucket) pairs, and run the kernel; `given` has the state of each key."""
        buckets = np.floor_divide(times, self.gap)
        order = np.lexsort((buckets, keys))
        new = np.ones(len(order), np.bool_)
        new[1:] = (np.diff(keys[order]) != 0) | (np.diff(buckets[order]) != 0)
        pairs = np.empty(len(order), np.int64)
        pairs[order] = np.cumsum(new) - 1
        first_of_pair = order[new]
        bounds = np.searchsorted(keys[first_of_pair], np.arange(len(given["ended"]) + 1))
        fates = np.zeros(len(times), np.uint8)
        rows = {"times": times, "marks": marks, "keys": keys, "pairs": pairs, "fates": fates}
        rows["safe"] = np.where(marks < START_OF_TIME + self.gap, START_OF_TIME, marks - self.gap)
        of_pairs = {"buckets": buckets[first_of_pair], "low": np.full(len(first_of_pair), END_OF_TIME)}
        of_pairs["high"] = np.full(len(first_of_pair), START_OF_TIME)
        of_keys = {"bounds": bounds, "front": bounds[1:].copy(), "reach": bounds[:-1].copy()}
        numbers = {
            "rows": len(times),
            "gap": self.gap,
            "twice": self._twice,
            "most": END_OF_TIME - self._twice,
        }
        self.kernel()({**rows, **of_pairs, **of_keys, **numbers, **given})
        return fates

    @property
    def _twice(self) -> int:
        return min(2 * self.gap, END_OF_TIME)

    # -- ends ----------------------------------------------------------------------------------------

    def note(self, rows: pa.RecordBatch, ends: np.ndarray) -> None:
        """Store the ends of emitted sessions, each given by one of its rows."""
        if len(ends):
            self.ends = self.ends.followed_by(
                SessionEnds(self._keys(rows), ends, np.full(len(ends), START_OF_TIME))
            )

    def crowded(self, watermark: int) -> bool:
        """Whether to drop ends: many have accumulated, or sessions decided row by row have been emitted."""
        emitted = (self.ends.upto > START_OF_TIME) & (self.ends.upto < watermark)
        return len(self.ends) > max(2 * self.settled, FEW_ENDS) or bool(emitted.any())

    def forget(self, waiting: Rows, watermark: int) -> None:
        """Drop the ends that no row can reach any more."""
        self.ends = self._remembered(waiting, watermark)
        self.settled = len(self.ends)

    def _remembered(self, waiting: Rows, watermark: int) -> SessionEnds:
        ends = self._last_ends()
        ends = SessionEnds(ends.keys, ends.end, np.where(ends.upto < watermark, START_OF_TIME, ends.upto))
        limits = np.where(ends.end > END_OF_TIME - self._twice, END_OF_TIME, ends.end + self._twice)
        near = (limits >= watermark) | (ends.upto > START_OF_TIME)
        if not near.all():
            held, known = self._numbers((self._keys(waiting.batch), len(waiting)), (ends.keys, len(ends)))
            earliest = np.full(int(max(held.max(initial=0), known.max())) + 1, END_OF_TIME)
            np.minimum.at(earliest, held, waiting.times)
            near |= earliest[known] <= limits
        return ends.chosen(near & ((ends.end > START_OF_TIME) | (ends.upto > START_OF_TIME)))

    def _last_ends(self) -> SessionEnds:
        """Keep the last end of each key; up to `upto`, the row-by-row decision takes precedence."""
        ends = self.ends
        (numbers,) = self._numbers((ends.keys, len(ends)))
        known, first, number = np.unique(numbers, return_index=True, return_inverse=True)
        if len(known) == len(ends):
            return ends
        upto, end = np.full((2, len(known)), START_OF_TIME)
        np.maximum.at(upto, number, ends.upto)
        counts = (ends.upto > START_OF_TIME) | (ends.end > upto[number])
        np.maximum.at(end, number[counts], ends.end[counts])
        return SessionEnds([key.take(indices(first)) for key in ends.keys], end, upto)

    def kept(self) -> StateTable:
        """The ends as a state table."""
        names = tuple(f"{_KEY}{name}" for name in self.layout.keys)
        arrays = [indices(self.ends.end), *self.ends.keys]
        return StateTable(pa.Table.from_arrays(arrays, names=["end", *names]), names, ("end",))

    def load(self, table: pa.Table, schema: pa.Schema) -> None:
        """Load saved ends."""
        end = integers(table, "end")
        keys = [typed(table, f"{_KEY}{name}", _plain(schema.field(name).type)) for name in self.layout.keys]
        self.ends = SessionEnds(keys, end, np.full(len(end), START_OF_TIME))

    # -- keys ----------------------------------------------------------------------------------------

    def _keys(self, rows: pa.RecordBatch) -> list[pa.Array]:
        return list(same_keys([plain(key) for key in self._columns(rows)]))

    def _columns(self, rows: pa.RecordBatch) -> list[pa.Array]:
        return [rows.column(name) for name in self.layout.keys]

    def _numbers(self, *several: tuple[Sequence[pa.Array], int]) -> list[np.ndarray]:
        """Number the keys of several sets of rows; equal keys get equal numbers."""
        some = [keys for keys, rows in several if rows]
        cuts = np.cumsum([rows for _, rows in several])
        if not self.layout.keys or not some:
            numbers = np.zeros(cuts[-1], np.int64)
        else:
            numbers = self.layout.number([pa.concat_arrays(parts) for parts in zip(*some, strict=True)])
        return np.split(numbers, cuts[:-1])


def _among(numbers: np.ndarray, some: np.ndarray) -> np.ndarray:
    """Which numbers occur in `some`; all are non-negative and at most a small multiple of the number of rows."""
    found = np.zeros(int(max(numbers.max(initial=0), some.max(initial=0))) + 1, np.bool_)
    found[some] = True
    chosen: np.ndarray = found[numbers]
    return chosen


def _plain(dtype: pa.DataType) -> pa.DataType:
    return dtype.value_type if pa.types.is_dictionary(dtype) else dtype


def _no_ends() -> SessionEnds:
    nothing = np.zeros(0, np.int64)
    return SessionEnds([], nothing, nothing)
