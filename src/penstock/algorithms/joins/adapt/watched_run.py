"""Metrics of running joins: throughput, latency and progress, the paper's three metrics, of each window.

    run = WatchedRun(joiner.open(threads))      # pushed to like the run inside
    run.metrics.latency(0.95), run.metrics.throughput, run.metrics.progress

A pair's latency is the time from the arrival of its later row to its emission.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np

from penstock.algorithms.joins.joiner import EagerRun, Pairs
from penstock.runtime.join_metrics import ChosenAlgorithm, JoinMetrics


class WatchedRun:
    """An eager run that wraps another one and records `metrics`."""

    def __init__(self, run: EagerRun, clock: Callable[[], float] = time.perf_counter) -> None:
        self._run, self._clock, self._begin = run, clock, clock()
        self._arrivals: tuple[_Arrivals, _Arrivals] = (_Arrivals(), _Arrivals())
        self.metrics = JoinMetrics()
        self.chosen: ChosenAlgorithm | None = getattr(run, "chosen", None)

    def push_left(self, codes: np.ndarray) -> Pairs:
        """Add left rows; return the new pairs found so far."""
        self._arrive(0, len(codes))
        return self._given(self._run.push_left(codes))

    def push_right(self, codes: np.ndarray) -> Pairs:
        """Add right rows; return the new pairs found so far."""
        self._arrive(1, len(codes))
        return self._given(self._run.push_right(codes))

    def close(self) -> Pairs:
        """Return the remaining pairs; the metrics are then complete."""
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
    """The arrival times of a side's rows: one time per push."""

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
