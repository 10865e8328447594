"""Result batches of pairs of rows: gathered columns, the residual condition, and rows without a partner.

Kernels gather values of 1, 2, 4 or 8 bytes without nulls; Arrow takes all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import ClassVar

import numpy as np
import pyarrow as pa

from penstock.algorithms.joins.joiner import Pairs, portions
from penstock.algorithms.sorted_partitions.results import check_range
from penstock.algorithms.sorted_partitions.rows import Rows
from penstock.loop.nodes import I32, I64, U8, U16, U32, U64, Type
from penstock.operators.joins.partitions import PartitionKernels, Ranges, blocks, expanded
from penstock.physical.nodes import JoinColumn
from penstock.runtime.buffers import indices, room, time_array, to_arrow, values_view
from penstock.runtime.kernels import Call
from penstock.runtime.stage import END_OF_TIME
from penstock.runtime.threads import run_on_threads
from penstock.types.windows import LEFT_ROW_KINDS

_BY_WIDTH = {1: U8, 2: U16, 4: U32, 8: U64}
_NUMPY = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
FEW_PAIRS = 1 << 15  # fewer pairs do not justify a second thread

Work = Callable[[int, int], object]  # a range of the pairs: from, to


@dataclass(frozen=True)
class Gather:
    """The gather kernels."""

    values: Callable[[Type, Type], Call]
    later: Callable[[Type], Call]

    def column(self, source: np.ndarray, places: np.ndarray) -> tuple[np.ndarray, Work]:
        """Return a buffer for the values at some indices, and the work that fills it."""
        width = source.dtype.itemsize
        out = room(len(places), source.dtype)
        call = self.values(_BY_WIDTH[width], place_type(places))
        same = _NUMPY[width]
        given = {"values": source.view(same), "places": places, "out": out.view(same)}
        return out, lambda lo, hi: call({**given, "lo": lo, "hi": hi})

    def later_of(
        self, times: tuple[np.ndarray, np.ndarray], pairs: tuple[np.ndarray, np.ndarray]
    ) -> tuple[np.ndarray, Work]:
        """Return a buffer for the later time of each pair, and the work that fills it."""
        out = room(len(pairs[0]))
        given = {"left": times[0], "right": times[1], "own": pairs[0], "other": pairs[1], "out": out}
        call = self.later(place_type(pairs[0]))
        return out, lambda lo, hi: call({**given, "lo": lo, "hi": hi})


def later_of(left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, Work]:
    """Return a buffer for the elementwise later time, and the work that fills it."""
    out = room(len(left))
    return out, lambda lo, hi: np.maximum(left[lo:hi], right[lo:hi], out=out[lo:hi])


def same_memory(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two arrays have the same type and address."""
    return one.dtype == other.dtype and one.__array_interface__["data"] == other.__array_interface__["data"]


def place_type(places: np.ndarray) -> Type:
    """Return the machine type of row indices."""
    return I32 if places.dtype == np.int32 else I64


def is_plain(array: pa.Array) -> bool:
    """Whether kernels can gather an array's values."""
    dtype = array.type
    simple = pa.types.is_integer(dtype) or pa.types.is_floating(dtype) or pa.types.is_temporal(dtype)
    return simple and not pa.types.is_interval(dtype) and not array.null_count


def share_out(work: Sequence[Work], rows: int, threads: int) -> None:
    """Run all work, with a portion of the pairs on each thread."""

    def portion(lo: int, hi: int) -> None:
        for gather in work:
            gather(lo, hi)

    run_on_threads([partial(portion, *span) for span in portions(rows, threads if rows >= FEW_PAIRS else 1)])


NULL_ROW = -1
MOST_PAIRS = 1 << 21  # filtered, and gathered into one batch, at a time

# Result batches, made lazily, and masks of the left and right rows to retain.
Emitted = tuple[Iterable[pa.RecordBatch], np.ndarray, np.ndarray]


# For each side, how long after a row's time a result with that time may still be emitted; None: never.
Waits = tuple[int | None, int | None]


class InWindows:
    """Joins that emit results when a window is complete: every pending row is in an open window and may match."""

    waits: ClassVar[Waits] = (END_OF_TIME, END_OF_TIME)


class RowByRow:
    """Joins that emit results without waiting for a window: every row before the watermark may have results."""

    def completes(self, before: int, watermark: int) -> bool:
        return True


@dataclass
class Results:
    """Ordered pairs: indices of left and right rows, NULL_ROW where there is none, and the bounds of their windows."""

    left: np.ndarray
    right: np.ndarray
    start: np.ndarray | None = None
    end: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.left)

    def chosen(self, which: np.ndarray) -> Results:
        bounds = [None if bound is None else bound[which] for bound in (self.start, self.end)]
        return Results(self.left[which], self.right[which], *bounds)

    def part(self, begin: int, end: int) -> Results:
        bounds = [None if bound is None else bound[begin:end] for bound in (self.start, self.end)]
        return Results(self.left[begin:end], self.right[begin:end], *bounds)


@dataclass(frozen=True)
class JoinShape:
    """The columns of a join's result, and the kernels that gather their values."""

    columns: tuple[JoinColumn, ...]
    schema: pa.Schema
    gather: Gather

    def batches(self, results: Results, left: Rows, right: Rows, threads: int) -> Iterator[pa.RecordBatch]:
        for begin in range(0, len(results), MOST_PAIRS):
            part = results.part(begin, begin + MOST_PAIRS)
            yield self._batch(part, left, right, threads)

    def rows_with(self, left: Rows, found: np.ndarray, right: Rows, threads: int) -> Iterator[pa.RecordBatch]:
        """Yield every left row, in order, with the right row found for it. Left columns are neither indexed nor copied."""
        for begin in range(0, len(found), MOST_PAIRS):
            places = found[begin : begin + MOST_PAIRS]
            rows = left.part(begin, begin + len(places))
            yield self._picked(
                Results(places, places), (_Picked(rows, None), _Picked(right, places)), threads
            )

    def _batch(self, results: Results, left: Rows, right: Rows, threads: int) -> pa.RecordBatch:
        return self._picked(results, (_Picked(left, results.left), _Picked(right, results.right)), threads)

    def _picked(self, results: Results, sides: tuple[_Picked, _Picked], threads: int) -> pa.RecordBatch:
        if not self.columns:
            return pa.RecordBatch.from_struct_array(pa.nulls(len(results), pa.struct([])))
        due = [
            self._due(column, results, *sides) for column in self.columns
        ]  # gathered columns precede the time column, which may reuse them
        share_out([work for _, work in due if work is not None], len(results), threads)
        arrays: list[pa.Array] = [None] * len(due)

        def fill(first: int, step: int) -> None:
            for place in range(first, len(due), step):
                arrays[place] = due[place][0]()

        step = min(threads, len(due)) if len(results) > 1 << 14 else 1
        run_on_threads([partial(fill, first, step) for first in range(step)])
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _due(self, column: JoinColumn, results: Results, left: _Picked, right: _Picked) -> _Due:
        """Return the function that makes a column, and the gather work that must run before it."""
        dtype = self.schema.field(column.name).type
        match column.origin:
            case "left":
                return self._fetched(left, column.source)
            case "right":
                return self._fetched(right, column.source)
            case "key" if left.there is None:
                return self._fetched(left, column.source)
            case "key":
                return partial(left.or_else, column.source, right, column.partner), None
            case "time":
                return self._later(left, right, dtype)
            case "start":
                return partial(_bound, results.start, dtype), None
            case _:
                return partial(_bound, results.end, dtype), None

    def _fetched(self, side: _Picked, name: str) -> _Due:
        array = side.rows.batch.column(name)
        if side.are_all:
            return lambda: array, None
        if side.there is not None or not is_plain(array):
            return partial(side.taken, name), None
        values = values_view(array)
        out, work = self.gather.column(values, side.places)
        if same_memory(values, side.rows.times):
            side.fetched_times = out
        return partial(to_arrow, out, None, array.type), work

    def _later(self, left: _Picked, right: _Picked, dtype: pa.DataType) -> _Due:
        if left.there is not None or right.there is not None:
            return lambda: time_array(np.maximum(left.times(), right.times()), dtype), None
        at_hand = left.times_at_hand(), right.times_at_hand()
        if at_hand[0] is not None and at_hand[1] is not None:
            out, work = later_of(at_hand[0], at_hand[1])
        else:
            times = np.ascontiguousarray(left.rows.times), np.ascontiguousarray(right.rows.times)
            out, work = self.gather.later_of(times, (left.places, right.places))
        return partial(time_array, out, dtype), work


_Due = tuple[Callable[[], pa.Array], Work | None]  # makes an array, after this work


def _bound(ticks: np.ndarray | None, dtype: pa.DataType) -> pa.Array:
    assert ticks is not None
    check_range(ticks, dtype)
    return time_array(ticks, dtype)


class _Picked:
    """Rows of one side selected by index (None: all of them, in order); NULL_ROW gives nulls."""

    def __init__(self, rows: Rows, places: np.ndarray | None) -> None:
        self.rows = rows
        self.whole = places is None
        self.places = np.zeros(0, np.int64) if places is None else np.ascontiguousarray(places)
        least = int(self.places.min()) if len(self.places) else 0
        self.there = None if least >= 0 else self.places >= 0
        self.fetched_times: np.ndarray | None = None  # set when a result column holds the row times

    @cached_property
    def index(self) -> pa.Array:
        dtype = pa.int32() if self.places.dtype == np.int32 else pa.int64()
        return to_arrow(self.places, self.there, dtype)

    @cached_property
    def are_all(self) -> bool:
        """Whether the selection is every row once and in order; the result then reuses the side's columns."""
        places = self.places
        if self.whole:
            return True
        if len(places) != len(self.rows) or not len(places) or places[0] or places[-1] != len(places) - 1:
            return False
        return bool((places[1:] > places[:-1]).all())

    def taken(self, name: str) -> pa.Array:
        column = self.rows.batch.column(name)
        if self.whole:
            return column
        if not len(column):
            return pa.nulls(len(self.places), column.type)
        return column.take(self.index)

    def times(self) -> np.ndarray:
        if self.whole:
            return self.rows.times
        if not len(self.rows):
            return np.full(len(self.places), np.iinfo(np.int64).min)
        times = self.rows.times[self.places]
        return times if self.there is None else np.where(self.there, times, np.iinfo(np.int64).min)

    def times_at_hand(self) -> np.ndarray | None:
        """The times of all pairs, if they need no gather of their own."""
        return self.rows.times if self.are_all else self.fetched_times

    def or_else(self, name: str, other: _Picked, partner: str) -> pa.Array:
        if self.there is None:
            return self.taken(name)
        rows = len(self.places)
        if rows < len(self.rows) + len(other.rows):
            both = pa.concat_arrays([self.taken(name), other.taken(partner)])
            return both.take(indices(np.arange(rows) + np.where(self.there, 0, rows)))
        both = pa.concat_arrays([self.rows.batch.column(name), other.rows.batch.column(partner)])
        places = np.where(self.there, self.places, len(self.rows) + other.places)
        return both.take(indices(places))


# --- residual -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Residual:
    """A residual condition on pairs. `columns` lists its inputs: the name in the condition, the side, the
    side's column.

    `holds` takes a batch of these columns with a number for each pair, and returns the numbers of the pairs
    that satisfy it.
    """

    columns: tuple[tuple[str, int, str], ...]
    number: str
    holds: Callable[[pa.RecordBatch], np.ndarray]

    def among(self, pairs: Pairs, left: Rows, right: Rows) -> np.ndarray:
        """Return the indices of the pairs that satisfy the condition."""
        sides = _Picked(left, pairs[0]), _Picked(right, pairs[1])
        arrays = [sides[side].taken(name) for _, side, name in self.columns]
        names = [name for name, _, _ in self.columns]
        numbers = indices(np.arange(len(pairs[0])))
        return self.holds(pa.RecordBatch.from_arrays([*arrays, numbers], [*names, self.number]))


def pairs_of(
    ranges: Ranges, residual: Residual | None, left: Rows, right: Rows, kernels: PartitionKernels
) -> Pairs:
    """Return the pairs of all ranges that satisfy the condition."""
    if residual is None:
        return expanded(ranges, 0, len(ranges.first), kernels)
    return joined_pairs(list(parts_of(ranges, residual, left, right, kernels)))


def parts_of(
    ranges: Ranges, residual: Residual | None, left: Rows, right: Rows, kernels: PartitionKernels
) -> Iterator[Pairs]:
    """Yield the pairs of all ranges that satisfy the condition, one block of left rows at a time."""
    for begin, end in blocks(ranges.counts, MOST_PAIRS):
        yield satisfying(expanded(ranges, begin, end, kernels), residual, left, right)


def satisfying(pairs: Pairs, residual: Residual | None, left: Rows, right: Rows) -> Pairs:
    """Return the pairs that satisfy the condition; without one, all pairs."""
    if residual is None or not len(pairs[0]):
        return pairs
    parts = []
    for begin in range(0, len(pairs[0]), MOST_PAIRS):
        own, other = (pair[begin : begin + MOST_PAIRS] for pair in pairs)
        kept = residual.among((own, other), left, right)
        parts.append((own[kept], other[kept]))
    return joined_pairs(parts)


def joined_pairs(several: Sequence[Pairs]) -> Pairs:
    if len(several) == 1:
        return several[0]
    nothing = [np.zeros(0, np.int64)]
    return np.concatenate([*nothing, *(own for own, _ in several)]), np.concatenate(
        [*nothing, *(other for _, other in several)]
    )


_PRESERVED = (("left", "full"), ("right", "full"))


def gives_left_rows(how: str) -> bool:
    """Return whether results are left rows alone (semi, anti)."""
    return how in LEFT_ROW_KINDS


def preserves(how: str, side: int) -> bool:
    """Return whether rows of a side (0 left, 1 right) without a partner are results, with nulls."""
    return how in _PRESERVED[side]


def alone(rows: np.ndarray, side: int) -> Pairs:
    """Pair rows of a side with the null row."""
    null_row = np.full(len(rows), NULL_ROW, rows.dtype)
    return (rows, null_row) if side == 0 else (null_row, rows)


def with_alone(pairs: Pairs, rows: np.ndarray, side: int) -> Pairs:
    """Append rows of a side without a partner to pairs."""
    left, right = (np.concatenate(both) for both in zip(pairs, alone(rows, side), strict=True))
    return left, right


def unmatched(rows: int, matched: np.ndarray) -> np.ndarray:
    """Return the indices of rows that are in no pair."""
    free = np.ones(rows, np.bool_)
    free[matched] = False
    return np.flatnonzero(free)


def partnered(rows: int, matched: np.ndarray) -> np.ndarray:
    """Return a mask of the rows that are in a pair."""
    found = np.zeros(rows, np.bool_)
    found[matched] = True
    return found


def left_rows(how: str, has_partner: np.ndarray, among: np.ndarray | None = None) -> np.ndarray:
    """Return the left rows that a semi or anti join gives: of all, or of the rows `among` that the mask describes.

    >>> left_rows("anti", np.array([True, False]), np.array([5, 7])).tolist()
    [7]
    """
    chosen = np.flatnonzero(has_partner == (how == "semi"))
    return chosen if among is None else among[chosen]


def completed(how: str, pairs: Pairs, rows: tuple[int, int]) -> tuple[Pairs, np.ndarray, np.ndarray]:
    """Append to pairs the rows of both sides that `how` preserves; return these left and right rows, too."""
    free = [
        unmatched(count, own) if preserves(how, side) else own[:0]
        for side, (count, own) in enumerate(zip(rows, pairs, strict=True))
    ]
    for side in (0, 1):
        pairs = with_alone(pairs, free[side], side) if len(free[side]) else pairs
    return pairs, free[0], free[1]
