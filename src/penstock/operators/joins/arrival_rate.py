"""The arrival rate of rows, an input to the choice of a join algorithm."""

from __future__ import annotations

import time
from collections.abc import Callable


class ArrivalRate:
    """Counts the rows that arrive between two emissions of complete windows."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock, self._begin, self._rows = clock, clock(), 0
        self._rate = 0.0  # rows per millisecond, between the last two emissions

    def add(self, rows: int) -> None:
        """Count rows that have arrived."""
        self._rows += rows

    def turn(self) -> None:
        """Update the rate when windows are complete; start a new count."""
        now = self._clock()
        self._rate = self._rows / max((now - self._begin) * 1e3, 1e-6)
        self._begin, self._rows = now, 0

    def milliseconds(self, rows: int) -> float:
        """Return how long a number of rows took to arrive, at the last rate.

        >>> times = iter([0.0, 0.5])
        >>> arrivals = ArrivalRate(lambda: next(times))
        >>> arrivals.add(1000)
        >>> arrivals.turn()
        >>> arrivals.milliseconds(200)
        100.0
        """
        return rows / self._rate if self._rate else 0.0


def at_rest(rows: int) -> float:
    """Return the arrival time of rows that were all present at the start: zero."""
    return 0.0
