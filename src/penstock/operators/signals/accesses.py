"""The inputs of an expression, walked from change to change on all threads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from penstock.algorithms.sorted_partitions.frames import Frames
from penstock.algorithms.sorted_partitions.partitions import SortedPartitions
from penstock.loop.abi import numbered
from penstock.operators.signals.points import Points
from penstock.runtime.kernels import Call
from penstock.runtime.stage import END_OF_TIME
from penstock.runtime.threads import run_on_threads

Objects = Mapping[str, Points]

FIRST = -(1 << 62)  # before any instant of a walk
POINTS_PER_THREAD = 1 << 15  # fewer do not justify a second thread


@dataclass(frozen=True, slots=True)
class Cut:
    """Partitions lo … hi, at the instants from `since` to `before`."""

    lo: int
    hi: int
    since: int = FIRST
    before: int = END_OF_TIME


@dataclass(frozen=True)
class SignalAccess:
    """Points of an object, shifted in time; without `columns`, only their marks are read."""

    source: str
    shift: int
    columns: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class SpanReading:
    """Samples of an object over a span: the kind of frame, and its size, step and delay in ticks."""

    source: str
    kind: str
    size: int
    step: int
    delay: int

    def until(self, final: np.ndarray) -> np.ndarray:
        """Return the time before which frames are final, if samples are final before `final`."""
        if self.kind == "per":
            final = np.where(final == END_OF_TIME, END_OF_TIME, final - final % self.step)
        return _moved(final, self.delay)


@dataclass(frozen=True)
class Reading:
    """All inputs of an expression, and the kernel that walks from change to change."""

    accesses: tuple[SignalAccess, ...]
    spans: tuple[SpanReading, ...]
    call: Call
    threads: int

    def walk(self, objects: Objects) -> Walked:
        points = [objects[access.source] for access in self.accesses]
        partitions = [objects[span.source].samples for span in self.spans]
        count = (points[0].partitions) if points else partitions[0].count
        given = self._given(points, partitions)
        cuts = cuts_of(points, count, self.threads)
        sizes = self._sizes(given, cuts, points, partitions)
        parts = [self._part(given, cut, size) for cut, size in zip(cuts, sizes, strict=True)]
        run_on_threads([part.run for part in parts])
        return _whole(parts, final_until(self.accesses, self.spans, objects), count)

    def _given(self, points: Sequence[Points], partitions: Sequence[SortedPartitions]) -> dict[str, object]:
        given: dict[str, object] = {}
        for place, (point, access) in enumerate(zip(points, self.accesses, strict=True)):
            given[numbered("times", place)] = point.times
            given[numbered("marks", place)] = point.marks
            given[numbered("bounds", place)] = point.bounds
            given[numbered("shift", place)] = access.shift
        for place, (rows, span) in enumerate(zip(partitions, self.spans, strict=True)):
            given[numbered("samples", place)] = rows.times
            given[numbered("sample_bounds", place)] = rows.bounds
            given[numbered("delay", place)] = span.delay
            given[numbered("size", place)] = span.size
            given[numbered("step", place)] = span.step
        return given

    def _sizes(
        self,
        given: dict[str, object],
        cuts: list[Cut],
        points: Sequence[Points],
        partitions: Sequence[SortedPartitions],
    ) -> list[int]:
        """Bound the number of instants of each part; count them where grids add instants or time is cut."""
        whole = all(cut.since == FIRST and cut.before == END_OF_TIME for cut in cuts)
        if whole and not any(span.kind == "window" for span in self.spans):
            return [
                sum(int(point.bounds[cut.hi] - point.bounds[cut.lo]) for point in points)
                + sum(
                    2 * int(partition.bounds[cut.hi] - partition.bounds[cut.lo]) for partition in partitions
                )
                for cut in cuts
            ]
        counted = [self._part(given, cut, 0) for cut in cuts]
        run_on_threads([part.run for part in counted])
        return [part.found for part in counted]

    def _part(self, given: dict[str, object], cut: Cut, size: int) -> _Part:
        return _Part(self.call, given, cut, size, len(self.accesses), len(self.spans))


def final_until(
    accesses: Sequence[SignalAccess], spans: Sequence[SpanReading], objects: Objects
) -> np.ndarray:
    """Return, per partition, the time before which the result of accesses and spans is final."""
    finals = [_moved(objects[access.source].until, access.shift) for access in accesses]
    finals += [span.until(objects[span.source].until) for span in spans]
    until: np.ndarray = np.minimum.reduce(finals)
    return until


def cuts_of(points: Sequence[Points], partitions: int, threads: int) -> list[Cut]:
    """Cut partitions into one range per thread; cut a single partition by time."""
    largest = max(points, key=len, default=None)
    if threads == 1 or largest is None or len(largest) < POINTS_PER_THREAD:
        return [Cut(0, partitions)]
    if partitions == 1:
        times = largest.times[np.linspace(0, len(largest), threads + 1).astype(int)[1:-1]]
        return [Cut(0, 1, *pair) for pair in pairwise([FIRST, *np.unique(times).tolist(), END_OF_TIME])]
    share = np.linspace(0, len(largest), min(threads, partitions) + 1)[1:-1]
    inner = np.searchsorted(largest.bounds, share).tolist()
    return [Cut(lo, hi) for lo, hi in pairwise([0, *inner, partitions])]


class _Part:
    """The walk over some partitions, into private buffers."""

    def __init__(
        self, call: Call, given: dict[str, object], cut: Cut, size: int, accesses: int, spans: int
    ) -> None:
        self._call, self._given = call, given
        self.cut, self.size = cut, size
        self.times, self.marks = np.empty(size, np.int64), np.empty(size, np.uint8)
        self.bounds = np.zeros(cut.hi + 1, np.int64)
        self.places = [np.empty(size, np.int64) for _ in range(accesses)]
        self.los = [np.empty(size, np.int64) for _ in range(spans)]
        self.his = [np.empty(size, np.int64) for _ in range(spans)]
        self.found = 0

    def run(self) -> None:
        out: dict[str, object] = {
            "partition_lo": self.cut.lo, "partition_hi": self.cut.hi, "since": self.cut.since, "before": self.cut.before,
            "emit": int(self.size > 0),
            "out_times": self.times, "out_marks": self.marks, "out_bounds": self.bounds,
        }  # fmt: skip
        for hint, several in (("out_point", self.places), ("out_lo", self.los), ("out_hi", self.his)):
            out |= {numbered(hint, place): reduction for place, reduction in enumerate(several)}
        self.found = self._call({**self._given, **out})


def whole_bounds(parts: Iterable[tuple[Cut, np.ndarray, int]], partitions: int) -> np.ndarray:
    """Return the partition bounds of the parts' concatenated results; each part has local bounds and a row count."""
    bounds = np.zeros(partitions + 1, np.int64)
    before = 0
    for cut, own, found in parts:
        here = slice(cut.lo + 1, cut.hi + 1)
        bounds[here] = own[here] + before
        before += found
    return bounds


@dataclass(frozen=True)
class Walked:
    """The result of a walk: instants, marks, the point of each access, and the frame of each span."""

    bounds: np.ndarray
    times: np.ndarray
    marks: np.ndarray
    places: list[np.ndarray]
    frames: list[Frames]
    until: np.ndarray

    def marked(self) -> Walked:
        """Return the marked instants."""
        return self.chosen(np.flatnonzero(self.marks))

    def chosen(self, chosen: np.ndarray) -> Walked:
        """Return some of the instants, in order."""
        return Walked(
            np.searchsorted(chosen, self.bounds),
            self.times[chosen],
            self.marks[chosen],
            [place[chosen] for place in self.places],
            [frame.chosen(chosen) for frame in self.frames],
            self.until,
        )


def _whole(parts: Sequence[_Part], until: np.ndarray, partitions: int) -> Walked:
    """Concatenate the parts."""
    times = _joined([part.times[: part.found] for part in parts])
    los = [_joined([part.los[i][: part.found] for part in parts]) for i in range(len(parts[0].los))]
    his = [_joined([part.his[i][: part.found] for part in parts]) for i in range(len(parts[0].his))]
    return Walked(
        whole_bounds(((part.cut, part.bounds, part.found) for part in parts), partitions),
        times,
        _joined([part.marks[: part.found] for part in parts]),
        [_joined([part.places[i][: part.found] for part in parts]) for i in range(len(parts[0].places))],
        [Frames(lo, hi, times, times) for lo, hi in zip(los, his, strict=True)],
        until,
    )


def _joined(arrays: Sequence[np.ndarray]) -> np.ndarray:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _moved(final: np.ndarray, shift: int) -> np.ndarray:
    return final if not shift else np.where(final == END_OF_TIME, END_OF_TIME, final + shift)
