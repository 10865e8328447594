"""Sorted partitions: the rows of each key stored contiguously in time order, by a counting sort that also moves columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain, pairwise
from typing import TypeVar

import numpy as np
import pyarrow as pa

from penstock.algorithms.hash_table.keys import LARGEST_TABLE, SMALL, SPARSEST_KEYS, Indexer
from penstock.algorithms.sort.sorting import Sorter
from penstock.algorithms.sorted_partitions.rows import Rows, every_few, taken
from penstock.loop.abi import numbered
from penstock.runtime.buffers import indices, room, row_numbers, to_arrow, values_view
from penstock.runtime.kernels import Call
from penstock.runtime.threads import run_on_threads

_Found = TypeVar("_Found")
Fill = Callable[[tuple[np.dtype, ...], bool], Call]

# Fewer rows than this are not worth a second thread.
ROWS_PER_THREAD = 1 << 17
# With fewer partitions times columns, the cache lines that rows are written to stay in a core's private cache; with
# more, a chunk has too few rows per line for its order to matter.
FEWEST_LINES, MOST_LINES = 1 << 13, 1 << 18
CACHED_VALUES = 1 << 16  # values that stay in a core's private cache


@dataclass(frozen=True)
class Partitioner:
    """Partition rows; `count_partitions` and `fill_partitions(types, many)` are kernels.

    The kernel for many partitions sorts `chunk` rows at a time by groups of 2 ** `group_bits` partitions.
    """

    count_partitions: Call
    fill_partitions: Fill
    chunk: int
    group_bits: int
    threads: int

    def partition(self, partitions: np.ndarray, least: int = 0) -> Partition:
        """Count the rows of each partition, of which there are at least `least`; each thread takes a range of rows."""
        cuts = _stretches(len(partitions), self.threads)
        highest = (
            _of_stretches(lambda begin, end: int(partitions[begin:end].max()), cuts)
            if len(partitions)
            else [-1]
        )
        counts, first = np.zeros((2, len(cuts), max(max(highest) + 1, least)), np.int64)
        stretches = [
            {"partitions": partitions, "lo": begin, "hi": end, "counts": own, "first": seen}
            for (begin, end), own, seen in zip(cuts, counts, first, strict=True)
        ]
        run_on_threads([partial(self.count_partitions, stretch) for stretch in stretches])
        return Partition(stretches, counts, first, self)


def _stretches(rows: int, most: int) -> list[tuple[int, int]]:
    """Split rows into one range for each thread that has enough work."""
    threads = max(min(most, rows // ROWS_PER_THREAD), 1)
    return list(pairwise(np.linspace(0, rows, threads + 1).astype(int).tolist()))


@dataclass(frozen=True)
class Partition:
    """A stable sort of rows by partition. `counts` has the rows of each partition in each thread's range."""

    stretches: list[dict[str, object]]
    counts: np.ndarray
    seen: np.ndarray
    by: Partitioner

    @property
    def bounds(self) -> np.ndarray:
        """The begins of the non-empty partitions, and the end of the last."""
        total = self.counts.sum(axis=0)
        return np.concatenate([[0], np.cumsum(total)[total > 0]])

    @property
    def all_bounds(self) -> np.ndarray:
        """The begins and ends of all partitions, empty ones included."""
        return np.concatenate([[0], np.cumsum(self.counts.sum(axis=0))])

    @property
    def first(self) -> np.ndarray:
        """The first row of each non-empty partition."""
        used = self.counts.sum(axis=0) > 0
        stretch = np.argmax(self.counts[:, used] > 0, axis=0)
        found: np.ndarray = self.seen[:, used][stretch, np.arange(len(stretch))]
        return found

    def carried(self, columns: list[np.ndarray]) -> list[np.ndarray]:
        """The values of columns, by partition."""
        total = self.counts.sum(axis=0)
        places = (np.cumsum(total) - total) + np.cumsum(self.counts, axis=0) - self.counts
        made = [room(len(column), column.dtype) for column in columns]
        many = FEWEST_LINES <= len(total) * len(columns) <= MOST_LINES
        dtypes = tuple(column.dtype for column in columns)
        call = self.by.fill_partitions(dtypes, many)
        given = {numbered("in", place): column for place, column in enumerate(columns)}
        given |= {numbered("out", place): array for place, array in enumerate(made)}
        run_on_threads(
            [
                partial(call, {**stretch, **given, **(self._held(dtypes) if many else {}), "places": own})
                for stretch, own in zip(self.stretches, places, strict=True)
            ]
        )
        return made

    def _held(self, dtypes: tuple[np.dtype, ...]) -> dict[str, object]:
        """Memory in which one thread groups the rows of a chunk."""
        held = [room(self.by.chunk, dtype) for dtype in (np.dtype(np.int64), *dtypes)]
        groups = (self.counts.shape[1] >> self.by.group_bits) + 1
        return {
            **{numbered("held", place): array for place, array in enumerate(held)},
            "groups": groups,
            "ends": room(groups),
        }


def carried_views(column: pa.Array) -> list[np.ndarray] | None:
    """The values of a column of fixed width, which can be moved directly; with nulls, also a byte for each row that is none.

    >>> [view.tolist() for view in carried_views(pa.array([3, None, 5])) or ()][1]
    [1, 0, 1]
    """
    if not _is_plain(column.type):
        return None
    return [values_view(column), valid_bytes(column)] if column.null_count else [values_view(column)]


def carried_view(column: pa.Array) -> np.ndarray | None:
    """The values of a column of fixed width without nulls; None of others."""
    return values_view(column) if _is_plain(column.type) and not column.null_count else None


def _is_plain(dtype: pa.DataType) -> bool:
    plain = pa.types.is_integer(dtype) or pa.types.is_floating(dtype) or pa.types.is_temporal(dtype)
    return plain and dtype.bit_width in (8, 16, 32, 64)


def valid_bytes(column: pa.Array) -> np.ndarray:
    """A byte for each row of a column with nulls: 0 for null, else 1."""
    offset = column.offset
    bits = np.frombuffer(column.buffers()[0], np.uint8)[offset >> 3 : (offset + len(column) + 7) >> 3]
    first = offset & 7
    return np.unpackbits(bits, bitorder="little")[first : first + len(column)]


def _of_stretches(work: Callable[[int, int], _Found], stretches: list[tuple[int, int]]) -> list[_Found]:
    """The results of a function for each range, computed in parallel."""
    found: dict[int, _Found] = {}

    def run(place: int) -> None:
        found[place] = work(*stretches[place])

    run_on_threads([partial(run, place) for place in range(len(stretches))])
    return [found[place] for place in range(len(stretches))]


def dense_numbers(column: pa.Array, threads: int) -> np.ndarray | None:
    """Number keys by subtraction if they are integers in a small range; else None."""
    whole = pa.types.is_integer(column.type) or pa.types.is_temporal(column.type)
    if not whole or column.null_count or not len(column):
        return None
    values, stretches = values_view(column), _stretches(len(column), threads)
    ends = _of_stretches(lambda begin, end: _least_and_most(values[begin:end]), stretches)
    least, most = min(low for low, _ in ends), max(high for _, high in ends)
    limit = min(max(SPARSEST_KEYS * len(values), SMALL), LARGEST_TABLE)
    if values.dtype == np.int64 and least >= 0 and most < limit:
        return values  # unchanged: empty partitions cost little
    if most - least >= limit:
        return None
    numbers = room(len(values))
    origin = np.array(least, values.dtype).astype(np.int64)  # modulo 2^64, as the differences are

    def subtract(begin: int, end: int) -> None:
        np.subtract(values[begin:end], origin, out=numbers[begin:end], dtype=np.int64, casting="unsafe")

    _of_stretches(subtract, stretches)
    return numbers


def _least_and_most(values: np.ndarray) -> tuple[int, int]:
    """The minimum and the maximum in one pass over memory: each block stays in the cache for the second scan."""
    blocks = [values[begin : begin + CACHED_VALUES] for begin in range(0, len(values), CACHED_VALUES)]
    least, most = zip(*((block.min(), block.max()) for block in blocks), strict=True)
    return int(min(least)), int(max(most))


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
        (moments,) = partition.carried([row_numbers(len(numbers))])
        times, first = rows.times[order[moments]], order[partition.first]
        return SortedPartitions(rows, partition.bounds, times, order, lambda: moments, first)

    def _by_carrying(self, rows: Rows, numbers: np.ndarray) -> SortedPartitions:
        """Read ordered rows once, and scatter their columns to the partitions."""
        plain = {name: carried_views(rows.batch.column(name)) for name in self.columns}
        carried = {name: views for name, views in plain.items() if views is not None}
        partition = self.partitioner.partition(numbers)
        times, *values = partition.carried([rows.times, *chain.from_iterable(carried.values())])
        moved, columns = iter(values), {}
        for name, views in carried.items():
            value, valid = next(moved), next(moved) if len(views) > 1 else None
            columns[name] = to_arrow(value, valid, rows.batch.column(name).type)

        def ranking() -> np.ndarray:
            return partition.carried([row_numbers(len(rows))])[0]

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
