"""What the four lazy joiners share."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from penstock.runtime.join_algorithms.memory import Arena, Kernels, nothing
from penstock.runtime.join_algorithms.window_keys import Window, survey
from penstock.runtime.joins.joiner import Emit, Pairs


class Lazy(ABC):
    """A lazy joiner. Its memory stays for the next window, so one window at a time.

    `seconds` tells how long the last window's phases took: partition, build, sort, merge, probe.
    """

    name: str

    def __init__(self, kernels: Kernels, clock: Callable[[], float] = time.perf_counter) -> None:
        self.kernels, self.arena, self.clock = kernels, Arena(), clock
        self.seconds: dict[str, float] = {}

    def join(self, left: np.ndarray, right: np.ndarray, emit: Emit, threads: int) -> Pairs | int:
        """Give every pair of rows with equal codes, each once and in any order; or only how many there are."""
        self.seconds = {}
        if not (len(left) and len(right)):
            return nothing() if emit == "pairs" else 0
        with self.phase("partition"):
            window = survey(self.kernels, left, right, emit == "pairs", threads)
        return window.oriented(self.pairs(window)) if emit == "pairs" else self.count(window)

    @abstractmethod
    def count(self, window: Window) -> int:
        """Count the matches."""

    @abstractmethod
    def pairs(self, window: Window) -> tuple[np.ndarray, np.ndarray]:
        """Give the matches as rows of (build, probe)."""

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        begin = self.clock()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + self.clock() - begin
