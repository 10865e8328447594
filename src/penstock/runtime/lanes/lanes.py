"""Lanes: the rows of each key side by side, in order of time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa

from penstock.loop.abi import numbered
from penstock.runtime.buffers import indices, to_arrow, values_view
from penstock.runtime.engine import run_on_threads
from penstock.runtime.indexer import Indexer
from penstock.runtime.keys import LARGEST, SMALL, SPARSEST
from penstock.runtime.lanes.rows import Rows, taken
from penstock.runtime.lanes.sorting import Sorter
from penstock.runtime.programs import Call

# Fewer rows than this are not worth a second thread.
ROWS_PER_THREAD = 1 << 17


@dataclass(frozen=True)
class Lanes:
    """Rows lane by lane. Lane i is rows bounds[i] … bounds[i + 1], in order of time.

    `places[r]` tells where row r is among the rows as they came, `moments[r]` ranks it in time among all;
    None where that is r itself. Columns are put into lanes when they are first asked for.
    """

    came: Rows
    bounds: np.ndarray
    places: np.ndarray | None
    moments: np.ndarray | None
    times: np.ndarray
    _columns: dict[str, pa.Array] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.times)

    @property
    def count(self) -> int:
        return len(self.bounds) - 1

    @property
    def fresh(self) -> np.ndarray:
        """Which rows no window has seen yet."""
        return self.came.fresh if self.places is None else self.came.fresh[self.places]

    def column(self, name: str) -> pa.Array:
        if name not in self._columns:
            column = self.came.batch.column(name)
            self._columns[name] = column if self.places is None else column.take(indices(self.places))
        return self._columns[name]

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

    def of_rows(self, rows: np.ndarray) -> np.ndarray:
        """The lane of each row."""
        lane: np.ndarray = np.searchsorted(self.bounds, rows, side="right") - 1
        return lane


@dataclass(frozen=True)
class Layout:
    """Puts rows into lanes by their keys; `columns` will be asked for, so they are carried along at once."""

    keys: tuple[str, ...]
    columns: tuple[str, ...]
    new_index: Callable[[int], Indexer]
    count_lanes: Call
    fill_lanes: Callable[[tuple[np.dtype, ...]], Call]
    sorter: Sorter
    threads: int

    def lanes(self, rows: Rows) -> Lanes:
        order = rows.order(self.sorter)
        if not self.keys:
            bounds = np.array([0, len(rows)] if len(rows) else [0], np.int64)
            return Lanes(rows, bounds, order, None, rows.times if order is None else rows.times[order])
        numbers = self._numbers(rows)
        if order is not None:
            return self._by_sorting(rows, order, numbers[order])
        return self._by_carrying(rows, numbers)

    def _by_sorting(self, rows: Rows, order: np.ndarray, numbers: np.ndarray) -> Lanes:
        """Rows that come out of order are sorted by time first, then fetched."""
        partition = self._partition(numbers, {})
        places = order[partition.order]
        return Lanes(rows, partition.bounds, places, partition.order, rows.times[places])

    def _by_carrying(self, rows: Rows, numbers: np.ndarray) -> Lanes:
        """Rows in order are read once, and their columns carried to where they belong."""
        plain = {name: _view(rows.batch.column(name)) for name in self.columns}
        carried = {name: each for name, each in plain.items() if each is not None}
        partition = self._partition(numbers, {"": rows.times, **carried})
        times, *values = partition.columns
        columns = {
            name: to_arrow(value, None, rows.batch.column(name).type)
            for name, value in zip(carried, values, strict=True)
        }
        return Lanes(rows, partition.bounds, partition.order, partition.order, times, columns)

    def _numbers(self, rows: Rows) -> np.ndarray:
        columns = [rows.batch.column(name) for name in self.keys]
        if len(columns) == 1:
            dense = _dense(columns[0])
            if dense is not None:
                return dense
        return self.new_index(len(columns)).number(columns)

    def _partition(self, lanes: np.ndarray, columns: dict[str, np.ndarray]) -> _Partition:
        """Sort rows by lane, keeping their order; each thread takes a stretch of them."""
        rows = len(lanes)
        threads = max(min(self.threads, rows // ROWS_PER_THREAD), 1)
        stretches = list(pairwise(np.linspace(0, rows, threads + 1).astype(int).tolist()))
        width = int(lanes.max()) + 1 if rows else 0
        counts = np.zeros((threads, width), np.int64)
        run_on_threads(
            [
                partial(self.count_lanes, {"lanes": lanes, "counts": own, "lo": begin, "hi": end})
                for own, (begin, end) in zip(counts, stretches, strict=True)
            ]
        )
        total = counts.sum(axis=0)
        ends = np.cumsum(total)
        places = (ends - total) + np.cumsum(counts, axis=0) - counts
        made = _Partition(
            np.empty(rows, np.int64),
            np.concatenate([[0], ends[total > 0]]),
            [np.empty(rows, each.dtype) for each in columns.values()],
        )
        fill = self.fill_lanes(tuple(each.dtype for each in columns.values()))
        given = {"lanes": lanes, "order": made.order}
        given |= {numbered("in", place): each for place, each in enumerate(columns.values())}
        given |= {numbered("out", place): each for place, each in enumerate(made.columns)}
        run_on_threads(
            [
                partial(fill, {**given, "places": own, "lo": begin, "hi": end})
                for own, (begin, end) in zip(places, stretches, strict=True)
            ]
        )
        return made


@dataclass(frozen=True)
class _Partition:
    """Rows by lane: their places before, where lanes that have rows begin, and columns carried along."""

    order: np.ndarray
    bounds: np.ndarray
    columns: list[np.ndarray]


def _view(column: pa.Array) -> np.ndarray | None:
    """The values of a column that can be carried as they are: of fixed width, none of them null."""
    dtype = column.type
    plain = pa.types.is_integer(dtype) or pa.types.is_floating(dtype) or pa.types.is_temporal(dtype)
    if not plain or column.null_count or dtype.bit_width not in (8, 16, 32, 64):
        return None
    return values_view(column)


def _dense(column: pa.Array) -> np.ndarray | None:
    """Number keys by subtraction, where they are whole numbers in a small range."""
    whole = pa.types.is_integer(column.type) or pa.types.is_temporal(column.type)
    if not whole or column.null_count or not len(column):
        return None
    values = values_view(column)
    least, most = int(values.min()), int(values.max())
    if most - least >= min(max(SPARSEST * len(values), SMALL), LARGEST):
        return None
    found: np.ndarray = values.astype(np.int64) - least
    return found


def same_keys(columns: Sequence[pa.Array]) -> Sequence[pa.Array]:
    """Let one value stand for equal ones: 0.0 for -0.0."""
    return [_canonical(column) for column in columns]


def _canonical(column: pa.Array) -> pa.Array:
    if not pa.types.is_floating(column.type):
        return column
    import pyarrow.compute as pc  # noqa: PLC0415 - float keys are rare

    return pc.add(column, pa.scalar(0.0, column.type))
