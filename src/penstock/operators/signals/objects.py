"""One step per temporal object: it computes the object's points from the points of its inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from penstock.algorithms.sorted_partitions.frames import Frames
from penstock.algorithms.sorted_partitions.partitions import SortedPartitions
from penstock.errors import WindowError
from penstock.operators.signals.accesses import Objects, Reading, Walked
from penstock.operators.signals.points import Points, changes, defined, only_where, taken
from penstock.runtime.buffers import to_arrow
from penstock.runtime.kernels import Call
from penstock.runtime.stage import END_OF_TIME

MOST_POINTS = 1 << 33  # a grid with more points would not fit in memory


BEGINNING_OF_KEYS = "beginning"  # the object with a point at the first sample of each key, and no values


class ObjectStep(Protocol):
    """Computes one object from others."""

    def points(self, objects: Objects) -> Points: ...


@dataclass(frozen=True)
class ObjectReductions:
    """Reductions over samples of one object: `reduce(partitions, frames of each span)`.

    `columns` names the results; `counts_none` marks reductions that count empty frames, where the result is
    null.
    """

    source: str
    spans: tuple[int, ...]
    columns: tuple[str, ...]
    own_spans: tuple[int, ...]
    counts_none: tuple[bool, ...]
    reduce: Callable[[SortedPartitions, Sequence[Frames]], list[pa.Array]]


@dataclass(frozen=True)
class FieldInputs:
    """Gathers the input columns of fields."""

    reading: Reading
    reducing: tuple[ObjectReductions, ...]

    def batch(self, walked: Walked, objects: Objects) -> pa.RecordBatch:
        columns: dict[str, pa.Array] = {}
        for access, places in zip(self.reading.accesses, walked.places, strict=False):
            for name, column in access.columns:
                columns[name] = taken(objects[access.source].columns[column], places)
        for reducing in self.reducing:
            frames = [walked.frames[span] for span in reducing.spans]
            made = reducing.reduce(objects[reducing.source].samples, frames)
            for name, own, array, counts in zip(
                reducing.columns, reducing.own_spans, made, reducing.counts_none, strict=True
            ):
                some = frames[own].lo < frames[own].hi if counts else None
                columns[name] = array if some is None else only_where(array, some)
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


@dataclass(frozen=True)
class ExpressionStep:
    """Fields over all inputs, from change to change."""

    scope: FieldInputs
    fields: Callable[[pa.RecordBatch], pa.RecordBatch]

    def points(self, objects: Objects) -> Points:
        walked = self.scope.reading.walk(objects)
        made = self.fields(self.scope.batch(walked, objects))
        columns = dict(zip(made.schema.names, made.columns, strict=True))
        return Points(walked.bounds, walked.times, walked.marks, columns, walked.until)


def located(
    call: Call,
    instant_bounds: np.ndarray,
    instants: np.ndarray,
    bounds: np.ndarray,
    times: np.ndarray,
    shift: int = 0,
) -> np.ndarray:
    """Return the index of the last point up to `shift` before each instant, in the same partition, or -1."""
    out = np.empty(len(instants), np.int64)
    call(
        {
            "partitions": len(bounds) - 1,
            "shift": shift,
            "instants": instants,
            "instant_bounds": instant_bounds,
            "times": times,
            "bounds": bounds,
            "out": out,
        }
    )
    return out


@dataclass(frozen=True)
class ResampleStep:
    """A sample at every multiple of a step: between two marks, or up to the last event, where something holds there."""

    source: str
    every: int
    linear: bool
    max_gap: int | None
    locate: Call

    def points(self, objects: Objects) -> Points:
        source = objects[self.source]
        marked, events = source.marked, _events(source)
        bounds, instants = multiples(marked if self.linear else _from_first_mark(marked, events), self.every)
        before = located(self.locate, bounds, instants, marked.bounds, marked.times)
        columns = (self._between if self.linear else self._last)(source, bounds, instants, before)
        return _closed(bounds, instants, columns, self.every, self._until(marked if self.linear else events))

    def _until(self, events: Points) -> np.ndarray:
        """What lies behind the last final event depends on the next one, unless nothing can be there."""
        until, last = events.until, events.last_final()
        following = np.minimum(until, _next_multiple(last, self.every))
        over = np.zeros(len(until), np.bool_) if self.linear else events.ceased()
        if self.max_gap is not None:
            over = over | (until - last > self.max_gap)
        return np.where((until == END_OF_TIME) | over, until, following)

    def _between(
        self, source: Points, bounds: np.ndarray, instants: np.ndarray, before: np.ndarray
    ) -> dict[str, pa.Array]:
        marked = source.marked
        on_mark = marked.times[before] == instants
        after = np.where(on_mark, before, before + 1)
        gap = marked.times[after] - marked.times[before]
        near = np.ones(len(gap), np.bool_) if self.max_gap is None else gap <= self.max_gap
        share = (instants - marked.times[before]) / np.where(gap == 0, 1, gap)
        made = {}
        for name, column in marked.columns.items():
            first, second = taken(column, before), taken(column, after)
            low, high = (_floats(operand) for operand in (first, second))
            with np.errstate(invalid="ignore", over="ignore"):  # infinities make NaN
                values = np.where(share == 0.0, low, low + (high - low) * share)
            valid = near & _valid(first) & _valid(second)
            made[name] = to_arrow(values.astype(column.type.to_pandas_dtype()), valid, column.type)
        return made

    def _last(
        self, source: Points, bounds: np.ndarray, instants: np.ndarray, before: np.ndarray
    ) -> dict[str, pa.Array]:
        held = located(self.locate, bounds, instants, source.bounds, source.times)
        if self.max_gap is not None:
            near = instants - source.marked.times[before] <= self.max_gap
            held = np.where(near, held, -1)
        return {name: taken(column, held) for name, column in source.columns.items()}


def multiples(marked: Points, every: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the multiples of a step between the first and the last mark of each partition."""
    some = np.diff(marked.bounds) > 0
    first, last = np.zeros(marked.partitions, np.int64), np.full(marked.partitions, -1, np.int64)
    first[some] = -(-marked.times[marked.bounds[:-1][some]] // every)
    last[some] = marked.times[marked.bounds[1:][some] - 1] // every
    counts = np.maximum(last - first + 1, 0)
    if counts.sum() > MOST_POINTS:
        raise WindowError(
            f"a sample every {every} ticks would give {int(counts.sum()):,} of them; use a longer step"
        )
    bounds = np.concatenate([[0], np.cumsum(counts)])
    place = np.arange(int(bounds[-1])) - np.repeat(bounds[:-1], counts)
    return bounds, (np.repeat(first, counts) + place) * every


def _next_multiple(times: np.ndarray, every: int) -> np.ndarray:
    found: np.ndarray = times - times % every + every
    return found


def _closed(
    bounds: np.ndarray, instants: np.ndarray, columns: dict[str, pa.Array], every: int, until: np.ndarray
) -> Points:
    """The instants that have values, as samples, each ended after one step unless the next follows it."""
    known = np.flatnonzero(defined(columns, len(instants)))
    follows = np.zeros(len(known), np.bool_)
    follows[:-1] = known[1:] == known[:-1] + 1
    lasts = np.searchsorted(known, bounds[1:]) - 1
    follows[lasts[lasts >= 0]] = False
    places = np.repeat(known, 2 - follows)
    is_end = np.zeros(len(places), np.bool_)
    is_end[1:] = places[1:] == places[:-1]
    return Points(
        np.searchsorted(places, bounds),
        instants[places] + np.where(is_end, every, 0),
        (~is_end).astype(np.uint8),
        {name: taken(column, np.where(is_end, -1, places)) for name, column in columns.items()},
        until,
    )


def _from_first_mark(marked: Points, events: Points) -> Points:
    """The first mark and the last event of each partition that has marks: a grid lies between them."""
    some = np.diff(marked.bounds) > 0
    first, last = marked.bounds[:-1][some], events.bounds[1:][some] - 1
    times = np.stack([marked.times[first], events.times[last]], axis=1).ravel()
    bounds = np.concatenate([[0], np.cumsum(np.where(some, 2, 0))])
    return Points(bounds, times, np.ones(len(times), np.uint8), {}, events.until)


def _floats(column: pa.Array) -> np.ndarray:
    filled: np.ndarray = column.fill_null(0.0).to_numpy(zero_copy_only=False)
    return filled.astype(np.float64)


def _valid(column: pa.Array) -> np.ndarray:
    found: np.ndarray = column.is_valid().to_numpy(zero_copy_only=False)
    return found


@dataclass(frozen=True)
class ChopStep:
    """The same value with more marks: on a grid, at the marks of another object, or at every change."""

    source: str
    every: int | None
    reading: Reading
    grid: str
    duration: str | None

    def points(self, objects: Objects) -> Points:
        source = objects[self.source]
        events = _events(source)
        read = {**objects, self.grid: self._grid(events)}
        walked = self.reading.walk(read)
        until = walked.until
        if self.every is not None:
            until = np.minimum(until, self._marked_until(events))
        columns = {name: taken(column, walked.places[0]) for name, column in source.columns.items()}
        made = Points(walked.bounds, walked.times, walked.marks, columns, until)
        return made if self.duration is None else self._timed(made)

    @staticmethod
    def _marked_until(events: Points) -> np.ndarray:
        """Up to when the multiples are known to be marks: to the last final event, on where nothing holds behind it."""
        until, last = events.until, events.last_final()
        return np.where((until == END_OF_TIME) | (last == until) | events.ceased(), until, last + 1)

    def _grid(self, events: Points) -> Points:
        """The multiples of the step at which something holds, as marks and nothing else."""
        if self.every is None:
            nowhere = np.zeros(events.partitions + 1, np.int64)
            return Points(nowhere, np.zeros(0, np.int64), np.zeros(0, np.uint8), {}, events.until)
        bounds, instants = multiples(_stretches(events), self.every)
        of_partitions = bounds[events.bounds]
        return Points(of_partitions, instants, np.ones(len(instants), np.uint8), {}, events.until)

    def _timed(self, points: Points) -> Points:
        """Leave the pieces alone, each a mark, beside how long it lasts; the last of a partition is open."""
        points = _events(points)
        lasting = np.append(points.times[1:], 0) - points.times
        ends = points.bounds[1:][np.diff(points.bounds) > 0] - 1
        known = points.defined.copy()
        known[ends] = False
        assert self.duration is not None
        columns = {**points.columns, self.duration: to_arrow(lasting, known, pa.int64())}
        open_since = np.where(points.ceased(), points.until, points.last_final())
        until = np.where(points.until == END_OF_TIME, END_OF_TIME, open_since)
        return Points(points.bounds, points.times, np.ones(len(points), np.uint8), columns, until)


def _events(points: Points) -> Points:
    """The points that are marks, or at which the value changes; the first of a partition always."""
    changed = changes(list(points.columns.values()), points.bounds[:-1])
    return points.chosen(np.flatnonzero(changed | points.marks.view(np.bool_)))


def _stretches(events: Points) -> Points:
    """The first and the last instant before the next event, for each event; only itself behind the last of a partition."""
    until = np.append(events.times[1:], 0) - 1
    last = events.bounds[1:][np.diff(events.bounds) > 0] - 1
    until[last] = events.times[last]
    known = events.defined
    times = np.stack([events.times[known], until[known]], axis=1).ravel()
    bounds = np.concatenate([[0], np.cumsum(np.where(known, 2, 0))])
    return Points(bounds, times, np.ones(len(times), np.uint8), {}, np.zeros(len(events), np.int64))


@dataclass(frozen=True)
class HeldStep:
    """The value at the samples of another object, each held until the next."""

    source: str
    clock: str
    locate: Call

    def points(self, objects: Objects) -> Points:
        source, ticks = objects[self.source], objects[self.clock].samples
        places = located(self.locate, ticks.bounds, ticks.times, source.bounds, source.times)
        columns = {name: taken(column, places) for name, column in source.columns.items()}
        until = np.minimum(source.until, objects[self.clock].until)
        return Points(ticks.bounds, ticks.times, np.ones(len(ticks), np.uint8), columns, until)
