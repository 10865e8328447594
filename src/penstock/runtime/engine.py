"""How much of the machine a query may use."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.errors import EngineError, UnsupportedError

DEFAULT_TASK_BYTES = 1 << 20
AGGREGATORS = ("recompute", "two-stacks", "subtract-on-evict")
MOST_THREADS = 4_096
TASKS_PER_THREAD = 16
MOST_ROWS = 1 << 30  # kernels number the rows of a task in 32 bits


@dataclass(frozen=True)
class Engine:
    """The resources of a run: threads, the size of a task, and which back end executes kernels.

    Results do not depend on any of them. `adaptive=False` compiles for the general case at once instead
    of speculating (no nulls, small keys, small sums) and recompiling when a speculation fails.
    `backend="interpret"` runs kernels in plain Python: slow, the definition of their meaning.
    `aggregator` names the algorithm for overlapping windows, wherever an aggregate allows it ("recompute",
    "two-stacks" or "subtract-on-evict"); without it, each aggregate gets the best (`explain()` says which).

    >>> Engine(threads=2).threads
    2
    """

    threads: int | None = None
    devices: Sequence[str] = ("cpu",)
    scheduler: str = "fcfs"
    task_bytes: int = DEFAULT_TASK_BYTES
    adaptive: bool = True
    backend: str = "native"
    aggregator: str | None = None

    def __post_init__(self) -> None:
        if self.threads is not None and not (_is_count(self.threads) and self.threads <= MOST_THREADS):
            raise EngineError(
                f"threads must be a whole number, at least 1 and at most {MOST_THREADS}, not {self.threads!r}"
            )
        if not _is_count(self.task_bytes):
            raise EngineError(f"task_bytes must be a whole number, at least 1, not {self.task_bytes!r}")
        if self.devices != "cpu" and (
            not isinstance(self.devices, (list, tuple)) or tuple(self.devices) != ("cpu",)
        ):
            raise UnsupportedError(f"devices={self.devices!r}: this version runs on ['cpu'] only")
        if self.scheduler != "fcfs":
            raise UnsupportedError(f"scheduler={self.scheduler!r}: this version has 'fcfs' only")
        if self.aggregator not in (None, *AGGREGATORS):
            raise EngineError(f"aggregator must be one of {', '.join(AGGREGATORS)}, not {self.aggregator!r}")
        if self.backend not in ("native", "interpret"):
            raise EngineError(f"backend must be 'native' or 'interpret', not {self.backend!r}")

    @property
    def workers(self) -> int:
        """How many threads run: as asked, or one for each core this process may use."""
        return self.threads or len(os.sched_getaffinity(0))

    def slices(self, rows: int, row_bytes: int) -> Iterator[tuple[int, int]]:
        """Cut rows into tasks: as small as `task_bytes`, but not more than keep all threads busy."""
        smallest = min(max(self.task_bytes // max(row_bytes, 1), 1), MOST_ROWS)
        step = smallest
        if self.task_bytes >= DEFAULT_TASK_BYTES:
            step = min(max(smallest, -(-rows // self._most_tasks)), MOST_ROWS)
        for begin in range(0, rows, step):
            yield begin, min(begin + step, rows)

    @property
    def _most_tasks(self) -> int:
        """As many as even out that one thread is slower than another, which a single one has no need of."""
        return 1 if self.workers == 1 else self.workers * TASKS_PER_THREAD


def _is_count(given: object) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and given > 0
