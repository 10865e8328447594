"""Assemble panes into windows: which windows exist, and which are complete."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from penstock.runtime.keys import HashKeys
from penstock.runtime.programs import Grid
from penstock.runtime.stage import END_OF_TIME, START_OF_TIME
from penstock.runtime.time_limits import within_reach


@dataclass(frozen=True)
class Windows:
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
        """The panes at which windows start, are cut, and end (see lower/emit_steps/merging.py for the cut)."""
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


@dataclass(frozen=True)
class Frames:
    """Windows as ranges of panes: frame f is window numbers[f]; `order` lists slots in pane order.

    The frame's panes are order[first[f]] … order[last[f] - 1]; cuts[f] lies between. `overlapping`: some window has
    several panes.
    """

    numbers: np.ndarray
    order: np.ndarray
    first: np.ndarray
    cuts: np.ndarray
    last: np.ndarray
    overlapping: bool
    ascending: bool = True  # whether `numbers` ascends over all frames, not only within a key

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def limits(self) -> tuple[int, int]:
        """The smallest and the largest window number."""
        if self.ascending:
            return int(self.numbers[0]), int(self.numbers[-1])
        return int(self.numbers.min()), int(self.numbers.max())


@lru_cache(maxsize=64)
def windows_on(grid: Grid) -> Windows:
    """The windows of a grid; cached, because every run of a query needs them."""
    return Windows(grid)


def frames_of_panes(windows: Windows, panes: np.ndarray, after: int, upto: int) -> Frames:
    """Frames over the slots of a grid table."""
    order = panes.argsort(kind="stable")
    panes = panes[order]
    if windows.span == windows.step == 1:  # each pane is a window
        begin = 0 if after == START_OF_TIME else int(panes.searchsorted(after, "right"))
        chosen = np.arange(begin, len(panes) if upto == END_OF_TIME else panes.searchsorted(upto, "right"))
        ends = chosen + 1
        return Frames(panes[begin : begin + len(chosen)], order, chosen, ends, ends, overlapping=False)
    low, high = windows.holding(panes, after, upto)
    _, numbers = _first_held(low, high, np.zeros(len(panes), np.int64))
    first, cuts, last = (np.searchsorted(panes, bound) for bound in windows.bounds(numbers))
    return Frames(numbers, order, first, cuts, last, _overlapping(first, last))


def frames_of_pairs(windows: Windows, keys: HashKeys, after: int, upto: int) -> Frames:
    """Frames of single keys over the pairs of a sparse table, in key order if a window has several pairs."""
    panes, *words = (each[: keys.count] for each in keys.words)
    by_key = [] if windows.span == 1 else [keys.nulls[: keys.count] >> 1, *words]
    order = np.lexsort([panes, *by_key])
    panes, lane = panes[order], _lanes([each[order] for each in by_key], len(order))
    low, high = windows.holding(panes, after, upto)
    if windows.span == 1:  # each pair is a window
        chosen = np.flatnonzero(low <= high)
        ends = chosen + 1
        return Frames(low[chosen], order, chosen, ends, ends, overlapping=False)
    first, numbers = _first_held(low, high, lane)
    known = np.unique(panes)
    rank = lane * (len(known) + 1) + np.searchsorted(known, panes)
    _, cut, end = (
        lane[first] * (len(known) + 1) + np.searchsorted(known, b) for b in windows.bounds(numbers)
    )
    cuts, last = np.searchsorted(rank, cut), np.searchsorted(rank, end)
    return Frames(numbers, order, first, cuts, last, _overlapping(first, last), ascending=False)


def _overlapping(first: np.ndarray, last: np.ndarray) -> bool:
    return bool((last - first > 1).any())


def _lanes(columns: list[np.ndarray], length: int) -> np.ndarray:
    """Number the runs of rows that are equal in all columns."""
    changes = np.zeros(length, bool)
    for column in columns:
        changes[1:] |= column[1:] != column[:-1]
    return np.cumsum(changes)


def _first_held(low: np.ndarray, high: np.ndarray, lane: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All windows in the ranges low[i] … high[i], each once per key, and the first i whose range has it.

    `lane` numbers the keys. Within a key both bounds ascend.
    """
    again = lane[1:] == lane[:-1]
    low[1:] = np.where(again, np.maximum(low[1:], high[:-1] + 1), low[1:])
    counts = np.where(low <= high, high - low + 1, 0)  # distant bounds may wrap around to low > high
    first = np.repeat(np.arange(len(low)), counts)
    return first, low[first] + np.arange(len(first)) - np.repeat(np.cumsum(counts) - counts, counts)
