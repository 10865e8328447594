"""Non-overlapping join windows: each row is in at most one, so the pairs of a key are ranges of its partition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np

from penstock.algorithms.sorted_partitions.frames import Bounds
from penstock.algorithms.sorted_partitions.rows import Rows
from penstock.algorithms.window_grid import Grid
from penstock.errors import WindowError
from penstock.operators.joins.partitions import Numbers, PartitionKernels
from penstock.runtime.buffers import ticks_of
from penstock.runtime.stage import END_OF_TIME, START_OF_TIME, within_reach


@dataclass(frozen=True)
class Placed:
    """The window of each row of one side; `inside` is False for rows in none."""

    start: np.ndarray
    end: np.ndarray
    inside: np.ndarray

    def chosen(self, which: np.ndarray) -> Placed:
        return Placed(self.start[which], self.end[which], self.inside[which])


ROWS_A_RUN = 256  # windows with fewer rows, on average, are not joined one at a time


@dataclass(frozen=True)
class WindowRows:
    """A window, and the range of rows of each side that lie in it."""

    start: int
    end: int
    left: tuple[int, int]
    right: tuple[int, int]

    @property
    def rows(self) -> int:
        return self.left[1] - self.left[0] + self.right[1] - self.right[0]


def runs_between(starts: np.ndarray, ends: np.ndarray, times: Sequence[np.ndarray]) -> list[WindowRows]:
    """Return the windows with rows at times from start to end; rows are in order of time."""
    cuts = [np.searchsorted(time, bounds) for time in times for bounds in (starts, ends)]
    rows = zip(*(cut.tolist() for cut in (starts, ends, *cuts)), strict=True)
    runs = [WindowRows(start, end, (a, b), (c, d)) for start, end, a, b, c, d in rows]
    return [run for run in runs if run.rows]


def opening_of(bounds: Bounds, watermark: int) -> tuple[int, int]:
    """Return the earliest start and the earliest end of the windows on a calendar that hold a watermark."""
    try:
        starts, ends = bounds(watermark, watermark)
    except WindowError:  # before the calendar begins, where no row can be either
        return watermark, watermark
    return (int(starts.min()), int(ends.min())) if len(starts) else (watermark, watermark)


def first_and_last(left: Rows, right: Rows) -> tuple[int, int] | None:
    """Return the times of the first and last row, or None without rows."""
    some = [side.times for side in (left, right) if len(side)]
    return (min(int(times[0]) for times in some), max(int(times[-1]) for times in some)) if some else None


class WindowKind(Protocol):
    """One kind of window."""

    def place(self, left: Rows, right: Rows, numbers: Callable[[], Numbers]) -> tuple[Placed, Placed]:
        """Assign a window to each row; `numbers` numbers the rows' keys."""

    def complete(self, ends: np.ndarray, watermark: int) -> np.ndarray:
        """Return a mask of the windows that are complete at a watermark."""

    def completes(self, before: int, watermark: int) -> bool:
        """Whether windows may have become complete between two watermarks."""

    def opening(self, watermark: int) -> tuple[int, int]:
        """See `window_runs.OpenWindows`."""

    def runs(self, left: Rows, right: Rows, *, always: bool) -> list[WindowRows] | None:
        """Return the windows, if the rows of each are contiguous and numerous (or `always`); else None."""


class Closing:
    """Windows that exclude every row at or after their end."""

    def complete(self, ends: np.ndarray, watermark: int) -> np.ndarray:
        found: np.ndarray = ends <= watermark
        return found

    def completes(self, before: int, watermark: int) -> bool:
        return True


@dataclass(frozen=True)
class GridWindows(Closing):
    """Windows on a grid, no longer than the slide."""

    grid: Grid

    def place(self, left: Rows, right: Rows, numbers: Callable[[], Numbers]) -> tuple[Placed, Placed]:
        return self.side(left.times), self.side(right.times)

    def completes(self, before: int, watermark: int) -> bool:
        """Whether a window ends between the two watermarks."""
        first, every = self.grid.offset + self.grid.size, self.grid.every
        return (watermark - first) // every > (before - first) // every

    def opening(self, watermark: int) -> tuple[int, int]:
        """Return the start and the end of the window that holds the watermark; in a gap, the end of the next one."""
        grid = self.grid
        into = (watermark - grid.offset) % grid.every
        start = max(watermark - into, START_OF_TIME)
        return (start, start + grid.size) if into < grid.size else (watermark, start + grid.every + grid.size)

    def side(self, times: np.ndarray) -> Placed:
        """The window of each row of one side."""
        grid = self.grid
        within_reach(times, grid.every + grid.offset, grid.size + grid.offset)
        into = (times - grid.offset) % grid.every
        start = times - into
        return Placed(start, start + grid.size, into < grid.size)

    def runs(self, left: Rows, right: Rows, *, always: bool) -> list[WindowRows] | None:
        around, grid = first_and_last(left, right), self.grid
        if around is None:
            return []
        within_reach(np.array(around), grid.every + grid.offset, grid.size + grid.offset)
        first, last = ((time - grid.offset) // grid.every for time in around)
        if not always and (last - first + 1) * ROWS_A_RUN > len(left) + len(right):
            return None
        starts = (
            self._starts(left, right) if always else np.arange(first, last + 1) * grid.every + grid.offset
        )
        return runs_between(starts, starts + grid.size, (left.times, right.times))

    def _starts(self, left: Rows, right: Rows) -> np.ndarray:
        """The starts of the windows that hold a row."""
        return np.unique(np.concatenate([self.side(side.times).start for side in (left, right)]))


@dataclass(frozen=True)
class CalendarWindows(Closing):
    """Windows on a calendar that do not overlap; there may be gaps between them."""

    bounds: Bounds

    def place(self, left: Rows, right: Rows, numbers: Callable[[], Numbers]) -> tuple[Placed, Placed]:
        return self._side(left.times), self._side(right.times)

    def opening(self, watermark: int) -> tuple[int, int]:
        """Return the start and the end of the window that holds the watermark; in a gap, the watermark."""
        return opening_of(self.bounds, watermark)

    def _side(self, times: np.ndarray) -> Placed:
        if not len(times):
            return Placed(times, times, np.zeros(0, np.bool_))
        starts, ends = self.bounds(int(times.min()), int(times.max()))
        place = np.searchsorted(starts, times, side="right") - 1
        known = np.maximum(place, 0)
        return Placed(starts[known], ends[known], (place >= 0) & (times < ends[known]))

    def runs(self, left: Rows, right: Rows, *, always: bool) -> list[WindowRows] | None:
        around = first_and_last(left, right)
        if around is None:
            return []
        starts, ends = self.bounds(*around)
        if not always and len(starts) * ROWS_A_RUN > len(left) + len(right):
            return None
        return runs_between(starts, ends, (left.times, right.times))


@dataclass(frozen=True)
class SessionWindows:
    """Sessions per key, over the rows of both sides."""

    gap: int
    kernels: PartitionKernels

    def place(self, left: Rows, right: Rows, numbers: Callable[[], Numbers]) -> tuple[Placed, Placed]:
        groups, times = np.concatenate(numbers().groups), np.concatenate([left.times, right.times])
        within_reach(times, 0, self.gap)
        order = self.kernels.sorter.order(groups, times)
        begins = self._begins(groups[order], times[order])
        session = np.cumsum(begins) - 1
        first = np.flatnonzero(begins)
        last = np.append(first[1:], len(order))[: len(first)] - 1
        start, end = np.empty_like(times), np.empty_like(times)
        start[order] = times[order[first]][session]
        end[order] = times[order[last]][session] + self.gap
        inside = np.ones(len(times), np.bool_)
        both = Placed(start, end, inside)
        return both.chosen(np.arange(len(left))), both.chosen(np.arange(len(left), len(times)))

    def _begins(self, groups: np.ndarray, times: np.ndarray) -> np.ndarray:
        begins = np.ones(len(groups), np.bool_)
        # Times increase within a group, so a difference of any size is exact as an unsigned number.
        apart = (times[1:] - times[:-1]).view(np.uint64)
        begins[1:] = (groups[1:] != groups[:-1]) | (apart > np.uint64(self.gap))
        return begins

    def complete(self, ends: np.ndarray, watermark: int) -> np.ndarray:
        """Exclude a session that ends at the watermark: a row exactly at its end still extends it."""
        return ends < watermark if watermark != END_OF_TIME else np.ones(len(ends), np.bool_)

    def completes(self, before: int, watermark: int) -> bool:
        return True

    def opening(self, watermark: int) -> tuple[int, int]:
        """Return the watermark twice: rows of open sessions are retained, and any may end."""
        return watermark, watermark

    def runs(self, left: Rows, right: Rows, *, always: bool) -> list[WindowRows] | None:
        """Return None: sessions of different keys interleave."""
        return None


@dataclass(frozen=True)
class CarriedWindows(Closing):
    """Windows given by two columns of the rows, which are among the keys."""

    start: str
    end: str

    def opening(self, watermark: int) -> tuple[int, int]:
        """Return the watermark twice: most windows are complete as soon as it has passed their rows."""
        return watermark, watermark

    def place(self, left: Rows, right: Rows, numbers: Callable[[], Numbers]) -> tuple[Placed, Placed]:
        return self._side(left), self._side(right)

    def _side(self, rows: Rows) -> Placed:
        start, end = (rows.batch.column(name) for name in (self.start, self.end))
        known = [bound.is_valid().to_numpy(zero_copy_only=False) for bound in (start, end)]
        return Placed(ticks_of(start), ticks_of(end), known[0] & known[1])

    def runs(self, left: Rows, right: Rows, *, always: bool) -> list[WindowRows] | None:
        """Return the windows if rows are in window order, as rows with the windows of a grid are."""
        mine, its = (_carried_runs(self._side(side), always) for side in (left, right))
        if mine is None or its is None:
            return None
        windows = sorted({*mine, *its}, key=lambda window: window[::-1])
        if len(windows) * ROWS_A_RUN > len(left) + len(right) or len({end for _, end in windows}) < len(
            windows
        ):
            return None
        nothing = 0, 0
        return [
            WindowRows(*window, mine.get(window, nothing), its.get(window, nothing)) for window in windows
        ]


class WholeWindow:
    """One window with all rows of both sides, complete when the input ends."""

    def place(self, left: Rows, right: Rows, numbers: Callable[[], Numbers]) -> tuple[Placed, Placed]:
        times = np.concatenate([left.times, right.times])
        within_reach(times, 0, 1)
        bounds = (int(times.min()), int(times.max()) + 1) if len(times) else (0, 0)
        return self._side(len(left), bounds), self._side(len(right), bounds)

    @staticmethod
    def _side(rows: int, bounds: tuple[int, int]) -> Placed:
        return Placed(np.full(rows, bounds[0]), np.full(rows, bounds[1]), np.ones(rows, np.bool_))

    def complete(self, ends: np.ndarray, watermark: int) -> np.ndarray:
        return np.full(len(ends), watermark == END_OF_TIME)

    def completes(self, before: int, watermark: int) -> bool:
        return watermark == END_OF_TIME

    def opening(self, watermark: int) -> tuple[int, int]:
        return START_OF_TIME, END_OF_TIME

    def runs(self, left: Rows, right: Rows, *, always: bool) -> list[WindowRows] | None:
        around = first_and_last(left, right)
        if around is None:
            return []
        within_reach(np.array(around), 0, 1)
        return [WindowRows(around[0], around[1] + 1, (0, len(left)), (0, len(right)))]


def _carried_runs(placed: Placed, always: bool) -> dict[tuple[int, int], tuple[int, int]] | None:
    """Return the rows of each window, if every row has a window and the rows of a window are contiguous."""
    steps = np.diff(placed.end)
    same = bool((np.diff(placed.start)[steps == 0] == 0).all())
    if not placed.inside.all() or bool((steps < 0).any()) or not same:
        return None
    cuts = np.flatnonzero(steps) + 1
    if not always and len(cuts) * ROWS_A_RUN > len(placed.end):
        return None
    spans = pairwise([0, *cuts.tolist(), len(placed.end)]) if len(placed.end) else ()
    return {(int(placed.start[low]), int(placed.end[low])): (low, high) for low, high in spans}
