"""Sorted partitions (`SortedPartitions`): the rows of each key stored contiguously, in time order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa

from penstock.algorithms.hash_table.indexer import Indexer
from penstock.algorithms.sort.sorting import Sorter
from penstock.algorithms.sorted_partitions.partition import Partitioner, carried_view, dense_numbers
from penstock.algorithms.sorted_partitions.rows import Rows, every_few, taken
from penstock.runtime.buffers import indices, to_arrow


@dataclass
class SortedPartitions:
    """Rows by partition. Partition i is rows bounds[i] … bounds[i + 1] - 1, in time order.

    `ranking()` computes the rank in time of each partitioned row among all rows; None if that is its position.
    `order` lists the arrival positions in time order; None if rows arrived in time order. `first` is the arrival
    position of each partition's first row. Columns and ranking are partitioned on first use: many windows need neither.
    """

    arrived_rows: Rows
    bounds: np.ndarray
    times: np.ndarray
    order: np.ndarray | None = None
    ranking: Callable[[], np.ndarray] | None = None
    first: np.ndarray | None = None
    columns: dict[str, pa.Array] = field(default_factory=dict)

    @cached_property
    def moments(self) -> np.ndarray | None:
        """The rank in time of each row among all rows; None if that is its position."""
        return None if self.ranking is None else self.ranking()

    @cached_property
    def places(self) -> np.ndarray | None:
        """The arrival position of each row; None if that is its position."""
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
        """Which rows no window has processed yet."""
        if self.all_fresh:
            return self.arrived_rows.fresh
        return self.arrived_rows.fresh if self.places is None else self.arrived_rows.fresh[self.places]

    @cached_property
    def seen(self) -> int:
        """The number of rows that a window has processed."""
        return self.arrived_rows.seen_before

    @property
    def all_fresh(self) -> bool:
        return self.seen == 0

    def times_at(self, begin: int, count: int, step: int, shift: int = 0) -> np.ndarray:
        """The times of every `step`-th row, shifted by some ticks."""
        return every_few(self.times, begin, count, step, shift)

    def column(self, name: str) -> pa.Array:
        if name not in self.columns:
            column = self.arrived_rows.column(name)
            self.columns[name] = column if self.places is None else column.take(indices(self.places))
        return self.columns[name]

    def batch(self, names: Sequence[str]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([self.column(name) for name in names], list(names))

    def rows(self, which: np.ndarray) -> np.ndarray:
        """The arrival positions of partitioned rows."""
        return which if self.places is None else self.places[which]

    def in_time(self, which: np.ndarray) -> np.ndarray:
        """The ranks in time of partitioned rows among all rows."""
        return which if self.moments is None else self.moments[which]

    def taken(self, which: np.ndarray) -> pa.RecordBatch:
        """Whole rows, by their positions in the partitions."""
        return taken(self.arrived_rows.batch, self.rows(which))

    def key_rows(self, lo: np.ndarray) -> np.ndarray:
        """The arrival position of a row with each frame's keys; `lo` has the frames' first rows, ascending."""
        if self.first is None:
            return self.rows(lo)
        frames = np.diff(np.searchsorted(lo, self.bounds))
        return np.repeat(self.first, frames)

    def of_rows(self, rows: np.ndarray) -> np.ndarray:
        """The partition of each row."""
        partition: np.ndarray = np.searchsorted(self.bounds, rows, side="right") - 1
        return partition


class InArrivalOrder(SortedPartitions):
    """All rows in one partition, in arrival order: no row is moved, and no time is read before it is needed."""

    def __init__(self, rows: Rows) -> None:
        self.arrived_rows, self.order, self.ranking, self.first, self.columns = rows, None, None, None, {}
        self.bounds = np.array([0, len(rows)] if len(rows) else [0], np.int64)

    @property
    def times(self) -> np.ndarray:  # type: ignore[override]  # partitions are read-only
        return self.arrived_rows.times

    def __len__(self) -> int:
        return len(self.arrived_rows)

    def times_at(self, begin: int, count: int, step: int, shift: int = 0) -> np.ndarray:
        return self.arrived_rows.times_at(begin, count, step, shift)


@dataclass(frozen=True)
class PartitionLayout:
    """Partition rows by their keys; `columns` are the ones that windows read, so they are partitioned at once."""

    keys: tuple[str, ...]
    columns: tuple[str, ...]
    new_index: Callable[[int], Indexer]
    partitioner: Partitioner
    sorter: Sorter
    threads: int

    def partitions(self, rows: Rows) -> SortedPartitions:
        order = rows.order(self.sorter, self.threads)
        if not self.keys and (order is None or not len(rows)):  # no partition is empty
            return InArrivalOrder(rows)
        if not self.keys:
            return SortedPartitions(rows, np.array([0, len(rows)]), rows.times[order], order)
        numbers = self.number([rows.batch.column(name) for name in self.keys])
        if order is not None:
            return self._by_sorting(rows, order, numbers[order])
        return self._by_carrying(rows, numbers)

    def _by_sorting(self, rows: Rows, order: np.ndarray, numbers: np.ndarray) -> SortedPartitions:
        """Sort out-of-order rows by time, then gather them."""
        partition = self.partitioner.partition(numbers)
        (moments,) = partition.carried([np.arange(len(numbers))])
        times, first = rows.times[order[moments]], order[partition.first]
        return SortedPartitions(rows, partition.bounds, times, order, lambda: moments, first)

    def _by_carrying(self, rows: Rows, numbers: np.ndarray) -> SortedPartitions:
        """Read ordered rows once, and scatter their columns to the partitions."""
        plain = {name: carried_view(rows.batch.column(name)) for name in self.columns}
        carried = {name: array for name, array in plain.items() if array is not None}
        partition = self.partitioner.partition(numbers)
        times, *values = partition.carried([rows.times, *carried.values()])
        columns = {
            name: to_arrow(value, None, rows.batch.column(name).type)
            for name, value in zip(carried, values, strict=True)
        }

        def ranking() -> np.ndarray:
            return partition.carried([np.arange(len(rows))])[0]

        return SortedPartitions(rows, partition.bounds, times, None, ranking, partition.first, columns)

    def number(self, columns: Sequence[pa.Array]) -> np.ndarray:
        """Number the keys of rows, given as columns."""
        if len(columns) == 1:
            dense = dense_numbers(columns[0], self.threads)
            if dense is not None:
                return dense
        return self.new_index(len(columns)).number(columns)


def same_keys(columns: Sequence[pa.Array]) -> Sequence[pa.Array]:
    """Normalise equal values: -0.0 becomes 0.0."""
    return [_canonical(column) for column in columns]


def _canonical(column: pa.Array) -> pa.Array:
    if not pa.types.is_floating(column.type):
        return column
    import pyarrow.compute as pc  # noqa: PLC0415 - float keys are rare

    return pc.add(column, pa.scalar(0.0, column.type))
