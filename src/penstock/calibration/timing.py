"""Time a call by the clock and by processor time."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

Clock = Callable[[], float]
"""Seconds since some moment."""


def best_seconds(call: Callable[[], object], repeat: int) -> float:
    """Give the shortest of `repeat` calls."""
    return min(timed(call)[0] for _ in range(repeat))


def timed(call: Callable[[], object], processors: Clock = time.process_time) -> tuple[float, float]:
    """Call once, with the garbage collector held off, and give the clock's and the processors' seconds."""
    gc.collect()
    gc.disable()
    try:
        begin, begin_cpu = time.perf_counter(), processors()
        answer = call()
        elapsed = time.perf_counter() - begin, processors() - begin_cpu
        del answer  # freeing the answer is not part of giving it
        return elapsed
    finally:
        gc.enable()
