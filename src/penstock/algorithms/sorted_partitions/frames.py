"""Window types over sorted partitions as frames: which windows exist, which are complete, which rows later ones need.

A window becomes a frame: a range of rows of one partition, with the window's bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import ClassVar, Protocol

import numpy as np

from penstock.algorithms.sorted_partitions.partitions import SortedPartitions
from penstock.algorithms.window_grid import WindowGrid
from penstock.errors import WindowError
from penstock.runtime.buffers import room, ticks_of
from penstock.runtime.kernels import Call
from penstock.runtime.stage import END_OF_TIME, START_OF_TIME, within_reach

# A block has at least this many times the rows of a frame.
FRAMES_A_BLOCK = 4

Bounds = Callable[[int, int], tuple[np.ndarray, np.ndarray]]


@dataclass
class Frames:
    """Rows lo … hi - 1 of each window, and the window's bounds. `in_order`: both bounds are known never to decrease."""

    lo: np.ndarray
    hi: np.ndarray
    start: np.ndarray
    end: np.ndarray
    in_order: ClassVar[bool] = False

    def __len__(self) -> int:
        return len(self.lo)

    @property
    def lengths(self) -> np.ndarray:
        """The number of rows of each window."""
        found: np.ndarray = self.hi - self.lo
        return found

    def chosen(self, which: np.ndarray) -> Frames:
        return Frames(self.lo[which], self.hi[which], self.start[which], self.end[which])

    def sweep(self, begin: int, end: int, block: int | None) -> Iterator[FrameRange]:
        """Yield the frames begin … end - 1 in order, all at once or about `block` rows at a time."""
        cuts = [begin, end] if block is None else self._cuts(begin, end, block)
        for first, last in pairwise(cuts):
            lo, hi = self.lo[first:last], self.hi[first:last]
            yield FrameRange(first, lo, hi, int((hi - lo).max()))

    def _cuts(self, begin: int, end: int, rows: int) -> list[int]:
        """Cut frames about every `rows` rows, and at least several frame lengths: else most rows would be read twice."""
        if begin == end:
            return []
        lo, hi = self.lo[begin:end], self.hi[begin:end]
        rows = max(rows, FRAMES_A_BLOCK * int((hi - lo).max()))
        inner = begin + np.searchsorted(lo, np.arange(int(lo[0]) + rows, int(lo[-1]) + 1, rows))
        found: list[int] = np.unique([begin, *inner, end]).tolist()
        return found


@dataclass(frozen=True)
class FrameRange:
    """Neighbouring frames: the number of the first, their rows lo … hi - 1, and the length of the longest."""

    first: int
    lo: np.ndarray
    hi: np.ndarray
    longest: int

    @property
    def rows(self) -> int:
        return int(self.hi[-1] - self.lo[0])


class WindowRules(Protocol):
    """The lateness and completeness rules of a window type."""

    def late(self, times: np.ndarray, arrival_watermarks: np.ndarray) -> np.ndarray:
        """Which rows are late, given the watermark at each row's arrival."""

    def partly_late(self, times: np.ndarray, arrival_watermarks: np.ndarray) -> int:
        """The number of rows, none of which is late, that arrived after some of their windows were complete."""

    def completes(self, before: int, watermark: int) -> bool:
        """Whether windows may be complete at `watermark` that were not complete at `before`."""

    def needed(self, partitions: SortedPartitions, watermark: int) -> np.ndarray:
        """Which rows later windows may hold."""

    def ahead(self, watermark: int) -> int:
        """The earliest time that results of later windows can have."""

    def oldest(self, watermark: int) -> int:
        """The earliest time that a later row can have without being late."""

    def resume(self, watermark: int) -> None:
        """Continue after all windows complete at a watermark have been emitted."""


class Framing(WindowRules, Protocol):
    """One window type over sorted partitions."""

    def frames(self, partitions: SortedPartitions, watermark: int) -> Frames:
        """The windows that are complete at the watermark and have not been emitted."""


class Released:
    """The default rules: rows are processed in time order, once the watermark has passed them; rows behind it are late."""

    def late(self, times: np.ndarray, arrival_watermarks: np.ndarray) -> np.ndarray:
        behind: np.ndarray = times < arrival_watermarks
        return behind

    def partly_late(self, times: np.ndarray, arrival_watermarks: np.ndarray) -> int:
        """Return 0: an accepted row is in all of its windows."""
        return 0

    def completes(self, before: int, watermark: int) -> bool:
        return True

    def oldest(self, watermark: int) -> int:
        return watermark

    def resume(self, watermark: int) -> None:
        """Do nothing: the saved rows record which of them windows have processed."""


@dataclass(frozen=True)
class UnboundedFraming(Released):
    """One window, complete at the end of input: from the first row of any key to the last. No row is late for it."""

    def late(self, times: np.ndarray, arrival_watermarks: np.ndarray) -> np.ndarray:
        return np.zeros(len(times), np.bool_)

    def completes(self, before: int, watermark: int) -> bool:
        return watermark == END_OF_TIME

    def frames(self, partitions: SortedPartitions, watermark: int) -> Frames:
        if watermark != END_OF_TIME or not len(partitions):
            return _no_frames()
        lo, hi, times = partitions.bounds[:-1], partitions.bounds[1:], within_reach(partitions.times, 0, 1)
        return Frames(lo, hi, np.full(len(lo), times.min()), np.full(len(lo), times.max() + 1))

    def needed(self, partitions: SortedPartitions, watermark: int) -> np.ndarray:
        return np.ones(len(partitions), np.bool_)

    def ahead(self, watermark: int) -> int:
        return START_OF_TIME if watermark != END_OF_TIME else END_OF_TIME

    def oldest(self, watermark: int) -> int:
        return START_OF_TIME


@dataclass(frozen=True)
class CarriedFraming(Released):
    """Windows whose bounds are columns of the rows: the bounds are among the keys, so each partition is a window."""

    start: str
    end: str

    def frames(self, partitions: SortedPartitions, watermark: int) -> Frames:
        first = partitions.bounds[:-1]
        start, end = (ticks_of(partitions.column(name))[first] for name in (self.start, self.end))
        found = Frames(first, partitions.bounds[1:], start, end)
        return found if watermark == END_OF_TIME else found.chosen(end <= watermark)

    def needed(self, partitions: SortedPartitions, watermark: int) -> np.ndarray:
        later: np.ndarray = ticks_of(partitions.column(self.end)) > watermark
        return later

    def ahead(self, watermark: int) -> int:
        return watermark


@dataclass
class GridFraming:
    """Windows on a time grid. A row is late only if all its windows are complete."""

    windows: WindowGrid
    call: Call
    emitted: int = field(default=START_OF_TIME)

    def late(self, times: np.ndarray, arrival_watermarks: np.ndarray) -> np.ndarray:
        return self.windows.late(times, arrival_watermarks)

    def partly_late(self, times: np.ndarray, arrival_watermarks: np.ndarray) -> int:
        behind = np.flatnonzero(
            times < arrival_watermarks
        )  # a row at or after the watermark misses no window
        return int(np.count_nonzero(self.windows.missed(times[behind], arrival_watermarks[behind])))

    def completes(self, before: int, watermark: int) -> bool:
        return self.windows.last_complete(watermark) > self.windows.last_complete(before)

    def frames(self, partitions: SortedPartitions, watermark: int) -> Frames:
        """Count first, then fill: the number of windows is not known in advance."""
        upto = self.windows.last_complete(watermark)
        if upto <= self.emitted:
            return _no_frames()
        grid = self.windows.grid
        within_reach(partitions.times, grid.offset + grid.size, grid.offset + grid.size + grid.every)
        given = {"size": grid.size, "every": grid.every, "offset": grid.offset}
        after = self.emitted + 1 if self.emitted > START_OF_TIME else START_OF_TIME
        lo, hi, number = _filled(self.call, partitions, {**given, "after": after, "upto": upto})
        self.emitted = upto
        start = grid.offset + number * grid.every
        return Frames(lo, hi, start, start + grid.size)

    def needed(self, partitions: SortedPartitions, watermark: int) -> np.ndarray:
        open_yet: np.ndarray = self.windows.last_holding(partitions.times) > self.emitted
        return open_yet

    def ahead(self, watermark: int) -> int:
        return self.windows.next_result(self.emitted)

    def oldest(self, watermark: int) -> int:
        return watermark - self.windows.grid.size

    def resume(self, watermark: int) -> None:
        self.emitted = self.windows.last_complete(watermark)


@dataclass
class CalendarFraming:
    """Windows on a calendar: a grid with explicitly listed bounds."""

    bounds: Bounds
    call: Call
    emitted: int = field(default=START_OF_TIME)
    next_end: tuple[int, int] = field(default=(START_OF_TIME, START_OF_TIME))

    def late(self, times: np.ndarray, arrival_watermarks: np.ndarray) -> np.ndarray:
        late = times < arrival_watermarks
        if late.any():
            behind = np.flatnonzero(late)
            end = self._last_end(times[behind])
            late[behind] = (end <= arrival_watermarks[behind]) & (
                end > START_OF_TIME
            )  # a row outside all windows is never late
        return late

    def partly_late(self, times: np.ndarray, arrival_watermarks: np.ndarray) -> int:
        behind = np.flatnonzero(times < arrival_watermarks)
        if not len(behind):
            return 0
        times, arrival_watermarks = times[behind], arrival_watermarks[behind]
        _, ends = self.bounds(int(times.min()), int(times.max()))
        first = np.append(ends, END_OF_TIME)[np.searchsorted(ends, times, side="right")]
        return int(np.count_nonzero(first <= arrival_watermarks))

    def completes(self, before: int, watermark: int) -> bool:
        """Whether a window may end in (`before`, `watermark`]; the first end is cached, because many rows share `before`."""
        if self.next_end[0] != before:
            _, ends = self._around(before)
            self.next_end = before, int(ends.min()) if len(ends) else START_OF_TIME
        return self.next_end[1] <= watermark

    def frames(self, partitions: SortedPartitions, watermark: int) -> Frames:
        times = partitions.times
        if not len(times):
            self.emitted = max(self.emitted, watermark)
            return _no_frames()
        starts, ends = self.bounds(int(times.min()), int(times.max()))
        kept = (ends > self.emitted) & (ends <= watermark)
        starts, ends = np.append(starts[kept], END_OF_TIME), np.append(ends[kept], END_OF_TIME)
        self.emitted = max(self.emitted, watermark)
        given = {"starts": starts, "ends": ends, "after": 0, "upto": len(starts) - 2}
        lo, hi, number = _filled(self.call, partitions, given)
        return Frames(lo, hi, starts[number], ends[number])

    def needed(self, partitions: SortedPartitions, watermark: int) -> np.ndarray:
        times = partitions.times
        return self._last_end(times) > watermark if len(times) else np.zeros(0, np.bool_)

    def _last_end(self, times: np.ndarray) -> np.ndarray:
        """The end of the last window that holds each time; START_OF_TIME in the gaps between windows."""
        starts, ends = self.bounds(int(times.min()), int(times.max()))
        started = np.searchsorted(starts, times, side="right")
        last = np.append(START_OF_TIME, ends)[started]
        return np.where(last > times, last, START_OF_TIME)

    def ahead(self, watermark: int) -> int:
        return watermark

    def oldest(self, watermark: int) -> int:
        starts, _ = self._around(watermark)
        return int(starts.min()) if len(starts) else watermark

    def _around(self, watermark: int) -> tuple[np.ndarray, np.ndarray]:
        """The windows that hold a watermark; none before the calendar begins, where no row can be either."""
        try:
            return self.bounds(watermark, watermark)
        except WindowError:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)

    def resume(self, watermark: int) -> None:
        self.emitted = watermark


def _filled(
    call: Call, partitions: SortedPartitions, given: dict[str, object]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Run a frames kernel twice: to count, and to fill."""
    given = {**given, "times": partitions.times, "bounds": partitions.bounds, "partitions": partitions.count}
    nothing = {name: np.zeros(1, np.int64) for name in ("lo", "hi", "number")}
    found = call({**given, **nothing, "capacity": 0})
    lo, hi, number = (room(found) for _ in range(3))
    call({**given, "lo": lo, "hi": hi, "number": number, "capacity": found})
    return lo, hi, number


def _no_frames() -> Frames:
    nothing = np.zeros(0, np.int64)
    return Frames(nothing, nothing, nothing, nothing)


@dataclass(frozen=True)
class CountFraming(Released):
    """Windows of rows. The kept rows of a partition begin with the first row of a window, so no count is stored."""

    size: int
    every: int
    partial: bool

    def frames(self, partitions: SortedPartitions, watermark: int) -> Frames:
        if partitions.count == 1:
            return self._regular(partitions, self.partial and watermark == END_OF_TIME)
        rows = np.diff(partitions.bounds)
        begun = -(-rows // self.every)  # windows that have begun
        partition = np.repeat(np.arange(partitions.count), begun)
        place = np.arange(int(begun.sum())) - np.repeat(np.cumsum(begun) - begun, begun)
        lo = partitions.bounds[partition] + place * self.every
        hi = np.minimum(lo + self.size, partitions.bounds[partition + 1])
        full = hi - lo == self.size
        new = full & partitions.fresh[hi - 1]
        if self.partial and watermark == END_OF_TIME:
            new |= ~full
        lo, hi = lo[new], hi[new]
        times = within_reach(partitions.times, 0, 1)
        return Frames(lo, hi, times[lo], times[hi - 1] + 1)

    def _regular(self, partitions: SortedPartitions, cut: bool) -> Regular:
        """The windows that end with a new row. Processed rows come first: the watermark has passed them."""
        rows = len(partitions)
        full = max((rows - self.size) // self.every + 1, 0)
        before = max((partitions.seen - self.size) // self.every + 1, 0)
        begun = -(-rows // self.every)
        within_reach(partitions.times_at(rows - 1, 1, 1), 0, 1)  # the last is the latest
        first = before * self.every
        return Regular(partitions, first, full - before, begun - full if cut else 0, self.size, self.every)

    def needed(self, partitions: SortedPartitions, watermark: int) -> np.ndarray:
        rows = np.diff(partitions.bounds)
        reach = max(self.size, self.every)
        first = np.maximum(-(-(rows - reach + 1) // self.every), 0) * self.every  # of the oldest open window
        place = np.arange(len(partitions)) - np.repeat(partitions.bounds[:-1], rows)
        kept: np.ndarray = place >= np.repeat(first, rows)
        return kept

    def ahead(self, watermark: int) -> int:
        return START_OF_TIME if self.partial and watermark != END_OF_TIME else watermark


class Regular(Frames):
    """Windows of `size` rows of one partition, every `every` rows from row `first` on: `full` full ones, then `cut` partial.

    The end of the partition truncates the partial ones. Bounds are computed on access; most reductions do not need them.
    """

    in_order = True

    def __init__(
        self, partitions: SortedPartitions, first: int, full: int, cut: int, size: int, every: int
    ) -> None:
        self.partitions, self.first, self.full, self.cut = partitions, first, full, cut
        self.size, self.every = size, every

    def __len__(self) -> int:
        return self.full + self.cut

    @cached_property
    def lo(self) -> np.ndarray:  # type: ignore[override]  # frames are read-only
        return np.arange(self.first, self.first + len(self) * self.every, self.every)

    @cached_property
    def hi(self) -> np.ndarray:  # type: ignore[override]
        found: np.ndarray = np.minimum(self.lo + self.size, len(self.partitions))
        return found

    @property
    def lengths(self) -> np.ndarray:
        return self.hi - self.lo if self.cut else np.full(self.full, self.size)

    @cached_property
    def start(self) -> np.ndarray:  # type: ignore[override]
        return self.partitions.times_at(self.first, len(self), self.every)

    @cached_property
    def end(self) -> np.ndarray:  # type: ignore[override]
        full = self.partitions.times_at(self.first + self.size - 1, self.full, self.every, 1)
        if not self.cut:
            return full
        last = self.partitions.times_at(len(self.partitions) - 1, 1, 1, 1)
        return np.concatenate([full, np.repeat(last, self.cut)])

    @property
    def rest(self) -> Frames:
        """The truncated windows."""
        places = slice(self.full, None)
        return Frames(self.lo[places], self.hi[places], self.start[places], self.end[places])
