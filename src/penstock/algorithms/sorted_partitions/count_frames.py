"""Windows of rows as frames: for each key, or at regular positions if all rows are in one partition."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from penstock.algorithms.sorted_partitions.frames import Frames, Released
from penstock.algorithms.sorted_partitions.partitions import Lanes
from penstock.runtime.stage import END_OF_TIME, START_OF_TIME
from penstock.runtime.time_limits import within_reach


@dataclass(frozen=True)
class CountFraming(Released):
    """Windows of rows. The kept rows of a partition begin with the first row of a window, so no count is stored."""

    size: int
    every: int
    partial: bool

    def frames(self, lanes: Lanes, watermark: int) -> Frames:
        if lanes.count == 1:
            return self._regular(lanes, self.partial and watermark == END_OF_TIME)
        rows = np.diff(lanes.bounds)
        each = -(-rows // self.every)  # windows that have begun
        lane = np.repeat(np.arange(lanes.count), each)
        place = np.arange(int(each.sum())) - np.repeat(np.cumsum(each) - each, each)
        lo = lanes.bounds[lane] + place * self.every
        hi = np.minimum(lo + self.size, lanes.bounds[lane + 1])
        full = hi - lo == self.size
        new = full & lanes.fresh[hi - 1]
        if self.partial and watermark == END_OF_TIME:
            new |= ~full
        lo, hi = lo[new], hi[new]
        times = within_reach(lanes.times, 0, 1)
        return Frames(lo, hi, times[lo], times[hi - 1] + 1)

    def _regular(self, lanes: Lanes, cut: bool) -> Regular:
        """The windows that end with a new row. Processed rows come first: the watermark has passed them."""
        rows = len(lanes)
        full = max((rows - self.size) // self.every + 1, 0)
        before = max((lanes.seen - self.size) // self.every + 1, 0)
        begun = -(-rows // self.every)
        within_reach(lanes.times_at(rows - 1, 1, 1), 0, 1)  # the last is the latest
        first = before * self.every
        return Regular(lanes, first, full - before, begun - full if cut else 0, self.size, self.every)

    def needed(self, lanes: Lanes, watermark: int) -> np.ndarray:
        rows = np.diff(lanes.bounds)
        reach = max(self.size, self.every)
        first = np.maximum(-(-(rows - reach + 1) // self.every), 0) * self.every  # of the oldest open window
        place = np.arange(len(lanes)) - np.repeat(lanes.bounds[:-1], rows)
        kept: np.ndarray = place >= np.repeat(first, rows)
        return kept

    def ahead(self, watermark: int) -> int:
        return START_OF_TIME if self.partial and watermark != END_OF_TIME else watermark


class Regular(Frames):
    """Windows of `size` rows of one partition, every `every` rows from row `first` on: `full` full ones, then `cut` partial.

    The end of the partition truncates the partial ones. Bounds are computed on access; most reductions do not need them.
    """

    in_order = True

    def __init__(self, lanes: Lanes, first: int, full: int, cut: int, size: int, every: int) -> None:
        self.lanes, self.first, self.full, self.cut = lanes, first, full, cut
        self.size, self.every = size, every

    def __len__(self) -> int:
        return self.full + self.cut

    @cached_property
    def lo(self) -> np.ndarray:  # type: ignore[override]  # frames are read-only
        return np.arange(self.first, self.first + len(self) * self.every, self.every)

    @cached_property
    def hi(self) -> np.ndarray:  # type: ignore[override]
        found: np.ndarray = np.minimum(self.lo + self.size, len(self.lanes))
        return found

    @property
    def lengths(self) -> np.ndarray:
        return self.hi - self.lo if self.cut else np.full(self.full, self.size)

    @cached_property
    def start(self) -> np.ndarray:  # type: ignore[override]
        return self.lanes.times_at(self.first, len(self), self.every)

    @cached_property
    def end(self) -> np.ndarray:  # type: ignore[override]
        full = self.lanes.times_at(self.first + self.size - 1, self.full, self.every, 1)
        if not self.cut:
            return full
        last = self.lanes.times_at(len(self.lanes) - 1, 1, 1, 1)
        return np.concatenate([full, np.repeat(last, self.cut)])

    @property
    def rest(self) -> Frames:
        """The truncated windows."""
        places = slice(self.full, None)
        return Frames(self.lo[places], self.hi[places], self.start[places], self.end[places])
