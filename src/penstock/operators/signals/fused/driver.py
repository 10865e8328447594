"""Run the fused kernel of an expression, from points to points; threads split partitions or time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa

from penstock.algorithms.kernel_factory import BatchArguments
from penstock.loop.abi import ERRORS, WORDS, Binding, numbered
from penstock.loop.nodes import Type
from penstock.operators.signals.accesses import (
    FIRST,
    Cut,
    Objects,
    SignalAccess,
    SpanReading,
    cuts_of,
    final_until,
    whole_bounds,
)
from penstock.operators.signals.objects import ObjectStep
from penstock.operators.signals.points import Points
from penstock.runtime.buffers import column_type, filled, room, to_arrow
from penstock.runtime.kernels import OutputCall
from penstock.runtime.stage import END_OF_TIME, KernelOverflowError
from penstock.runtime.threads import run_on_threads

FEWEST_POINTS = 1 << 16  # of the first call of a kernel

ALL_MARKS, SOME_MARKS, NO_MARKS = "all", "some", "none"
# A kernel writes all instants, the instants at which the value changes, or the samples.
INSTANTS, CHANGES, SAMPLES = "instants", "changes", "samples"


@dataclass(frozen=True, slots=True)
class TrackFacts:
    """A kernel's assumptions about an object: whether all points are samples, the marks, the columns with
    nulls.

    `sampled` names the columns that hold nulls among the samples.
    """

    alike: bool
    marks: str
    nullable: frozenset[str]
    sampled: frozenset[str]


@dataclass(frozen=True, slots=True)
class PointTrack:
    """The points of an object, or its samples."""

    source: str
    samples: bool


@dataclass(frozen=True)
class FusedCall:
    """The kernel under some assumptions: its cursors and spans, in ticks, and its bindings."""

    output: OutputCall
    tracks: tuple[PointTrack, ...]
    marked: tuple[bool, ...]
    cursors: tuple[tuple[int, int], ...]  # track and offset
    spans: tuple[tuple[int, int, int, int, bool], ...]  # track, size, step, delay, on a grid
    bindings: tuple[tuple[Binding, ...], ...]
    scratch: tuple[tuple[str, Type], ...]
    endless: bool  # grids may add an unbounded number of instants, so they are counted first


@dataclass(frozen=True)
class FusedStep:
    """Fields over all inputs, in one loop. `call(facts, writes)` returns the kernel; `staged` is the fallback
    for empty inputs and for overlapping samples.

    `sampled`: only the samples of the result are read.
    """

    accesses: tuple[SignalAccess, ...]
    spans: tuple[SpanReading, ...]
    sources: tuple[str, ...]
    columns: tuple[tuple[str, pa.DataType], ...]
    call: Callable[[tuple[TrackFacts, ...], str], FusedCall]
    staged: Callable[[], ObjectStep]
    threads: int
    sampled: bool = False

    def points(self, objects: Objects) -> Points:
        """Compute all points, or the samples."""
        return self._points(objects, SAMPLES if self.sampled else INSTANTS, None)

    def joined(self, objects: Objects, emitted: np.ndarray) -> Points:
        """Compute the points at which the value changes, from each partition's `emitted` on; without marks."""
        return self._points(objects, CHANGES, emitted)

    def _points(self, objects: Objects, writes: str, emitted: np.ndarray | None) -> Points:
        read = [objects[name] for name in self.sources]
        if any(not len(points) or points.multiset is not None for points in read):
            return self.staged().points(objects)
        kernel = self.call(tuple(map(facts_of, read)), writes)
        given = _Given(kernel, objects)
        if given.nothing:
            return self.staged().points(objects)
        parts = [
            _Part(given, cut, emitted, writes, counting=False)
            for cut in cuts_of(read, read[0].partitions, self.threads)
        ]
        if kernel.endless:
            _counted(parts)
        _run(parts)
        return self._whole(parts, final_until(self.accesses, self.spans, objects), read[0].partitions)

    def _whole(self, parts: Sequence[_Part], until: np.ndarray, partitions: int) -> Points:
        """Concatenate the parts."""
        bounds = whole_bounds(((part.cut, part.bounds, part.found) for part in parts), partitions)
        columns = {
            name: to_arrow(_joined(parts, output.values), _joined(parts, output.valid or ""), dtype)
            for (name, dtype), output in zip(self.columns, parts[0].given.kernel.output.outputs, strict=True)
        }
        times = _joined(parts, "out_times")
        if "out_marks" in parts[0].out:
            return Points(bounds, times, _joined(parts, "out_marks"), columns, until)
        # Where time was cut, the first point after a cut may equal the last point before it.
        alone = parts[0].writes == CHANGES and (len(parts) == 1 or partitions > 1)
        return Points(bounds, times, np.ones(len(times), np.uint8), columns, until, joined=alone)


def facts_of(points: Points) -> TrackFacts:
    marks = ALL_MARKS if points.marks.all() else SOME_MARKS if points.marks.any() else NO_MARKS
    nullable = frozenset(name for name, column in points.columns.items() if column.null_count)
    if points.all_samples:
        return TrackFacts(True, marks, nullable, nullable)
    batch = points.samples.arrived_rows.batch
    return TrackFacts(
        False, marks, nullable, frozenset(n for n in batch.schema.names if batch.column(n).null_count)
    )


class _Given:
    """The arguments that all parts share."""

    def __init__(self, kernel: FusedCall, objects: Objects) -> None:
        self.kernel = kernel
        self.arguments: dict[str, object] = {"first_row": 0}
        self.times: list[np.ndarray] = []
        self.bounds: list[np.ndarray] = []
        for place, track in enumerate(kernel.tracks):
            self._add_track(place, track, objects[track.source])
        for place, (_, offset) in enumerate(kernel.cursors):
            self.arguments[numbered("offset", place)] = offset
        grids = 0
        for place, (_, size, step, delay, on_grid) in enumerate(kernel.spans):
            self.arguments[numbered("size", place)] = size
            if on_grid:
                self.arguments[numbered("step", grids)] = step
                self.arguments[numbered("delay", grids)] = delay
                grids += 1
        self.nothing = any(not len(time) for time in self.times)
        self.longest = max(int(np.diff(bound).max(initial=0)) for bound in self.bounds)

    def _add_track(self, place: int, track: PointTrack, points: Points) -> None:
        times, bounds = points.times, points.bounds
        if track.samples:
            times, bounds = points.samples.times, points.samples.bounds
            batch = points.samples.arrived_rows.batch
        else:
            batch = pa.RecordBatch.from_arrays(list(points.columns.values()), names=list(points.columns))
        self.times.append(times)
        self.bounds.append(bounds)
        self.arguments[numbered("times", place)] = times
        self.arguments[numbered("bounds", place)] = bounds
        if self.kernel.marked[place]:
            number = sum(self.kernel.marked[:place])
            self.arguments[numbered("marks", number)] = points.marks
        self.arguments |= BatchArguments(batch, {}).fill(self.kernel.bindings[place])

    def pieces(self, cut: Cut) -> list[Cut]:
        """Cut a thread's work into calls of growing size; the short first call shows whether the kernel is slow."""
        bounds, times = self.bounds[0], self.times[0]
        begin, end = int(bounds[cut.lo]), int(bounds[cut.hi])
        if cut.since != FIRST or cut.before != END_OF_TIME:
            begin, end = np.searchsorted(times, [cut.since, cut.before]).tolist()
        places: list[int] = []
        while begin + 2 * (step := FEWEST_POINTS << len(places)) < end:
            begin += step
            places.append(begin)
        if len(bounds) == 2:
            inner = np.unique(times[places]).tolist()
            return [Cut(0, 1, *pair) for pair in pairwise([cut.since, *inner, cut.before])]
        partitions = np.searchsorted(bounds[: cut.hi], places).tolist()
        return [Cut(lo, hi) for lo, hi in pairwise([cut.lo, *partitions, cut.hi]) if lo < hi]

    def most(self, cut: Cut) -> int:
        """Bound the number of instants."""
        found = sum(self._rows(track, cut, offset) for track, offset in self.kernel.cursors)
        return found + sum(
            2 * int(self.bounds[track][cut.hi] - self.bounds[track][cut.lo])
            for track, _, _, _, on_grid in self.kernel.spans
            if on_grid
        )

    def _rows(self, track: int, cut: Cut, offset: int) -> int:
        """Count the times of a track that a cursor visits."""
        if cut.since == FIRST and cut.before == END_OF_TIME:
            return int(self.bounds[track][cut.hi] - self.bounds[track][cut.lo])
        ends = [FIRST if end == FIRST else end - offset for end in (cut.since, cut.before)]
        lo, hi = np.searchsorted(self.times[track], ends)
        return int(hi - lo)


@dataclass
class _Part:
    """The run over some partitions, into private buffers."""

    given: _Given
    cut: Cut
    emitted: np.ndarray | None
    writes: str
    counting: bool
    size: int | None = None
    found: int = 0
    out: dict[str, np.ndarray] = field(default_factory=dict)
    scratch: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def bounds(self) -> np.ndarray:
        return self.out["out_bounds"]

    def allocate(self) -> None:
        """Allocate buffers on the thread that frees them: the pool does not reuse memory freed by another thread."""
        kernel = self.given.kernel
        size = 0 if self.counting else 1 + (self.given.most(self.cut) if self.size is None else self.size)
        self.out = {"out_times": room(size), "out_bounds": np.zeros(self.cut.hi + 1, np.int64)}
        for output in kernel.output.outputs:
            self.out[output.values] = room(size, column_type(output.type))
            self.out[output.valid or ""] = room(size, np.uint8)
        if self.writes == INSTANTS:
            self.out["out_marks"] = room(size, np.uint8)
        self.scratch = {name: filled(type, 0, self.given.longest + 2) for name, type in kernel.scratch}

    def run(self) -> None:
        kernel, head = self.given.kernel, np.zeros(WORDS, np.int64)
        given = {
            **self.given.arguments, **self.out, **self.scratch,
            "emit": int(not self.counting), "head": head, "emitted": self.emitted,
        }  # fmt: skip
        for piece in self.given.pieces(self.cut):
            follows = int(piece.since > self.cut.since and self.found > 0)
            limits = {
                "partition_lo": piece.lo, "partition_hi": piece.hi, "since": piece.since, "before": piece.before,
                "first_point": self.found, "follows": follows,
            }  # fmt: skip
            self.found = kernel.output.call({**given, **limits})
        if head[ERRORS]:
            raise KernelOverflowError


def _counted(parts: Sequence[_Part]) -> None:
    """Count the instants of each part, to size its buffers."""
    counting = [_Part(part.given, part.cut, part.emitted, part.writes, counting=True) for part in parts]
    _run(counting)
    for part, count in zip(parts, counting, strict=True):
        part.size = count.found


def _run(parts: Sequence[_Part]) -> None:
    for part in parts:
        part.allocate()
    run_on_threads([part.run for part in parts])


def _joined(parts: Sequence[_Part], name: str) -> np.ndarray:
    """Concatenate the results of all parts, one part per thread, into a pooled buffer."""
    arrays = [part.out[name][: part.found] for part in parts]
    if len(arrays) == 1:
        return arrays[0]
    places = np.cumsum([0, *map(len, arrays)]).tolist()
    made = room(places[-1], arrays[0].dtype)
    run_on_threads(
        [partial(np.copyto, made[a:b], array) for (a, b), array in zip(pairwise(places), arrays, strict=True)]
    )
    return made
