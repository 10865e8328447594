"""A persistent thread pool: starting threads for every kernel is too slow for a query of one millisecond."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

Work = Callable[[], object]
T = TypeVar("T")

_MOST = 256
_pools: list[ThreadPoolExecutor] = []


def run_on_threads(work: Sequence[Work], threads: int | None = None) -> None:
    """Run all functions on this thread and on pool threads; raise an error that one of them raised.

    Without `threads`, each function gets a thread. Functions must not wait for other functions of the call: a thread
    that starts late may find the queue empty.
    """
    many = min(len(work), threads or len(work))
    if many == 1:
        for call in work:
            call()
        return
    waiting = deque(work)
    others = [_pool().submit(_drain, waiting) for _ in range(many - 1)]
    try:
        _drain(waiting)
    finally:
        _finish(others)


def ahead(several: Iterable[Iterator[T]], threads: int) -> Iterator[T]:
    """Yield the values of iterators in order; up to `threads` iterators are started on other threads in advance.

    A started iterator has computed its first value; it continues when the iterators before it have ended.
    """
    begun: deque[Future[tuple[T | None, Iterator[T]]]] = deque()
    try:
        for reduction in several:
            begun.append(_pool().submit(_begun, reduction))
            if len(begun) > threads:
                yield from _gone_on(begun.popleft())
        while begun:
            yield from _gone_on(begun.popleft())
    finally:
        wait([future for future in begun if not future.cancel()])


def _begun(values: Iterator[T]) -> tuple[T | None, Iterator[T]]:
    return next(values, None), values


def _gone_on(begun: Future[tuple[T | None, Iterator[T]]]) -> Iterator[T]:
    first, rest = begun.result()
    if first is not None:
        yield first
        yield from rest


def _drain(waiting: deque[Work]) -> None:
    while waiting:
        try:
            work = waiting.popleft()
        except IndexError:  # another thread took the last one
            return
        work()


def _finish(others: Sequence[Future[None]]) -> None:
    """Wait for running threads; cancel those that have not started."""
    for other in [future for future in others if not future.cancel()]:
        other.result()


def _pool() -> ThreadPoolExecutor:
    if not _pools:
        _pools.append(ThreadPoolExecutor(_MOST, thread_name_prefix="penstock"))
    return _pools[0]


# A forked child inherits the pool object, but not its threads.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pools.clear)
