"""Intervals of all partitions in order of time, by a merge instead of a sort (`operators/signals/kernels/interleave.py`).

It applies only if all points are known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa

from penstock.algorithms.sorted_partitions.partition import carried_view
from penstock.loop.abi import numbered
from penstock.operators.signals.points import Points, taken
from penstock.runtime.buffers import room, to_arrow, values_view
from penstock.runtime.kernels import Call
from penstock.runtime.threads import run_on_threads

Types = tuple[np.dtype, ...]

ROWS_WORTH_SORTING = 1 << 14  # with fewer, the cost of sorting is negligible
ROWS_OF_A_PARTITION = 16  # with fewer, a bucket visits more partitions than it finds runs
SLICES_PER_THREAD = 2
ROWS_PER_SLICE = 1 << 17
_ASKED = 1 << 12  # sampled points by which time is cut among threads
_LONGEST = 1 << 46  # ticks of a bucket


@dataclass(frozen=True)
class Interleaver:
    """Merges partitions; `interleave(types of points, types of partitions)` is a kernel with buckets of
    `capacity` runs.
    """

    part_of_partitions: Call
    interleave: Callable[[Types, Types], Call]
    capacity: int
    threads: int

    def merged(self, points: Points, keys: Sequence[pa.Array]) -> InterleavedRuns | None:
        """Return every point with a value as a run, by start; None if a sort is faster."""
        if (
            len(points) < max(ROWS_WORTH_SORTING, ROWS_OF_A_PARTITION * points.partitions)
            or points.partitions < 2
        ):
            return None
        of_points = _Columns(points.columns, len(points), defined=True)
        of_partitions = _Columns(_named(keys), points.partitions, defined=False)
        return _Merge(self, points, of_points, of_partitions).merged()


@dataclass(frozen=True)
class InterleavedRuns:
    """Runs in order of their starts, with keys and values."""

    start: np.ndarray
    end: np.ndarray
    keys: list[pa.Array]
    values: list[pa.Array]


class _Columns:
    """Columns of points or partitions: columns of fixed width are copied, others are gathered by index.

    `defined`: where all columns are null there is no run, so a single column has no nulls in runs.
    """

    def __init__(self, columns: Mapping[str, pa.Array], rows: int, *, defined: bool) -> None:
        self.columns = columns
        alone = defined and len(columns) == 1
        plain = {
            name: carried_view(_without_nulls(column) if alone else column)
            for name, column in columns.items()
        }
        self.plain = {name: array for name, array in plain.items() if array is not None}
        self.carried = list(self.plain.values())
        if len(self.plain) < len(columns):
            self.carried.append(np.arange(rows))

    @property
    def types(self) -> Types:
        return tuple(array.dtype for array in self.carried)

    def found(self, carried: Sequence[np.ndarray]) -> list[pa.Array]:
        """Return the columns of runs, from the copied arrays."""
        known = dict(zip(self.plain, carried, strict=False))
        return [
            to_arrow(known[name], None, column.type) if name in known else taken(column, carried[-1])
            for name, column in self.columns.items()
        ]


def _without_nulls(column: pa.Array) -> pa.Array:
    """Return a primitive column without its validity bitmap; return other columns unchanged."""
    if not column.null_count or pa.types.is_boolean(column.type) or not pa.types.is_primitive(column.type):
        return column
    return to_arrow(values_view(column), None, column.type)


def _named(keys: Sequence[pa.Array]) -> dict[str, pa.Array]:
    return {str(place): key for place, key in enumerate(keys)}


@dataclass
class _Slice:
    """The points of all partitions from one time to another, and the output range of their runs."""

    since: int
    before: int
    begins: np.ndarray
    ends: np.ndarray
    first: int = 0
    found: int = 0
    whole: bool = False


class _Merge:
    def __init__(self, by: Interleaver, points: Points, of_points: _Columns, of_partitions: _Columns) -> None:
        self.by, self.of_points, self.of_partitions = by, of_points, of_partitions
        self.partitions, self.rows = points.partitions, len(points)
        some = np.diff(points.bounds) > 0
        self.least = int(points.times[points.bounds[:-1][some]].min())
        self.most = int(points.times[points.bounds[1:][some] - 1].max())
        self.given: dict[str, object] = {
            "partitions": self.partitions, "rows": self.rows,
            "bounds": points.bounds, "times": points.times, "valid": points.defined.view(np.uint8),
        }  # fmt: skip
        self.slices = [
            _Slice(since, before, room(self.partitions), room(self.partitions))
            for since, before in pairwise(self._cuts(points.times))
        ]

    def merged(self) -> InterleavedRuns | None:
        run_on_threads([partial(self._count, slice_) for slice_ in self.slices], self.by.threads)
        for before, following in pairwise(self.slices):
            following.first = before.first + before.found
        total = self.slices[-1].first + self.slices[-1].found
        carried = [*self.of_points.carried, *self.of_partitions.carried]
        out = [room(total), room(total), *(room(total, array.dtype) for array in carried)]
        call = self.by.interleave(self.of_points.types, self.of_partitions.types)
        # Allocate here: the pool does not reuse memory that one thread allocates and another frees.
        given = [self._own(slice_, carried, out) for slice_ in self.slices]
        run_on_threads(
            [partial(self._fill, *work, call) for work in zip(self.slices, given, strict=True)],
            self.by.threads,
        )
        if not all(slice_.whole for slice_ in self.slices):
            return None
        start, end, *columns = out
        many = len(self.of_points.carried)
        return InterleavedRuns(
            start, end, self.of_partitions.found(columns[many:]), self.of_points.found(columns[:many])
        )

    def _cuts(self, times: np.ndarray) -> list[int]:
        """Return the times at which slices with about equally many points begin, and the end."""
        many = min(self.by.threads * SLICES_PER_THREAD, self.rows // ROWS_PER_SLICE)
        ends = [self.least, self.most + 1]
        if self.by.threads == 1 or many < 2:
            return ends
        asked = np.sort(times[np.linspace(0, self.rows - 1, _ASKED).astype(np.int64)])
        inner = asked[np.linspace(0, _ASKED - 1, many + 1).astype(np.int64)[1:-1]]
        return sorted({*ends, *map(int, inner)})

    def _count(self, this: _Slice) -> None:
        own = {"since": this.since, "before": this.before, "begins": this.begins, "ends": this.ends}
        this.found = self.by.part_of_partitions({**self.given, **own})

    def _fill(self, this: _Slice, own: Mapping[str, object], call: Call) -> None:
        this.whole = bool(call({**self.given, **own}))

    def _own(
        self, this: _Slice, carried: Sequence[np.ndarray], out: Sequence[np.ndarray]
    ) -> dict[str, object]:
        """Return the arguments of one slice."""
        length = 2 * self.by.capacity + 1
        scratch = {name: room(length) for name in ("words", "spare", "until", "counts")}
        columns: dict[str, object] = {"out_start": out[0], "out_end": out[1]}
        for place, (source, target) in enumerate(zip(carried, out[2:], strict=True)):
            columns[numbered("in", place)] = source
            columns[numbered("kept", place)] = room(length, source.dtype)
            columns[numbered("out", place)] = target
        usual = (this.before - this.since) * (self.by.capacity // 2) // max(this.found, 1)
        return {
            **scratch, **columns,
            "since": this.since, "before": this.before, "begins": this.begins, "ends": this.ends,
            "next": room(self.partitions), "first": this.first, "width": min(max(usual, 1), _LONGEST),
            "patience": 64 + 4 * this.found // self.by.capacity,
        }  # fmt: skip
