"""Measure each window of a lazy join, for the report in the metrics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sized
from dataclasses import dataclass, field
from threading import Lock
from typing import TypeVar

from penstock.runtime.join_metrics import ChosenAlgorithm, JoinMetrics

Note = Callable[
    [ChosenAlgorithm, JoinMetrics, int], None
]  # the algorithm, its measurements, the number of windows
Part = TypeVar("Part", bound=Sized)


@dataclass(frozen=True)
class WindowReport:
    """Measures complete windows: a pair's latency is the time since the join of its window began."""

    note: Note
    clock: Callable[[], float] = time.perf_counter
    _noting: Lock = field(default_factory=Lock, compare=False)  # windows may end on several threads

    def parts(
        self, rows: int, chosen: Callable[[], ChosenAlgorithm], found: Iterator[Part], windows: int = 1
    ) -> Iterator[Part]:
        """Pass on the results of some windows part by part, and measure the time to find each part.

        `chosen` is called after the last part: some pairings choose an algorithm only while joining.
        """
        metrics, spent = JoinMetrics(rows=rows), 0.0
        while True:
            begin = self.clock()
            part = next(found, None)
            spent += self.clock() - begin
            if part is None:
                break
            metrics.add_all(spent, len(part))
            yield part
        metrics.seconds = spent
        with self._noting:
            self.note(chosen(), metrics, windows)
