"""The adaptive joiner, which chooses an algorithm for each window, and the metrics of running joins.

A complete window is sampled, then joined. A window with rows still arriving uses the algorithm chosen from the
previous window; if that algorithm is lazy, rows are buffered.

    run = WatchedRun(joiner.open(threads))      # pushed to like the run inside
    run.metrics.latency(0.95), run.metrics.throughput, run.metrics.progress

A pair's latency is the time from the arrival of its later row to its emission.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.algorithms.joins.adapt.tree import JoinChooser
from penstock.algorithms.joins.adapt.window_statistics import SAMPLE, Observed, observe, sampled
from penstock.algorithms.joins.joiner import EagerRun, Emit, Joiner, Pairs, nothing
from penstock.runtime.metrics import ChosenAlgorithm, JoinMetrics, SeenStatistics

PIECE = 256  # rows of each piece retained in the sample, at most


class AutoJoiner:
    """Chooses an algorithm for each window; `decision` holds the last choice and the reason.

    `joiners` returns the joiner of a name. `optimise` is "throughput", "latency" or "progress".
    """

    name = "auto"

    def __init__(
        self,
        joiners: Callable[[str], Joiner],
        chooser: JoinChooser,
        optimise: str = "throughput",
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._joiners, self._chooser, self._optimise = joiners, chooser, optimise
        self._made: dict[str, Joiner] = {}
        self.clock = clock
        self.decision: ChosenAlgorithm | None = None

    def joiner(self, name: str) -> Any:
        """Return the joiner of a name, the same one each time, so that its buffers are reused."""
        if name not in self._made:
            self._made[name] = self._joiners(name)
        return self._made[name]

    @property
    def seen(self) -> SeenStatistics | None:
        """The statistics behind the last decision."""
        return None if self.decision is None else self.decision.seen

    def decide(self, seen: Observed) -> ChosenAlgorithm:
        """Choose an algorithm from the statistics of a window."""
        self.decision = self._chooser.choose(seen, self._optimise)
        return self.decision

    def show(self) -> str:
        """Return the tree, with the last path marked."""
        return self._chooser.show(self._optimise, self.seen)

    def join(self, left: np.ndarray, right: np.ndarray, emit: Emit, threads: int) -> Pairs | int:
        """Join a complete window."""
        joiner = self.joiner(self.decide(observe(left, right, threads=threads)).algorithm)
        if hasattr(joiner, "join"):
            joined: Pairs | int = joiner.join(left, right, emit, threads)
            return joined
        run = joiner.open(threads, emit)
        found = [run.push(0, left), run.push(1, right), run.finish()]
        return sum(found) if emit == "count" else _all(found)

    def open(self, threads: int) -> AutoRun:
        """Open a window. The first one has no statistics, so it uses an eager algorithm."""
        return AutoRun(self, self.decision or ChosenAlgorithm("shj_jm"), threads)


class AutoRun:
    """An open window: a run of an eager algorithm, or buffered rows for a lazy one."""

    def __init__(self, auto: AutoJoiner, chosen: ChosenAlgorithm, threads: int) -> None:
        joiner = auto.joiner(chosen.algorithm)
        self._auto, self._joiner, self._threads, self.chosen = auto, joiner, threads, chosen
        self._eager: EagerRun | None = None if hasattr(joiner, "join") else joiner.open(threads)
        self._waiting: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
        self._samples: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
        self._rows = [0, 0]
        self._begin = auto.clock()

    def push_left(self, codes: np.ndarray) -> Pairs:
        """Add left rows; return the new pairs found so far."""
        self._take(0, codes)
        return nothing() if self._eager is None else self._eager.push_left(codes)

    def push_right(self, codes: np.ndarray) -> Pairs:
        """Add right rows; return the new pairs found so far."""
        self._take(1, codes)
        return nothing() if self._eager is None else self._eager.push_right(codes)

    def close(self) -> Pairs:
        """Return the remaining pairs, and choose for the next window."""
        elapsed = max((self._auto.clock() - self._begin) * 1e3, 1e-3)
        if any(self._rows):
            self._auto.decide(self._observed(elapsed))
        if self._eager is not None:
            return self._eager.close()
        left, right = (_column(pieces) for pieces in self._waiting)
        pairs: Pairs = self._joiner.join(left, right, "pairs", self._threads)
        return pairs

    def _take(self, side: int, codes: np.ndarray) -> None:
        self._rows[side] += len(codes)
        if self._eager is None:
            self._waiting[side].append(codes)
        # The sampled fraction falls as rows arrive, so that the sample stays small.
        wanted = min(PIECE, max(len(codes) * SAMPLE // max(self._rows[side], 1), 1))
        self._samples[side].append(sampled(codes, wanted).copy())

    def _observed(self, window_ms: float) -> Observed:
        left, right = (_column(pieces) for pieces in self._samples)
        return observe(left, right, window_ms, self._threads, (self._rows[0], self._rows[1]))


def _column(pieces: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(pieces) if pieces else np.empty(0, np.int64)


def _all(found: list[Pairs]) -> Pairs:
    left, right = (np.concatenate([pair[side] for pair in found]) for side in (0, 1))
    return left, right


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
