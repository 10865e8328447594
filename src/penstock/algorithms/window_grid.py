"""Arithmetic of windows on a grid: which windows hold a time, which are complete, and the panes between their bounds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from penstock.caches import CACHES
from penstock.runtime.stage import END_OF_TIME, START_OF_TIME, within_reach


@dataclass(frozen=True)
class Grid:
    """Windows [start, start + size), start = offset + n * every."""

    size: int
    every: int
    offset: int


@dataclass(frozen=True)
class WindowGrid:
    """Arithmetic of windows on a grid. Window n covers panes n * step … n * step + span - 1.

    Panes lie between the bounds of windows: one per slide, or two if windows end between the starts of others. If
    windows are shorter than the slide, the second pane belongs to no window.
    """

    grid: Grid

    @cached_property
    def step(self) -> int:
        return 2 if self.grid.size % self.grid.every else 1

    @cached_property
    def span(self) -> int:
        whole, rest = divmod(self.grid.size, self.grid.every)
        return 2 * whole + 1 if rest else whole

    def last_complete(self, watermark: int) -> int:
        """The last window that ends at or before a watermark."""
        if watermark >= END_OF_TIME:
            return END_OF_TIME
        if watermark <= START_OF_TIME:
            return START_OF_TIME
        return (watermark - self.grid.offset - self.grid.size) // self.grid.every

    def end_after(self, upto: int) -> int:
        """The watermark that completes the next window after `upto`."""
        if upto in (START_OF_TIME, END_OF_TIME):
            return upto
        end = self.grid.offset + (upto + 1) * self.grid.every + self.grid.size
        return min(end, END_OF_TIME)  # the end of input completes every window

    def last_holding(self, times: np.ndarray) -> np.ndarray:
        """The last window that starts at or before each time."""
        found: np.ndarray = np.floor_divide(times - self.grid.offset, self.grid.every)
        return found

    def holds(self, times: np.ndarray) -> np.ndarray:
        """Whether any window holds each time; False in the gaps between windows shorter than the slide."""
        inside = (times - self.grid.offset) - self.last_holding(times) * self.grid.every
        held: np.ndarray = inside < self.grid.size
        return held

    def holds_panes(self, panes: np.ndarray) -> np.ndarray:
        """Whether any window holds each pane."""
        held: np.ndarray = panes % self.step < self.span
        return held

    def first_holding(self, times: np.ndarray) -> np.ndarray:
        """The first window that ends after each time."""
        found: np.ndarray = np.floor_divide(times - self.grid.offset - self.grid.size, self.grid.every) + 1
        return found

    def complete_at(self, arrival_watermarks: np.ndarray) -> np.ndarray:
        """The last window complete at each watermark."""
        never = arrival_watermarks <= START_OF_TIME + self.grid.size + abs(self.grid.offset)
        return np.where(
            never,
            START_OF_TIME,
            np.floor_divide(arrival_watermarks - self.grid.offset - self.grid.size, self.grid.every),
        )

    def late(self, times: np.ndarray, arrival_watermarks: np.ndarray) -> np.ndarray:
        """Which rows arrived after every window that holds them was complete."""
        late: np.ndarray = (self.last_holding(times) <= self.complete_at(arrival_watermarks)) & self.holds(
            times
        )
        return late

    def missed(self, times: np.ndarray, arrival_watermarks: np.ndarray) -> np.ndarray:
        """Which rows arrived after some window that holds them was complete."""
        missed: np.ndarray = (self.first_holding(times) <= self.complete_at(arrival_watermarks)) & self.holds(
            times
        )
        return missed

    def started_panes(self, panes: np.ndarray, upto: int) -> np.ndarray:
        """Which panes are in a window up to `upto` and also in a later one."""
        first = (panes - self.span) // self.step + 1
        found: np.ndarray = (first <= upto) & ~self.finished(panes, upto) & self.holds_panes(panes)
        return found

    def holding(self, panes: np.ndarray, after: int, upto: int) -> tuple[np.ndarray, np.ndarray]:
        """The first and last window in (`after`, `upto`] that holds each pane (none: last < first)."""
        reach = self.span - self.step
        within_reach(panes, max(reach, 0), max(-reach, 0))
        low = np.maximum((panes - reach) // self.step, after + 1 if after > START_OF_TIME else START_OF_TIME)
        return low, np.minimum(panes // self.step, upto)

    def bounds(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The panes at which windows start, are cut, and end (see operators/pane_aggregate/kernels/emit_panes.py for the cut)."""
        start = numbers * self.step
        return start, (start // self.span + 1) * self.span, start + self.span

    def finished(self, panes: np.ndarray, upto: int) -> np.ndarray:
        """Which panes no window after `upto` needs."""
        return panes // self.step <= upto

    def next_result(self, upto: int) -> int:
        """The earliest time a result after window `upto` can have."""
        if upto in (START_OF_TIME, END_OF_TIME):
            return upto
        time = self.grid.offset + (upto + 1) * self.grid.every + self.grid.size - 1
        return min(max(time, START_OF_TIME), END_OF_TIME - 1)  # no window marks the end of input


@CACHES.results(most=64)
def windows_on(grid: Grid) -> WindowGrid:
    """The windows of a grid; cached, because every run of a query needs them."""
    return WindowGrid(grid)
