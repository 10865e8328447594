"""Watch a join while it runs: throughput, latency and progress, the paper's three metrics, of each window.

    run = WatchedRun(joiner.open(threads))      # pushed to like the run inside
    run.metrics.latency(0.95), run.metrics.throughput, run.metrics.progress

A pair's latency is the time from the arrival of its later row to the moment it is given.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from penstock.runtime.adapt.tree import Chosen
from penstock.runtime.joins.joiner import EagerRun, Pairs

BUCKETS = 64
_FINEST = 1e-6  # seconds; bucket b holds latencies below FINEST * 2^(b / 2)


@dataclass
class JoinMetrics:
    """What became of one window: counts, times in seconds, and no row of it."""

    rows: int = 0
    pairs: int = 0
    seconds: float = 0.0
    progress: list[tuple[float, int]] = field(default_factory=list)
    buckets: np.ndarray = field(default_factory=lambda: np.zeros(BUCKETS, np.int64))

    @property
    def throughput(self) -> float:
        """Rows a second, until the last pair (or row)."""
        return self.rows / self.seconds if self.seconds > 0 else 0.0

    def latency(self, quantile: float = 0.95) -> float:
        """Seconds within which this part of the pairs was given, to within a factor of 1.5."""
        if not self.pairs:
            return 0.0
        bucket = int(np.searchsorted(np.cumsum(self.buckets), quantile * self.pairs))
        return float(_FINEST * 2 ** (min(bucket, BUCKETS - 1) / 2))

    def time_to(self, part: float) -> float:
        """Seconds until this part of the pairs had been given."""
        return next((at for at, given in self.progress if given >= part * self.pairs), self.seconds)

    def add(self, now: float, waits: np.ndarray) -> None:
        """Note pairs that are given now, and how long each one's later row had waited."""
        steps = np.ceil(2 * np.log2(np.maximum(waits, _FINEST) / _FINEST)).astype(np.int64)
        self.buckets += np.bincount(np.minimum(steps, BUCKETS - 1), minlength=BUCKETS)
        self.pairs += len(waits)
        self.seconds = now
        self.progress.append((now, self.pairs))

    def add_all(self, now: float, pairs: int) -> None:
        """Note pairs that are given together, all rows having been there from the beginning."""
        step = max(math.ceil(2 * math.log2(max(now, _FINEST) / _FINEST)), 0)
        self.buckets[min(step, BUCKETS - 1)] += pairs
        self.pairs += pairs
        self.progress.append((now, self.pairs))


@dataclass
class JoinReport:
    """What became of all windows of one join: sums over them, and how the last one went on.

    `paths` counts the windows by what they were joined by, `chosen` is the last choice that a tree made.
    `seconds` are those in which windows were under way.

    >>> report = JoinReport()
    >>> report.add(Chosen("npj"), JoinMetrics(rows=10, pairs=4, seconds=0.5))
    >>> (report.windows, report.throughput, report.paths)
    (1, 20.0, {'npj': 1})
    """

    windows: int = 0
    rows: int = 0
    pairs: int = 0
    seconds: float = 0.0
    paths: dict[str, int] = field(default_factory=dict)
    chosen: Chosen | None = None
    progress: list[tuple[float, int]] = field(default_factory=list)
    buckets: np.ndarray = field(default_factory=lambda: np.zeros(BUCKETS, np.int64))

    def add(self, chosen: Chosen, window: JoinMetrics, windows: int = 1) -> None:
        """Take in a window that is complete, or several that were joined together."""
        self.windows += windows
        self.rows += window.rows
        self.pairs += window.pairs
        self.seconds += window.seconds
        self.paths[chosen.algorithm] = self.paths.get(chosen.algorithm, 0) + windows
        self.chosen = self.chosen if chosen.seen is None else chosen
        self.progress = window.progress
        self.buckets = self.buckets + window.buckets

    @property
    def throughput(self) -> float:
        """Rows a second."""
        return self.rows / self.seconds if self.seconds > 0 else 0.0

    def latency(self, quantile: float = 0.95) -> float:
        """Seconds within which this part of the pairs was given, to within a factor of 1.5."""
        return JoinMetrics(pairs=self.pairs, buckets=self.buckets).latency(quantile)

    @property
    def why(self) -> str:
        """The answers by which a tree chose last; nothing where none was asked."""
        return "" if self.chosen is None else f"{', '.join(self.chosen.path)}: {self.chosen.algorithm}"

    def show(self) -> str:
        """One line for readers."""
        paths = ", ".join(f"{name} {count:,}" for name, count in sorted(self.paths.items()))
        return (
            f"{self.windows:,} windows ({paths}), {self.rows:,} rows, {self.pairs:,} pairs, "
            f"{self.throughput:,.0f} rows a second, 95 % of pairs within {self.latency() * 1e3:.3g} ms"
        )


class WatchedRun:
    """A run of an eager joiner that keeps `metrics`; itself such a run."""

    def __init__(self, run: EagerRun, clock: Callable[[], float] = time.perf_counter) -> None:
        self._run, self._clock, self._begin = run, clock, clock()
        self._arrivals: tuple[_Arrivals, _Arrivals] = (_Arrivals(), _Arrivals())
        self.metrics = JoinMetrics()
        self.chosen: Chosen | None = getattr(run, "chosen", None)

    def push_left(self, codes: np.ndarray) -> Pairs:
        """Take left rows; give the pairs that are new and known."""
        self._arrive(0, len(codes))
        return self._given(self._run.push_left(codes))

    def push_right(self, codes: np.ndarray) -> Pairs:
        """Take right rows; give the pairs that are new and known."""
        self._arrive(1, len(codes))
        return self._given(self._run.push_right(codes))

    def close(self) -> Pairs:
        """Give the pairs that are left; the metrics are complete."""
        return self._given(self._run.close())

    def _arrive(self, side: int, rows: int) -> None:
        self._arrivals[side].add(rows, self._clock() - self._begin)
        self.metrics.rows += rows
        self.metrics.seconds = self._clock() - self._begin

    def _given(self, pairs: Pairs) -> Pairs:
        if len(pairs[0]):
            now = self._clock() - self._begin
            left, right = (arrivals.times(rows) for arrivals, rows in zip(self._arrivals, pairs, strict=True))
            self.metrics.add(now, now - np.maximum(left, right))
        return pairs


class _Arrivals:
    """When the rows of a side came: one time for each push."""

    def __init__(self) -> None:
        self._ends: list[int] = []
        self._times: list[float] = []

    def add(self, rows: int, now: float) -> None:
        self._ends.append((self._ends[-1] if self._ends else 0) + rows)
        self._times.append(now)

    def times(self, rows: np.ndarray) -> np.ndarray:
        if not self._ends:
            return np.full(len(rows), -math.inf)
        found: np.ndarray = np.array(self._times)[np.searchsorted(self._ends, rows, side="right")]
        return found
