"""Windows of rows as frames: for each key, or at regular positions if all rows are in one partition."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from penstock.algorithms.sorted_partitions.frames import Frames, Released
from penstock.algorithms.sorted_partitions.partitions import SortedPartitions
from penstock.runtime.stage import END_OF_TIME, START_OF_TIME
from penstock.runtime.time_limits import within_reach


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
