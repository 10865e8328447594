"""Note how each window of a lazy join went, for the report in the metrics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from penstock.runtime.adapt.watch import JoinMetrics

Note = Callable[[str, JoinMetrics, int], None]  # the algorithm, what became of windows, how many they are
Part = TypeVar("Part", bound=Sized)
Given = Callable[[str, int], None]  # the algorithm, and how many pairs it gave


@dataclass(frozen=True)
class Watch:
    """Times windows that are complete: a pair's latency is the time since its window was taken up."""

    note: Note
    clock: Callable[[], float] = time.perf_counter

    @contextmanager
    def window(self, rows: int, windows: int = 1) -> Iterator[Given]:
        """Time what is done inside, which tells the algorithm and the number of pairs."""
        begin = self.clock()

        def given(path: str, pairs: int) -> None:
            seconds = self.clock() - begin
            metrics = JoinMetrics(rows=rows, seconds=seconds)
            metrics.add_all(seconds, pairs)
            self.note(path, metrics, windows)

        yield given

    def parts(self, rows: int, path: str, found: Iterator[Part]) -> Iterator[Part]:
        """Pass on the results of one window part by part, and time how long each took to find."""
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
        self.note(path, metrics, 1)


def unwatched() -> Watch:
    """A watch that nobody reads."""
    return Watch(lambda path, metrics, windows: None)
