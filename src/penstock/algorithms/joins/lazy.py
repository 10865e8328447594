"""The base class of the four lazy joiners."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from penstock.algorithms.joins.joiner import Emit, Pairs
from penstock.algorithms.joins.memory import Arena, Kernels, nothing
from penstock.algorithms.joins.window_keys import WindowCodes, survey


class Lazy(ABC):
    """A lazy joiner. Its buffers are reused by the next window, so it joins one window at a time.

    `seconds` holds the durations of the last window's phases: partition, build, sort, merge, probe.
    """

    name: str

    def __init__(self, kernels: Kernels, clock: Callable[[], float] = time.perf_counter) -> None:
        self.kernels, self.arena, self.clock = kernels, Arena(), clock
        self.seconds: dict[str, float] = {}

    def join(self, left: np.ndarray, right: np.ndarray, emit: Emit, threads: int) -> Pairs | int:
        """Return every pair of rows with equal codes, each once and in any order; or only the number of pairs."""
        self.seconds = {}
        if not (len(left) and len(right)):
            return nothing() if emit == "pairs" else 0
        with self.phase("partition"):
            window = survey(self.kernels, left, right, emit == "pairs", threads)
        return window.oriented(self.pairs(window)) if emit == "pairs" else self.count(window)

    @abstractmethod
    def count(self, window: WindowCodes) -> int:
        """Count the matches."""

    @abstractmethod
    def pairs(self, window: WindowCodes) -> tuple[np.ndarray, np.ndarray]:
        """Return the matches as rows of (build, probe)."""

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        begin = self.clock()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + self.clock() - begin
