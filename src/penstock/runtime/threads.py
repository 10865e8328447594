"""Threads that stay: a query that takes a millisecond cannot afford to start them for every kernel."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

Work = Callable[[], object]

_MOST = 256
_pools: list[ThreadPoolExecutor] = []


def run_on_threads(work: Sequence[Work], threads: int | None = None) -> None:
    """Run all functions, this thread and others taking them in turn, and raise what one of them raised.

    Without `threads`, there is a thread for each. Functions must not wait for each other: a thread that
    is late finds its work done by those that were not.
    """
    many = min(len(work), threads or len(work))
    waiting = deque(work)
    others = [_pool().submit(_drain, waiting) for _ in range(many - 1)]
    try:
        _drain(waiting)
    finally:
        _finish(others)


def _drain(waiting: deque[Work]) -> None:
    while waiting:
        try:
            each = waiting.popleft()
        except IndexError:  # another thread was faster
            return
        each()


def _finish(others: Sequence[Future[None]]) -> None:
    """Wait for threads at work; those that did not even begin have nothing left to do."""
    for other in [each for each in others if not each.cancel()]:
        other.result()


def _pool() -> ThreadPoolExecutor:
    if not _pools:
        _pools.append(ThreadPoolExecutor(_MOST, thread_name_prefix="penstock"))
    return _pools[0]


# A forked child has the pool, but none of its threads.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pools.clear)
