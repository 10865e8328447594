"""Pairs of rows in windows that do not overlap: one side reduced to the keys of the other, measured window by window.

A side of fifty rows needs no numbering of a million keys of the other: one look-up in fifty keys for each row of
the larger side is left, and the algorithms work on the rows that may have a partner.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from penstock.algorithms.joins.joiner import Pairs
from penstock.algorithms.sorted_partitions.rows import Rows
from penstock.operators.joins.partitions import Numbers, PartitionKernels, find, lay, number_keys
from penstock.operators.joins.results import (
    NULL_ROW,
    Emitted,
    InWindows,
    JoinShape,
    Residual,
    Results,
    alone,
    completed,
    gives_left_rows,
    joined_pairs,
    left_rows,
    partnered,
    parts_of,
)
from penstock.operators.joins.windows import Placed, WindowKind, WindowRows
from penstock.runtime.buffers import values_view
from penstock.runtime.metrics import ChosenAlgorithm, JoinMetrics
from penstock.runtime.stage import END_OF_TIME, START_OF_TIME

Note = Callable[
    [ChosenAlgorithm, JoinMetrics, int], None
]  # the algorithm, its measurements, the number of windows
Part = TypeVar("Part", bound=Sized)


@dataclass(frozen=True)
class WindowReport:
    """Measures complete windows: a pair's latency is the time since the join of its window began."""

    note: Note
    clock: Callable[[], float] = time.perf_counter
    _noting: Lock = field(default_factory=Lock, compare=False)  # windows may end on several threads

    def parts(
        self, rows: int, chosen: Callable[[], ChosenAlgorithm], found: Iterator[Part], windows: int = 1
    ) -> Iterator[Part]:
        """Pass on the results of some windows part by part, and measure the time to find each part.

        `chosen` is called after the last part: some pairings choose an algorithm only while joining.
        """
        metrics, spent = JoinMetrics(rows=rows), 0.0
        while True:
            begin = self.clock()
            part = next(found, None)
            spent += self.clock() - begin
            if part is None:
                break
            metrics.add_all(spent, len(part))
            yield part
        metrics.seconds = spent
        with self._noting:
            self.note(chosen(), metrics, windows)


SMALLER = 16
"""How many times as many rows the larger side has, where it is reduced."""
LEAST_REDUCED_ROWS = 4_096
"""Fewer rows are joined faster than they are reduced."""
FEWEST_FLAGS = 1 << 16  # flags that always pay: they stay in a core's cache
_REDUCIBLE = {"inner": (0, 1), "semi": (0, 1), "left": (1,), "anti": (1,), "right": (0,)}
"""The sides whose rows without a partner are in no result, by kind of join."""


def _arrow() -> Any:
    """Import Arrow's compute functions on first use: loading takes 50 ms."""
    import pyarrow.compute  # noqa: PLC0415

    return pyarrow.compute


def reduced_sides(
    left: Rows, right: Rows, keys: tuple[tuple[str, ...], tuple[str, ...]], how: str
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return the rows of each side that may have a partner; None for all of them."""
    sides = left, right
    for side in _REDUCIBLE.get(how, ()):
        own, other = sides[side], sides[1 - side]
        if len(own) >= max(LEAST_REDUCED_ROWS, SMALLER * len(other)):
            found = _with_partner(own, other, keys[side], keys[1 - side])
            if found is not None:
                return (found, None) if side == 0 else (None, found)
    return None, None


def _with_partner(own: Rows, other: Rows, mine: Sequence[str], its: Sequence[str]) -> np.ndarray | None:
    """Select rows whose values of each key occur on the other side; None without a key that can be looked up."""
    found: np.ndarray | None = None
    for name, partner in zip(mine, its, strict=True):
        column, values = own.batch.column(name), other.batch.column(partner)
        if not _is_looked_up(column, values):
            continue
        among = column if found is None else column.take(pa.array(found))
        mask = _occurring(among, values)
        found = np.flatnonzero(mask) if found is None else found[mask]
    return found


def _occurring(column: pa.Array, values: pa.Array) -> np.ndarray:
    """Which values of a column occur among others: by an array of flags if these are integers in a small range."""
    own, other = (values_view(side) if _is_word(side) else None for side in (column, values))
    if own is not None and other is not None and len(other):
        least, most = int(other.min()), int(other.max())
        if most - least < max(FEWEST_FLAGS, len(column)) and least > np.iinfo(np.int64).min:
            flags = np.zeros(
                most - least + 3, np.bool_
            )  # the first and the last stand for all values outside
            flags[other - (least - 1)] = True
            return flags.take(own - (least - 1), mode="clip")  # differences may wrap, but not into the range
    found: np.ndarray = _arrow().is_in(column, value_set=values.unique()).to_numpy(zero_copy_only=False)
    return found


def _is_word(column: pa.Array) -> bool:
    return not column.null_count and (pa.types.is_int64(column.type) or pa.types.is_timestamp(column.type))


def _is_looked_up(column: pa.Array, values: pa.Array) -> bool:
    """Whether equal keys are equal values: not for floats (-0.0), and not between types."""
    dtype = column.type
    plain = pa.types.is_integer(dtype) or pa.types.is_temporal(dtype) or pa.types.is_string(dtype)
    return bool(plain and dtype == values.type)


def run_of(run: WindowRows, kept: tuple[np.ndarray | None, np.ndarray | None]) -> WindowRows:
    """Return the ranges of a window among the rows that were kept."""
    spans = [
        span if rows is None else (int(np.searchsorted(rows, span[0])), int(np.searchsorted(rows, span[1])))
        for span, rows in zip((run.left, run.right), kept, strict=True)
    ]
    return WindowRows(run.start, run.end, spans[0], spans[1])


IN_PARTITIONS = ChosenAlgorithm("partitions")


@dataclass(frozen=True)
class Batch:
    """The rows of complete windows: both sides, the rows' windows, and the numbers of their keys."""

    left: Rows
    right: Rows
    placed: tuple[Placed, Placed]
    numbers: Callable[[], Numbers]


class Pairing(Protocol):
    """Finds the pairs of rows with equal keys in a window, by left row."""

    def parts(self, batch: Batch) -> Iterator[Pairs]:
        """Yield pairs in parts, by left row."""

    def chosen(self) -> ChosenAlgorithm:
        """Return the algorithm that found the last pairs."""


@dataclass(frozen=True)
class PartitionPairing:
    """Pairs as ranges of partitions. With `carried`, windows are among the keys, so a partition is one window."""

    residual: Residual | None
    carried: bool
    kernels: PartitionKernels

    def chosen(self) -> ChosenAlgorithm:
        return IN_PARTITIONS

    def parts(self, batch: Batch) -> Iterator[Pairs]:
        kernels, numbers = self.kernels, batch.numbers()
        left = lay(numbers.left, numbers.partitions, batch.left.times, kernels)
        right = lay(numbers.right, numbers.partitions, batch.right.times, kernels)
        if self.carried:
            limits = np.full(left.rows, START_OF_TIME), np.full(left.rows, END_OF_TIME)
        else:
            own = batch.placed[0]
            limits = own.start[left.places], own.end[left.places] - 1
        return parts_of(find(left, right, limits, kernels), self.residual, batch.left, batch.right, kernels)


@dataclass(frozen=True)
class WindowMatcher(InWindows):
    """Joins in non-overlapping windows."""

    windows: WindowKind
    pairing: Pairing
    how: str
    keys: tuple[tuple[str, ...], tuple[str, ...]]
    shape: JoinShape
    kernels: PartitionKernels
    watch: WindowReport

    def emit(self, left: Rows, right: Rows, before: int, watermark: int) -> Emitted:
        known: list[Numbers] = []

        def numbers() -> Numbers:
            if not known:
                known.append(self._numbers(left, right))
            return known[0]

        placed = self.windows.place(left, right, numbers)
        done = [side.inside & self.windows.complete(side.end, watermark) for side in placed]
        kept = [side.inside & ~now for side, now in zip(placed, done, strict=True)]
        made = self._results(left, right, placed, done, numbers) if any(mask.any() for mask in done) else []
        return made, kept[0], kept[1]

    def completes(self, before: int, watermark: int) -> bool:
        return self.windows.completes(before, watermark)

    def _numbers(self, left: Rows, right: Rows) -> Numbers:
        return numbers_of(left, right, self.keys, self.kernels)

    def _results(
        self,
        left: Rows,
        right: Rows,
        placed: tuple[Placed, Placed],
        done: list[np.ndarray],
        numbers: Callable[[], Numbers],
    ) -> Iterable[pa.RecordBatch]:
        chosen = self._chosen(left, right, done)
        if chosen is None:
            batch = Batch(left, right, placed, numbers)
        else:
            left, right = left.chosen(chosen[0]), right.chosen(chosen[1])
            placed = placed[0].chosen(chosen[0]), placed[1].chosen(chosen[1])
            batch = Batch(left, right, placed, partial(self._numbers, left, right))
        found = arranged_parts(self.pairing.parts(batch), placed, self.how, self.kernels)
        windows = _how_many(placed)
        for results in self.watch.parts(len(left) + len(right), self.pairing.chosen, found, windows):
            yield from self.shape.batches(results, left, right, self.kernels.threads)

    def _chosen(self, left: Rows, right: Rows, done: list[np.ndarray]) -> list[np.ndarray] | None:
        """Select the rows of complete windows that may have a partner; None if these are all."""
        kept = reduced_sides(left, right, self.keys, self.how)
        if all(side.all() for side in done) and all(rows is None for rows in kept):
            return None
        return [
            np.flatnonzero(side) if rows is None else rows[side[rows]]
            for side, rows in zip(done, kept, strict=True)
        ]


def _how_many(placed: tuple[Placed, Placed]) -> int:
    """Count the windows of rows in order of time, on the side that has more."""
    return max(int(np.count_nonzero(np.diff(side.end))) + min(len(side.end), 1) for side in placed)


def numbers_of(
    left: Rows, right: Rows, keys: tuple[tuple[str, ...], tuple[str, ...]], kernels: PartitionKernels
) -> Numbers:
    """Number the keys of both sides."""
    columns = [
        [rows.batch.column(name) for name in names] for rows, names in zip((left, right), keys, strict=True)
    ]
    return number_keys(columns[0], columns[1], (len(left), len(right)), kernels)


def arranged_parts(
    parts: Iterator[Pairs], placed: tuple[Placed, Placed], how: str, kernels: PartitionKernels
) -> Iterator[Results]:
    """Yield the results of pairs part by part, if no result depends on another part; else all at once."""
    if how == "inner" and _sorted((placed[0].end, placed[0].start)):
        yield from (arranged(pairs, placed, how, kernels) for pairs in parts)
    else:
        yield arranged(joined_pairs(list(parts)), placed, how, kernels)


def arranged(pairs: Pairs, placed: tuple[Placed, Placed], how: str, kernels: PartitionKernels) -> Results:
    """Add the unmatched rows and order all results by window, rows with a left row first."""
    own, other = placed
    if gives_left_rows(how):
        rows = left_rows(how, partnered(len(own.start), pairs[0]))
        results = Results(*alone(rows, 0), own.start[rows], own.end[rows])
        return _in_order(results, np.zeros(len(rows), np.int64), kernels)
    (left, right), free, unmatched_rows = completed(how, pairs, (len(own.start), len(other.start)))
    start, end = (
        np.concatenate([mine[pairs[0]], mine[free], its[unmatched_rows]])
        for mine, its in ((own.start, other.start), (own.end, other.end))
    )
    return _in_order(Results(left, right, start, end), (left == NULL_ROW).astype(np.int64), kernels)


def _in_order(results: Results, kind: np.ndarray, kernels: PartitionKernels) -> Results:
    """Sort by window end and start, then results with a left row first, then by row; the sort is stable."""
    assert results.start is not None and results.end is not None
    own = np.where(results.left == NULL_ROW, results.right, results.left)
    keys = results.end, results.start, kind, own
    if _sorted(keys):
        return results
    return results.chosen(kernels.sorter.order(*keys))


def _sorted(keys: tuple[np.ndarray, ...]) -> bool:
    """Whether rows are in the order of several keys."""
    tied = np.ones(max(len(keys[0]) - 1, 0), np.bool_)
    for key in keys:
        if bool((tied & (key[1:] < key[:-1])).any()):
            return False
        tied &= key[1:] == key[:-1]
    return True
