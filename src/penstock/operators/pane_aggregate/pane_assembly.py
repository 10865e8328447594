"""Assemble panes into windows: which windows exist and are complete, and the merged panes that the next window goes on from.

A window of 100 panes then costs as many merges as panes entered since the last emission, and one more for each pane
now and then (a flip of the two stacks), instead of 100.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.algorithms.hash_table.keys import HashKeys, Keys
from penstock.algorithms.window_grid import WindowGrid
from penstock.loop.abi import CUT, ENTERED, LEFT, PUSHED
from penstock.operators.pane_aggregate.table import PaneTable
from penstock.runtime.buffers import filled
from penstock.runtime.kernels import OutputCall
from penstock.runtime.stage import END_OF_TIME, START_OF_TIME

_FEW_WINDOWS = 64  # so few are looked up among the panes; of more, those without panes are skipped first


@dataclass(frozen=True)
class PaneRanges:
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


def frames_of_panes(windows: WindowGrid, panes: np.ndarray, after: int, upto: int) -> PaneRanges:
    """Frames over the slots of a grid table."""
    order = panes.argsort(kind="stable")
    panes = panes[order]
    if windows.span == windows.step == 1:  # each pane is a window
        begin = 0 if after == START_OF_TIME else int(panes.searchsorted(after, "right"))
        chosen = np.arange(begin, len(panes) if upto == END_OF_TIME else panes.searchsorted(upto, "right"))
        ends = chosen + 1
        return PaneRanges(panes[begin : begin + len(chosen)], order, chosen, ends, ends, overlapping=False)
    if after > START_OF_TIME and upto != END_OF_TIME and upto - after <= _FEW_WINDOWS:
        return _frames_of_few(windows, np.arange(after + 1, upto + 1), panes, order)
    low, high = windows.holding(panes, after, upto)
    _, numbers = _first_held(low, high, np.zeros(len(panes), np.int64))
    first, cuts, last = (np.searchsorted(panes, bound) for bound in windows.bounds(numbers))
    return PaneRanges(numbers, order, first, cuts, last, _overlapping(first, last))


def _frames_of_few(
    windows: WindowGrid, numbers: np.ndarray, panes: np.ndarray, order: np.ndarray
) -> PaneRanges:
    """Frames of those of the given windows that hold a pane."""
    first, cuts, last = panes.searchsorted(windows.bounds(numbers))
    held = last > first
    if not held.all():
        numbers, first, cuts, last = (array[held] for array in (numbers, first, cuts, last))
    return PaneRanges(numbers, order, first, cuts, last, _overlapping(first, last))


def frames_of_pairs(windows: WindowGrid, keys: HashKeys, after: int, upto: int) -> PaneRanges:
    """Frames of single keys over the pairs of a sparse table, in key order if a window has several pairs."""
    panes, *words = (word[: keys.count] for word in keys.words)
    by_key = [] if windows.span == 1 else [keys.nulls[: keys.count] >> 1, *words]
    order = np.lexsort([panes, *by_key])
    panes, partition = panes[order], _partitions([key[order] for key in by_key], len(order))
    low, high = windows.holding(panes, after, upto)
    if windows.span == 1:  # each pair is a window
        chosen = np.flatnonzero(low <= high)
        ends = chosen + 1
        return PaneRanges(low[chosen], order, chosen, ends, ends, overlapping=False)
    first, numbers = _first_held(low, high, partition)
    known = np.unique(panes)
    rank = partition * (len(known) + 1) + np.searchsorted(known, panes)
    _, cut, end = (
        partition[first] * (len(known) + 1) + np.searchsorted(known, b) for b in windows.bounds(numbers)
    )
    cuts, last = np.searchsorted(rank, cut), np.searchsorted(rank, end)
    return PaneRanges(numbers, order, first, cuts, last, _overlapping(first, last), ascending=False)


def _overlapping(first: np.ndarray, last: np.ndarray) -> bool:
    return bool((last - first > 1).any())


def _partitions(columns: list[np.ndarray], length: int) -> np.ndarray:
    """Number the runs of rows that are equal in all columns."""
    changes = np.zeros(length, bool)
    for column in columns:
        changes[1:] |= column[1:] != column[:-1]
    return np.cumsum(changes)


def _first_held(low: np.ndarray, high: np.ndarray, partition: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All windows in the ranges low[i] … high[i], each once per key, and the first i whose range has it.

    `partition` numbers the keys. Within a key both bounds ascend.
    """
    again = partition[1:] == partition[:-1]
    low[1:] = np.where(again, np.maximum(low[1:], high[:-1] + 1), low[1:])
    counts = np.where(low <= high, high - low + 1, 0)  # distant bounds may wrap around to low > high
    first = np.repeat(np.arange(len(low)), counts)
    return first, low[first] + np.arange(len(first)) - np.repeat(np.cumsum(counts) - counts, counts)


@dataclass(eq=False)
class SlidingCursor:
    """The scratch rows of the emit kernel, and the panes it had reached after window `upto`.

    It is a cache: saved state has panes only. It is valid while the panes it has merged keep their rows and the key
    table its columns. Panes of emitted windows change only when partly late rows come; the stage drops it then, and the
    worker when cells of another table are merged into its own.
    """

    kernel: OutputCall
    keys: Keys
    columns: int
    depth: int
    rows: dict[str, np.ndarray]
    upto: int = 0
    cut: int = 0  # the first pane behind the cut
    end: int = 0  # the first pane behind the last window
    left: int = 0  # the first pane that has not been dropped

    @classmethod
    def new(cls, kernel: OutputCall, table: PaneTable, deepest: int) -> SlidingCursor:
        """A cursor that has merged no pane; the stacks have room to grow deeper."""
        columns = table.keys.columns
        depth = 1 << deepest.bit_length()
        rows = {"cursor": np.array([0, -1, 0, 0])}
        for scratch in kernel.scratch:
            cells = (depth if scratch.deep else 1) * columns
            rows[scratch.parameter] = filled(scratch.type, 0, cells)
        return cls(kernel, table.keys, columns, depth, rows)

    def fits(self, kernel: OutputCall, table: PaneTable, deepest: int, after: int) -> bool:
        """Whether windows behind `after` go on from here."""
        same = self.kernel is kernel and self.keys is table.keys and self.columns == table.keys.columns
        return same and self.upto == after and deepest <= self.depth

    def find(self, panes: np.ndarray) -> None:
        """Set the places the kernel had reached among the panes that are there now, in order."""
        cut, end, left = panes.searchsorted([self.cut, self.end, self.left]).tolist()
        cursor = self.rows["cursor"]
        cursor[PUSHED], cursor[CUT], cursor[ENTERED], cursor[LEFT] = end, cut, end, left

    def stop(self, windows: WindowGrid, last: int, upto: int) -> None:
        """Remember the panes reached after the window numbered `last`, the last one up to `upto`."""
        start = last * windows.step
        self.upto = upto
        self.cut, self.end = (start // windows.span + 1) * windows.span, start + windows.span
        self.left = (upto + 1) * windows.step
