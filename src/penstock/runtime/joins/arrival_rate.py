"""How fast rows come: one of the facts that a join algorithm is chosen by."""

from __future__ import annotations

import time
from collections.abc import Callable


class Arrivals:
    """Counts rows from one time that windows are complete to the next."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock, self._begin, self._rows = clock, clock(), 0
        self._rate = 0.0  # rows a millisecond, between the last two times

    def add(self, rows: int) -> None:
        """Rows have come."""
        self._rows += rows

    def turn(self) -> None:
        """Windows are complete: what comes now belongs to others."""
        now = self._clock()
        self._rate = self._rows / max((now - self._begin) * 1e3, 1e-6)
        self._begin, self._rows = now, 0

    def milliseconds(self, rows: int) -> float:
        """How long so many rows took to come, at the rate of those that came last.

        >>> times = iter([0.0, 0.5])
        >>> arrivals = Arrivals(lambda: next(times))
        >>> arrivals.add(1000)
        >>> arrivals.turn()
        >>> arrivals.milliseconds(200)
        100.0
        """
        return rows / self._rate if self._rate else 0.0


def at_rest(rows: int) -> float:
    """How long rows took to come that were all there: no time."""
    return 0.0
