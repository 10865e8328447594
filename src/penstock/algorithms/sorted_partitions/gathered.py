"""The rows of complete windows, gathered window by window from the rows held, as sorted partitions."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from penstock.algorithms.sorted_partitions.frames import Frames
from penstock.algorithms.sorted_partitions.partitions import SortedPartitions
from penstock.algorithms.sorted_partitions.rows import Rows


@dataclass
class GatheredWindows(SortedPartitions):
    """One window in each partition; `ranks` orders the rows of all windows as they came."""

    ranks: np.ndarray = field(kw_only=True)

    @staticmethod
    def of(rows: Rows, first: np.ndarray, ranks: np.ndarray) -> GatheredWindows:
        """Take rows window by window; `first` has the first row of each."""
        return GatheredWindows(rows, np.append(first, len(rows)), rows.times, ranks=ranks)

    def in_time(self, which: np.ndarray) -> np.ndarray:
        found: np.ndarray = self.ranks[which]
        return found


@dataclass
class GatheredFrames:
    """The framing of gathered windows: their bounds are known before."""

    found: Frames = field(init=False)

    def set(self, lo: np.ndarray, hi: np.ndarray, start: np.ndarray, end: np.ndarray) -> None:
        """Set the windows that are reduced next."""
        self.found = Frames(lo, hi, start, end)

    def frames(self, partitions: SortedPartitions, watermark: int) -> Frames:
        return self.found
