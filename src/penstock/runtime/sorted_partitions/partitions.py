"""Lanes: the rows of each key side by side, in order of time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa

from penstock.runtime.buffers import indices, to_arrow
from penstock.runtime.indexer import Indexer
from penstock.runtime.sorted_partitions.partition import Partitioner, carried_view, dense_numbers
from penstock.runtime.sorted_partitions.rows import Rows, every_few, taken
from penstock.runtime.sorted_partitions.sorting import Sorter


@dataclass
class Lanes:
    """Rows lane by lane. Lane i is rows bounds[i] … bounds[i + 1], in order of time.

    `ranking()` ranks the rows of lanes in time, among all; None where they lie so. `order` has the rows as they
    came in order of time; None where they came so. `first` tells where each lane's first row came. Columns are put
    into lanes when they are first asked for, and so is the ranking: many windows need neither.
    """

    came: Rows
    bounds: np.ndarray
    times: np.ndarray
    order: np.ndarray | None = None
    ranking: Callable[[], np.ndarray] | None = None
    first: np.ndarray | None = None
    columns: dict[str, pa.Array] = field(default_factory=dict)

    @cached_property
    def moments(self) -> np.ndarray | None:
        """The rank of each row in time, among all; None where that is its place."""
        return None if self.ranking is None else self.ranking()

    @cached_property
    def places(self) -> np.ndarray | None:
        """Where each row is among the rows as they came; None where that is its place."""
        if self.moments is None or self.order is None:
            return self.order if self.moments is None else self.moments
        found: np.ndarray = self.order[self.moments]
        return found

    def __len__(self) -> int:
        return len(self.times)

    @property
    def count(self) -> int:
        return len(self.bounds) - 1

    @property
    def fresh(self) -> np.ndarray:
        """Which rows no window has seen yet."""
        if self.all_fresh:
            return self.came.fresh
        return self.came.fresh if self.places is None else self.came.fresh[self.places]

    @cached_property
    def seen(self) -> int:
        """How many rows a window has seen."""
        return self.came.seen_before

    @property
    def all_fresh(self) -> bool:
        return self.seen == 0

    def times_at(self, begin: int, count: int, step: int, shift: int = 0) -> np.ndarray:
        """The times of every `step`-th row of lanes, moved by some ticks."""
        return every_few(self.times, begin, count, step, shift)

    def column(self, name: str) -> pa.Array:
        if name not in self.columns:
            column = self.came.column(name)
            self.columns[name] = column if self.places is None else column.take(indices(self.places))
        return self.columns[name]

    def batch(self, names: Sequence[str]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([self.column(name) for name in names], list(names))

    def rows(self, which: np.ndarray) -> np.ndarray:
        """Where rows of lanes are among the rows as they came."""
        return which if self.places is None else self.places[which]

    def in_time(self, which: np.ndarray) -> np.ndarray:
        """Rank rows of lanes in time, among all."""
        return which if self.moments is None else self.moments[which]

    def taken(self, which: np.ndarray) -> pa.RecordBatch:
        """Whole rows, by their places in lanes."""
        return taken(self.came.batch, self.rows(which))

    def key_rows(self, lo: np.ndarray) -> np.ndarray:
        """A row as it came for each frame, with the frame's keys; frames are given by their first rows, rising."""
        if self.first is None:
            return self.rows(lo)
        frames = np.diff(np.searchsorted(lo, self.bounds))
        return np.repeat(self.first, frames)

    def of_rows(self, rows: np.ndarray) -> np.ndarray:
        """The lane of each row."""
        lane: np.ndarray = np.searchsorted(self.bounds, rows, side="right") - 1
        return lane


class AsCame(Lanes):
    """All rows in one lane, in the order they came: nothing is moved, and no time is looked at before it is needed."""

    def __init__(self, rows: Rows) -> None:
        self.came, self.order, self.ranking, self.first, self.columns = rows, None, None, None, {}
        self.bounds = np.array([0, len(rows)] if len(rows) else [0], np.int64)

    @property
    def times(self) -> np.ndarray:  # type: ignore[override]  # nobody writes to lanes
        return self.came.times

    def __len__(self) -> int:
        return len(self.came)

    def times_at(self, begin: int, count: int, step: int, shift: int = 0) -> np.ndarray:
        return self.came.times_at(begin, count, step, shift)


@dataclass(frozen=True)
class Layout:
    """Puts rows into lanes by their keys; `columns` will be asked for, so they are carried along at once."""

    keys: tuple[str, ...]
    columns: tuple[str, ...]
    new_index: Callable[[int], Indexer]
    partitioner: Partitioner
    sorter: Sorter
    threads: int

    def lanes(self, rows: Rows) -> Lanes:
        order = rows.order(self.sorter, self.threads)
        if not self.keys and (order is None or not len(rows)):  # no lane is empty
            return AsCame(rows)
        if not self.keys:
            return Lanes(rows, np.array([0, len(rows)]), rows.times[order], order)
        numbers = self.number([rows.batch.column(name) for name in self.keys])
        if order is not None:
            return self._by_sorting(rows, order, numbers[order])
        return self._by_carrying(rows, numbers)

    def _by_sorting(self, rows: Rows, order: np.ndarray, numbers: np.ndarray) -> Lanes:
        """Rows that come out of order are sorted by time first, then fetched."""
        partition = self.partitioner.partition(numbers)
        (moments,) = partition.carried([np.arange(len(numbers))])
        times, first = rows.times[order[moments]], order[partition.first]
        return Lanes(rows, partition.bounds, times, order, lambda: moments, first)

    def _by_carrying(self, rows: Rows, numbers: np.ndarray) -> Lanes:
        """Rows in order are read once, and their columns carried to where they belong."""
        plain = {name: carried_view(rows.batch.column(name)) for name in self.columns}
        carried = {name: each for name, each in plain.items() if each is not None}
        partition = self.partitioner.partition(numbers)
        times, *values = partition.carried([rows.times, *carried.values()])
        columns = {
            name: to_arrow(value, None, rows.batch.column(name).type)
            for name, value in zip(carried, values, strict=True)
        }

        def ranking() -> np.ndarray:
            return partition.carried([np.arange(len(rows))])[0]

        return Lanes(rows, partition.bounds, times, None, ranking, partition.first, columns)

    def number(self, columns: Sequence[pa.Array]) -> np.ndarray:
        """Number the keys of rows, which are the values of some columns."""
        if len(columns) == 1:
            dense = dense_numbers(columns[0], self.threads)
            if dense is not None:
                return dense
        return self.new_index(len(columns)).number(columns)


def same_keys(columns: Sequence[pa.Array]) -> Sequence[pa.Array]:
    """Let one value stand for equal ones: 0.0 for -0.0."""
    return [_canonical(column) for column in columns]


def _canonical(column: pa.Array) -> pa.Array:
    if not pa.types.is_floating(column.type):
        return column
    import pyarrow.compute as pc  # noqa: PLC0415 - float keys are rare

    return pc.add(column, pa.scalar(0.0, column.type))
