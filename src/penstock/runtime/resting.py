"""Workers that have finished wait here, each with its table, for the next run of the same query.

After millions of rows went through the caches, each step of making a worker and its table costs what it costs to fetch
it from memory (decision 91).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from threading import Lock

from penstock.runtime.programs import WindowProgram
from penstock.runtime.worker import Worker

MOST = 8  # workers; their tables are small (see `PaneTable.lasting`)


class Lounge:
    """Workers that wait, the one that has waited longest first; who comes when it is full sends that one away."""

    def __init__(self) -> None:
        self._waiting: deque[Worker] = deque(maxlen=MOST)
        self._lock = Lock()

    def hire(self, program: WindowProgram, nullable: frozenset[str], adaptive: bool) -> Worker:
        """A worker that has gathered nothing: one that knows the program, or a new one."""
        with self._lock:
            for worker in self._waiting:
                if worker.program is program and worker.adaptive == adaptive:
                    self._waiting.remove(worker)
                    worker.nullable = nullable
                    return worker
        return Worker(program, nullable, adaptive)

    def rest(self, workers: Iterable[Worker]) -> None:
        """Let workers wait that have gathered nothing since they were reset, and have a table to spare."""
        with self._lock:
            self._waiting.extend(workers)

    def clear(self) -> None:
        """Send all away."""
        with self._lock:
            self._waiting.clear()


LOUNGE = Lounge()
