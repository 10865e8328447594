"""Intervals on which a signal has one value, from points across pushes, merged in order of time.

It applies only if all points are known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa

from penstock.algorithms.sort.sorting import Sorter
from penstock.algorithms.sorted_partitions.partitions import carried_view
from penstock.loop.abi import numbered
from penstock.operators.signals.points import Points, changes, defined, fetched, taken
from penstock.runtime.buffers import room, to_arrow, values_view
from penstock.runtime.kernels import Call
from penstock.runtime.stage import END_OF_TIME, START_OF_TIME
from penstock.runtime.threads import run_on_threads

Types = tuple[np.dtype, ...]

ROWS_WORTH_SORTING = 1 << 14  # with fewer, the cost of sorting is negligible
ROWS_OF_A_PARTITION = 16  # with fewer, a bucket visits more partitions than it finds runs
SLICES_PER_THREAD = 2
ROWS_PER_SLICE = 1 << 17
_SAMPLED = 1 << 12  # sampled points by which time is cut among threads
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
        sample = np.sort(times[np.linspace(0, self.rows - 1, _SAMPLED).astype(np.int64)])
        inner = sample[np.linspace(0, _SAMPLED - 1, many + 1).astype(np.int64)[1:-1]]
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


@dataclass(frozen=True)
class ValueRuns:
    """Stretches of partitions with one value; a run without an end yet is open."""

    partition: np.ndarray
    start: np.ndarray
    end: np.ndarray
    columns: Mapping[str, pa.Array]

    def __len__(self) -> int:
        return len(self.partition)

    def chosen(self, places: np.ndarray) -> ValueRuns:
        if len(places) == len(self) and bool((places[1:] > places[:-1]).all()):
            return self
        columns = {name: taken(column, places) for name, column in self.columns.items()}
        return ValueRuns(
            fetched(self.partition, places), fetched(self.start, places), fetched(self.end, places), columns
        )


def no_runs(schema: pa.Schema) -> ValueRuns:
    """Return no runs."""
    nothing = np.zeros(0, np.int64)
    return ValueRuns(nothing, nothing, nothing, {field.name: pa.nulls(0, field.type) for field in schema})


def advance(
    open_runs: ValueRuns, points: Points, emitted: np.ndarray, finish: Call, *, pieces: bool, ends: bool
) -> tuple[ValueRuns, ValueRuns]:
    """Extend open runs by the points that have become final; return the runs that ended, and those still open.

    Without `ends`, return the runs that have begun instead of those that ended.

    Adjacent points of one value form one run; with `pieces`, each mark begins a new run. Points before
    `emitted` were final, and were processed by an earlier call.
    """
    if everything(open_runs, points, emitted):
        if points.joined:
            return _all_runs(points, finish), open_runs
        begun = _Begun(points.bounds, points.times, points.marks, points.columns)
    else:
        begun = _followed(open_runs, points, emitted)
    bounds, starts = begun.bounds, begun.starts
    cuts = changes(list(begun.columns.values()), bounds[:-1])
    first = np.flatnonzero(cuts | begun.marks.view(np.bool_) if pieces else cuts)
    columns = {name: taken(column, first) for name, column in begun.columns.items()}
    runs_of = np.searchsorted(first, bounds)
    partitions = np.repeat(np.arange(len(bounds) - 1), np.diff(runs_of))
    starts = starts[first]
    last = np.zeros(len(first), np.bool_)
    last[runs_of[1:][np.diff(runs_of) > 0] - 1] = True
    end = np.append(starts[1:], END_OF_TIME)[: len(starts)]
    end[last] = END_OF_TIME
    runs = ValueRuns(partitions, starts, end, columns)
    known = defined(columns, len(first))
    final = last & (points.until[partitions] == END_OF_TIME)
    given = ~last | final if ends else starts >= emitted[partitions]
    return runs.chosen(np.flatnonzero(known & given)), runs.chosen(np.flatnonzero(known & last & ~final))


def everything(open_runs: ValueRuns, points: Points, emitted: np.ndarray) -> bool:
    """Whether the points are complete: nothing was emitted before, and nothing can follow."""
    return not len(open_runs) and bool(
        (emitted == START_OF_TIME).all() and (points.until == END_OF_TIME).all()
    )


def _all_runs(points: Points, finish: Call) -> ValueRuns:
    """Return every point with a value as a run that ends at the next point of its partition."""
    rows = len(points)
    out = {f"out_{name}": room(rows + 1) for name in ("partition", "place", "start", "end")}
    given = {"bounds": points.bounds, "times": points.times, "valid": points.defined.view(np.uint8)}
    found = finish({**given, **out, "partitions": points.partitions, "rows": rows})
    partition, place, start, end = (column[:found] for column in out.values())
    columns = points.columns if found == rows else {n: taken(c, place) for n, c in points.columns.items()}
    return ValueRuns(partition, start, end, columns)


@dataclass(frozen=True)
class _Begun:
    """Values by partition, each from its start until the next one."""

    bounds: np.ndarray
    starts: np.ndarray
    marks: np.ndarray
    columns: Mapping[str, pa.Array]


def _followed(open_runs: ValueRuns, points: Points, emitted: np.ndarray) -> _Begun:
    """Return open runs followed by the new points, by partition."""
    partition = np.repeat(np.arange(points.partitions), np.diff(points.bounds))
    places = np.flatnonzero((points.times >= emitted[partition]) & (points.times < points.until[partition]))
    partitions = np.concatenate([open_runs.partition, partition[places]])
    starts = np.concatenate([open_runs.start, points.times[places]])
    marks = np.concatenate([np.ones(len(open_runs), np.uint8), points.marks[places]])
    columns = {
        name: pa.concat_arrays([_like(open_runs.columns[name], column), taken(column, places)])
        for name, column in points.columns.items()
    }
    if (partitions[1:] < partitions[:-1]).any():
        order = np.argsort(partitions, kind="stable")  # stable: open runs precede new points
        partitions, starts, marks = partitions[order], starts[order], marks[order]
        columns = {name: taken(column, order) for name, column in columns.items()}
    return _Begun(np.searchsorted(partitions, np.arange(points.partitions + 1)), starts, marks, columns)


def _like(column: pa.Array, other: pa.Array) -> pa.Array:
    return column if column.type == other.type else column.cast(other.type)


def interval_batch(
    runs: ValueRuns, keys: Sequence[pa.Array], schema: pa.Schema, sorter: Sorter
) -> pa.RecordBatch:
    """Return ended runs as rows, by start; the end of an unbounded run is null."""
    if (runs.start[1:] < runs.start[:-1]).any():
        runs = runs.chosen(sorter.order(runs.start))  # stable: runs are in order of partition
    of_partitions = [taken(key, runs.partition) for key in keys]
    return batch_of_runs(runs.start, runs.end, [*of_partitions, *runs.columns.values()], schema)


def merged_batch(merged: InterleavedRuns, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch of runs that are already in order."""
    return batch_of_runs(merged.start, merged.end, [*merged.keys, *merged.values], schema)


def batch_of_runs(
    start: np.ndarray, end: np.ndarray, rest: Sequence[pa.Array], schema: pa.Schema
) -> pa.RecordBatch:
    """Return runs with their keys and values as rows; a schema without ends leaves them out."""
    moments = [moments_of(start, None, schema.field(0).type)]
    if len(schema) > 1 + len(rest):
        moments.append(moments_of(end, end != END_OF_TIME, schema.field(1).type))
    return pa.RecordBatch.from_arrays([*moments, *rest], schema=schema)


def moments_of(ticks: np.ndarray, there: np.ndarray | None, dtype: pa.DataType) -> pa.Array:
    """Return ticks as a column of times."""
    kind = "u" if pa.types.is_unsigned_integer(dtype) else "i"
    return to_arrow(ticks.astype(f"{kind}{dtype.bit_width // 8}", copy=False), there, dtype)
