"""The resources a query may use: threads, task size, back end."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from penstock.errors import EngineError, UnsupportedError
from penstock.runtime.adapt.controller import check_assumptions
from penstock.runtime.memory.budget import Budget, memory_bytes
from penstock.types.choices import one_of

DEFAULT_TASK_BYTES = 1 << 20
AGGREGATORS = ("recompute", "two-stacks", "subtract-on-evict")
MOST_THREADS = 4_096
SHARES = 16  # morsels per thread: the last one bounds the time other threads idle
MOST_TASK_ROWS = 1 << 30  # kernels number the rows of a task in 32 bits


@dataclass(frozen=True)
class Engine:
    """The resources of a run: threads, the size of a task, and which back end executes kernels.

    Results do not depend on any of them. `adaptive=False` compiles for the general case at once instead
    of speculating (no nulls, small keys, small sums) and recompiling when a speculation fails.
    `backend="interpret"` runs kernels in plain Python: slow, the definition of their meaning.
    `aggregator` names the algorithm for overlapping windows, wherever an aggregate allows it ("recompute",
    "two-stacks" or "subtract-on-evict"); without it, each aggregate gets the best (`explain()` shows which).
    `memory` ("4GB", "512MiB", or bytes) bounds what a `collect` holds beside its input and result: rows beyond it are
    sorted in temporary files, and operators whose states exceed it raise a `MemoryLimitError`.
    `assume` pins choices of aggregations over windows and of look-backs by their names in `metrics.adaptations`, such as `{"key table": "hash"}`
    or `{"filter order": [[1], [0, 2]]}`: the run begins with them, and changes them only where rows leave it no choice.

    >>> Engine(threads=2, memory="4GB").threads
    2
    """

    threads: int | None = None
    devices: Sequence[str] = ("cpu",)
    scheduler: str = "fcfs"
    task_bytes: int = DEFAULT_TASK_BYTES
    adaptive: bool = True
    backend: str = "native"
    aggregator: str | None = None
    memory: int | str | None = None
    assume: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.threads is not None and not (_is_count(self.threads) and self.threads <= MOST_THREADS):
            raise EngineError(
                f"threads must be a whole number, at least 1 and at most {MOST_THREADS}, not {self.threads!r}"
            )
        if not _is_count(self.task_bytes):
            raise EngineError(f"task_bytes must be a whole number, at least 1, not {self.task_bytes!r}")
        named = self.devices if isinstance(self.devices, (list, tuple)) else (self.devices,)
        if len(named) != 1 or not one_of(named[0], ("cpu",)):
            raise UnsupportedError(f"devices={self.devices!r:.60}: this version runs on ['cpu'] only")
        if not one_of(self.scheduler, ("fcfs",)):
            raise UnsupportedError(f"scheduler={self.scheduler!r:.60}: this version has 'fcfs' only")
        if not isinstance(self.adaptive, bool):
            raise EngineError(f"adaptive must be True or False, not {self.adaptive!r}")
        if self.aggregator is not None and not one_of(self.aggregator, AGGREGATORS):
            raise EngineError(f"aggregator must be one of {', '.join(AGGREGATORS)}, not {self.aggregator!r}")
        if self.memory is not None:
            memory_bytes(self.memory)
        if self.assume is not None:
            check_assumptions(self.assume)
        if not one_of(self.backend, ("native", "interpret")):
            raise EngineError(f"backend must be 'native' or 'interpret', not {self.backend!r}")

    @property
    def budget(self) -> Budget | None:
        """A new budget of `memory` bytes for one run; None without a limit."""
        return None if self.memory is None else Budget(memory_bytes(self.memory))

    @property
    def workers(self) -> int:
        """The number of threads: as configured, or one per core available to this process."""
        return self.threads or len(os.sched_getaffinity(0))

    def task_rows(self, row_bytes: int) -> int:
        """The number of rows in `task_bytes`."""
        return min(max(self.task_bytes // max(row_bytes, 1), 1), MOST_TASK_ROWS)

    def slices(self, rows: int, row_bytes: int) -> Iterator[tuple[int, int]]:
        """Cut rows into tasks of at least `task_bytes`, in a contiguous range per thread.

        If `task_bytes` is below the default, tasks have that size, so that there are many.
        """
        least = self.task_rows(row_bytes)
        if self.task_bytes < DEFAULT_TASK_BYTES:
            yield from pairwise([*range(0, rows, least), rows])
            return
        for worker in range(self.workers):
            begin, end = (rows * (worker + place) // self.workers for place in (0, 1))
            yield from _stretch(begin, end, least, self.workers == 1)


def _stretch(begin: int, end: int, least: int, alone: bool) -> Iterator[tuple[int, int]]:
    """Cut half of a thread's rows into one task, the rest into small ones that faster threads can steal.

    A single thread takes all rows at once.
    """
    half = end if alone else begin + (end - begin) // 2
    step = min(max(least, (end - begin) // SHARES), MOST_TASK_ROWS)
    yield from pairwise([*range(begin, half, MOST_TASK_ROWS), *range(half, end, step), end])


def _is_count(given: object) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and given > 0
