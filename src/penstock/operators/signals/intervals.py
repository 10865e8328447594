"""Intervals on which a signal has one value, from points, across pushes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.algorithms.sort.sorting import Sorter
from penstock.operators.signals.interleaving import InterleavedRuns
from penstock.operators.signals.points import Points, changes, defined, fetched, taken
from penstock.runtime.buffers import room, to_arrow
from penstock.runtime.kernels import Call
from penstock.runtime.stage import END_OF_TIME, START_OF_TIME


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
