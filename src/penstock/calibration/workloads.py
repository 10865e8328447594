"""The input of a join: two streams of key codes over one window, and the arrival of each row.

Rows are in the order of arrival. Time is cut into ticks of a millisecond; `arrived[t]` rows are there when tick t
begins to be worked on. Data at rest are all there at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

WINDOW_MS = 1000


@dataclass(frozen=True)
class WorkloadSide:
    """One stream: codes, and the number that has arrived by each tick."""

    codes: np.ndarray
    arrived: np.ndarray

    @property
    def rows(self) -> int:
        return len(self.codes)


@dataclass(frozen=True)
class Workload:
    """Two streams over one window of `window_ms` milliseconds; 0 for data at rest."""

    name: str
    left: WorkloadSide
    right: WorkloadSide
    window_ms: int

    @property
    def rows(self) -> int:
        return self.left.rows + self.right.rows

    def at_rest(self) -> Workload:
        """The same rows, all present at the start."""
        left, right = (replace(side, arrived=np.array([side.rows])) for side in (self.left, self.right))
        return Workload(f"{self.name}, at rest", left, right, window_ms=0)


@dataclass(frozen=True)
class Micro:
    """The synthetic workload: rates in rows per millisecond, duplicates of a key, Zipf exponents of keys and of times.

    `scatter` spreads keys over all 64-bit numbers, as hashes or random identifiers are.
    """

    left_rate: int = 1600
    right_rate: int = 1600
    duplicates: int = 1
    key_skew: float = 0.0
    time_skew: float = 0.0
    window_ms: int = WINDOW_MS
    scatter: bool = False
    seed: int = 1

    def make(self, name: str) -> Workload:
        rng = np.random.default_rng(self.seed)
        rows = [rate * self.window_ms for rate in (self.left_rate, self.right_rate)]
        distinct = max(max(rows) // self.duplicates, 1)
        left, right = (self._side(rng, row, distinct) for row in rows)
        return Workload(name, left, right, self.window_ms)

    def _side(self, rng: np.random.Generator, rows: int, distinct: int) -> WorkloadSide:
        if self.key_skew == 0:
            codes = rng.permutation(np.arange(rows, dtype=np.int64) // self.duplicates)
        else:
            codes = zipf(rng, rows, distinct, self.key_skew)
        if self.scatter:
            with np.errstate(over="ignore"):
                codes = codes * np.int64(0x5851F42D4C957F2D)
        return WorkloadSide(codes, arrivals(rows, self.window_ms, self.time_skew))


def zipf(rng: np.random.Generator, rows: int, distinct: int, skew: float) -> np.ndarray:
    """Draw keys whose frequency falls as 1 / rank^skew; which keys are frequent depends on `distinct` alone."""
    sums = np.cumsum(1.0 / np.arange(1, distinct + 1) ** skew)
    drawn = np.searchsorted(sums, rng.random(rows) * sums[-1])
    shuffled = np.random.default_rng(distinct).permutation(distinct)
    codes: np.ndarray = shuffled[np.minimum(drawn, distinct - 1)]
    return codes


def arrivals(rows: int, window_ms: int, skew: float = 0.0) -> np.ndarray:
    """Return the number of rows by each tick: even, or more at the beginning as 1 / tick^skew."""
    weights = 1.0 / np.arange(1, window_ms + 1) ** skew
    shares = np.cumsum(weights) / weights.sum()
    arrived: np.ndarray = np.round(shares * rows).astype(np.int64)
    return arrived
