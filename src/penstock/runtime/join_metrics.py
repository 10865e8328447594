"""Metrics of running joins: throughput, latency and progress of each window (the intra-window-join study's three metrics)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

LATENCY_BUCKETS = 64


FINEST = 1e-6  # seconds; bucket b holds latencies below FINEST * 2^(b / 2)


class SeenStatistics(Protocol):
    """Statistics by name: all of them, or those that a tree has read."""

    def __getitem__(self, name: str, /) -> float:
        """The value of a feature."""


@dataclass(frozen=True, slots=True)
class ChosenAlgorithm:
    """The algorithm that joined a window; if a tree chose it, the window's statistics and the path."""

    algorithm: str
    seen: SeenStatistics | None = None
    path: tuple[str, ...] = ()


@dataclass
class JoinMetrics:
    """The metrics of one window: counts and times in seconds, without its rows."""

    rows: int = 0
    pairs: int = 0
    seconds: float = 0.0
    progress: list[tuple[float, int]] = field(default_factory=list)
    buckets: np.ndarray = field(default_factory=lambda: np.zeros(LATENCY_BUCKETS, np.int64))

    @property
    def throughput(self) -> float:
        """Rows per second, until the last pair (or row)."""
        return self.rows / self.seconds if self.seconds > 0 else 0.0

    def latency(self, quantile: float = 0.95) -> float:
        """Return the seconds within which this fraction of the pairs was emitted, to within a factor of 1.5."""
        if not self.pairs:
            return 0.0
        bucket = int(np.searchsorted(np.cumsum(self.buckets), quantile * self.pairs))
        return float(FINEST * 2 ** (min(bucket, LATENCY_BUCKETS - 1) / 2))

    def time_to(self, part: float) -> float:
        """Return the seconds until this fraction of the pairs had been emitted."""
        return next((at for at, given in self.progress if given >= part * self.pairs), self.seconds)

    def add(self, now: float, waits: np.ndarray) -> None:
        """Record pairs emitted now, and the latency of each."""
        steps = np.ceil(2 * np.log2(np.maximum(waits, FINEST) / FINEST)).astype(np.int64)
        self.buckets += np.bincount(np.minimum(steps, LATENCY_BUCKETS - 1), minlength=LATENCY_BUCKETS)
        self.pairs += len(waits)
        self.seconds = now
        self.progress.append((now, self.pairs))

    def add_all(self, now: float, pairs: int) -> None:
        """Record pairs emitted in one batch, with all rows present from the beginning."""
        step = max(math.ceil(2 * math.log2(max(now, FINEST) / FINEST)), 0)
        self.buckets[min(step, LATENCY_BUCKETS - 1)] += pairs
        self.pairs += pairs
        self.progress.append((now, self.pairs))


@dataclass
class JoinReport:
    """The metrics of all windows of one join: sums, and the progress of the last window.

    `paths` counts windows by algorithm. `chosen` is the last choice made by a tree. `seconds` is the time spent
    on windows.

    >>> report = JoinReport()
    >>> report.add(ChosenAlgorithm("npj"), JoinMetrics(rows=10, pairs=4, seconds=0.5))
    >>> (report.windows, report.throughput, report.paths)
    (1, 20.0, {'npj': 1})
    """

    windows: int = 0
    rows: int = 0
    pairs: int = 0
    seconds: float = 0.0
    paths: dict[str, int] = field(default_factory=dict)
    chosen: ChosenAlgorithm | None = None
    progress: list[tuple[float, int]] = field(default_factory=list)
    buckets: np.ndarray = field(default_factory=lambda: np.zeros(LATENCY_BUCKETS, np.int64))

    def add(self, chosen: ChosenAlgorithm, window: JoinMetrics, windows: int = 1) -> None:
        """Add a complete window, or several that were joined in one call."""
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
        """Rows per second."""
        return self.rows / self.seconds if self.seconds > 0 else 0.0

    def latency(self, quantile: float = 0.95) -> float:
        """Return the seconds within which this fraction of the pairs was emitted, to within a factor of 1.5."""
        return JoinMetrics(pairs=self.pairs, buckets=self.buckets).latency(quantile)

    @property
    def why(self) -> str:
        """The path of the last decision by a tree; empty if no tree was used."""
        return "" if self.chosen is None else f"{', '.join(self.chosen.path)}: {self.chosen.algorithm}"

    def show(self) -> str:
        """Return a one-line summary."""
        paths = ", ".join(f"{name} {count:,}" for name, count in sorted(self.paths.items()))
        return (
            f"{self.windows:,} windows ({paths}), {self.rows:,} rows, {self.pairs:,} pairs, "
            f"{self.throughput:,.0f} rows a second, 95 % of pairs within {self.latency() * 1e3:.3g} ms"
        )
