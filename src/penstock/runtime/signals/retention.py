"""Which samples points yet to come may depend on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.runtime.flow import NEVER
from penstock.runtime.lanes.rows import Rows


@dataclass(frozen=True)
class Retention:
    """How far back a result reaches: `levels` times, so many ticks and then so many samples.

    `samples` is at least one: what holds at an instant began before it. What is reduced over all time needs
    everything: `sequential`.
    """

    past: int
    samples: int
    levels: int
    sequential: bool

    def needed(
        self, rows: Rows, lanes: np.ndarray, emitted: np.ndarray, ends: np.ndarray | None
    ) -> np.ndarray:
        """Tell which rows to keep, `emitted` being how far each lane is; `ends` are when rows cease to hold."""
        return self.needed_times(rows.times, lanes, emitted, ends)

    def needed_times(
        self, all_times: np.ndarray, lanes: np.ndarray, emitted: np.ndarray, ends: np.ndarray | None = None
    ) -> np.ndarray:
        """The same for what has times and lanes."""
        if self.sequential:
            return np.ones(len(all_times), np.bool_)
        order = np.lexsort((all_times, lanes))
        times, own = all_times[order], lanes[order]
        bounds = np.searchsorted(own, np.arange(len(emitted) + 1))
        since = emitted
        for _ in range(self.levels):
            since = self._before(times, own, bounds, since)
        keep = np.empty(len(all_times), np.bool_)
        keep[order] = times >= since[own]
        return keep if ends is None else keep | (ends > since[lanes])

    def _before(
        self, times: np.ndarray, lanes: np.ndarray, bounds: np.ndarray, since: np.ndarray
    ) -> np.ndarray:
        """Go back so many ticks, then to the sample so many before that."""
        back = np.where(since <= NEVER + self.past, NEVER, since - self.past)
        earlier = np.concatenate([[0], np.cumsum(times < back[lanes])])
        place = np.maximum(np.diff(earlier[bounds]) - self.samples, 0) + bounds[:-1]
        some = np.diff(bounds) > 0
        found = back.copy()
        found[some] = np.minimum(times[np.minimum(place, bounds[1:] - 1)[some]], back[some])
        return found
