"""Gather queued rows into tasks, and run one task at a time: in a worker thread, or in a push that finds it overdue."""

from __future__ import annotations

import asyncio
import concurrent.futures.thread  # noqa: F401 - see `_drain_all`
import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from threading import Condition, RLock, Thread, get_ident
from weakref import WeakSet

import pyarrow as pa

from penstock.api.live import Given, Live
from penstock.api.native_runner import native_runner
from penstock.api.row_queue import Call, RowQueue, joined
from penstock.errors import BindingError, StateError
from penstock.runtime.metrics import StateSize

Results = Callable[[pa.RecordBatch], object]
Task = tuple[list[Given] | Call, dict[str, int] | None]

GATHERED_ROWS = (
    1 << 16
)  # rows; their processing far exceeds the fixed cost of a task, so that waiting for more gains nothing
WAITING_RESULT_ROWS = 1 << 20  # rows of results that may wait, at least
# Seconds:
_PATIENCE = 0.0005  # for which a push leaves a due task to the worker
YIELD = 0.0002  # for which a push lets another thread go on with a task while rows are overdue
_TICK = 0.001  # between two looks at the clock, where time alone completes results


class BackgroundWorker:
    """The queue of a background run, its results, and the thread that processes what waits.

    One thread at a time runs a task, the `runner`; no other thread calls the open query meanwhile. The worker thread holds
    no reference to `Background`, so that a run that is dropped ends, after it has processed what was pushed.
    """

    def __init__(self, live: Live, max_delay: float, queue_rows: int, on_result: Results | None) -> None:
        self.live, self.max_delay, self.queue_rows = live, max_delay, queue_rows
        self._on_result = on_result
        self.queue = RowQueue()
        self.native = native_runner(self)
        self.results: deque[pa.RecordBatch] = deque()
        self.result_rows = 0
        # The bare lock is entered by `with`: a condition's `__enter__` has a gap in which an interrupt leaves it closed.
        self.lock = RLock()
        self.work, self.change = Condition(self.lock), Condition(self.lock)
        self.waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self.takers = 0  # threads that wait for results
        self.consumers: set[int] = set()  # threads that have taken results
        self.error: BaseException | None = None
        self.failed = self.closing = self.ended = False
        self.runner: int | None = None
        self.idle = self._hurried = False
        self._paused = 0
        self._pid = os.getpid()
        self.thread = Thread(target=self._run, name="penstock-background", daemon=True)
        self.thread.start()
        _OPEN.add(self)

    # -- tasks ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._step():
                pass
        except BaseException as error:  # noqa: BLE001 - raised by the next call of the user
            self.fail(error)
        with self.lock:
            self.ended = True
            self.changed()

    def _step(self) -> bool:
        """Wait for a task and run it; return whether to go on."""
        with self.lock:
            self._await_work()
            if self.failed or (self.closing and not (self.queue or self.waits_natively)):
                return False
            natively = self.waits_natively
            task = None if natively else self._begin()
            if natively:
                self.runner = get_ident()
        if task is not None:
            self._process(*task)
        elif self.native is not None:
            self.native.run()
        return True

    @property
    def waits_natively(self) -> bool:
        """Whether rows wait for the native loop; they came before those in the queue."""
        return self.native is not None and self.native.queue.waiting

    def close_ring(self) -> None:
        """Let rows wait in the queue from now on; the caller holds the lock."""
        if self.native is not None:
            self.native.queue.close()

    def reopen(self) -> None:
        """Let rows wait in the ring again, once the queue is empty; the caller holds the lock."""
        if self.native is not None and not (self.queue or self.failed or self.closing or self.waits_natively):
            self.native.queue.reopen()

    def _await_work(self) -> None:
        """Wait until a task is due, or the run ends."""
        tick = max(self.max_delay, _TICK)
        while not self.failed:
            timeout: float | None = tick
            if self._paused:
                timeout = None
            elif self.runner is None:
                if self.waits_natively or (self.queue and (self.closing or self._is_due())):
                    if not self.glutted:
                        return
                    timeout = None  # until results are taken
                elif self.queue:
                    timeout = max(self.queue.oldest + self.max_delay - self.live.clock.now(), 0.0)
                elif self.closing:
                    return
                else:
                    self._hurry(False)
                    timeout = tick if self.live.timed else None
            self.idle = True
            # A writer commits without the lock, and wakes an idle worker only.
            signalled = self._overlooked() or self.work.wait(timeout)
            self.idle = False
            idle = self.runner is None and not (self.queue or self._paused)
            if not signalled and self.live.timed and idle:
                return

    def _overlooked(self) -> bool:
        return self.waits_natively and self.runner is None and not (self._paused or self.glutted)

    def _is_due(self) -> bool:
        queue = self.queue
        opens = self.native is not None and self.native.queue.may_open  # the ring gathers rows at less cost
        return (
            self._hurried
            or opens
            or queue.calls > 0
            or queue.rows >= min(GATHERED_ROWS, self.queue_rows)
            or self.live.clock.now() >= queue.oldest + self.max_delay
        )

    def _begin(self) -> Task:
        """Take a task; the caller holds the lock."""
        taken: list[Given] | Call = self.queue.take() if self.queue else []
        # Rows that arrive from now on have these times, or later ones; rows that still wait have earlier ones.
        stamps = None if self.queue else self.live.stamps()
        self.runner = get_ident()
        self.live.metrics.queue_rows = self.queue.rows
        self.changed()
        return taken, stamps

    def _process(self, taken: list[Given] | Call, stamps: dict[str, int] | None) -> None:
        """Run a task and deliver its results; an error ends the run."""
        try:
            if callable(taken):
                made = self.live.queued(taken)
            else:
                made = self.live.feed(joined(taken) if taken else [], stamps)
            self.deliver(made)
            self.issue_warnings()
        except BaseException as error:
            self.fail(error)
            if not isinstance(error, Exception):
                raise
        finally:
            with self.lock:
                self.runner = None
                self.reopen()
                self.changed()

    def held(self) -> dict[str, StateSize]:
        """Measure the state of each operator between two tasks. Takes the lock."""
        with self.lock:
            if self.runner == get_ident():
                return self.live.held()
            self._pause(1)
            try:
                while self.runner is not None:
                    self.change.wait(YIELD)
                return self.live.held()
            finally:
                self._pause(-1)
                self.work.notify()

    def _pause(self, change: int) -> None:
        self._paused += change
        if self.native is not None:
            self.native.queue.leave(self._paused > 0)

    def _hurry(self, on: bool) -> None:
        self._hurried = on
        if self.native is not None:
            self.native.queue.hurry(on or self.closing)

    def fail(self, error: BaseException) -> None:
        with self.lock:
            self.error, self.failed = error, True
            lost = self.queue.clear()
            if self.native is not None:
                lost += self.native.abandon()
        if lost:
            error.add_note(f"{lost:,} rows that were pushed behind it have not been processed")

    def deliver(self, made: list[pa.RecordBatch]) -> None:
        if self._on_result is not None:
            for batch in made:
                self._on_result(batch)
        elif made:
            with self.lock:
                self.results.extend(made)
                self.result_rows += sum(batch.num_rows for batch in made)

    def issue_warnings(self) -> None:
        """Issue warnings; one that is an error is raised by the next call, and the run goes on."""
        try:
            self.live.warn()
        except Warning as warning:
            self.error = warning

    def changed(self) -> None:
        """Wake the threads that wait for a task to end, for results, for room or for the end; the caller holds the lock."""
        self.change.notify_all()
        if self.idle and (self._hurried or self.closing or self.failed):
            self.work.notify()
        waiters, self.waiters = self.waiters, []
        for loop, future in waiters:
            try:
                loop.call_soon_threadsafe(_resolve, future)
            except RuntimeError:  # the loop is closed
                continue

    # -- calls of other threads; the caller holds the lock where nothing else is said --------------------

    def own(self) -> RLock:
        """The lock, unless this process is a fork, whose copy of the lock may be closed for ever."""
        if os.getpid() != self._pid:
            raise StateError(
                "this query was opened in another process, whose worker a fork does not copy; open it again here"
            )
        return self.lock

    def check(self) -> None:
        """Raise the error of a task, once; then refuse calls."""
        error, self.error = self.error, None
        if error is not None:
            raise error
        if self.failed:
            raise StateError(
                "an earlier push failed halfway: continue from the state that was saved before it, or start again"
            )

    def room(self) -> bool:
        """Whether the queue has room, or no room will come."""
        queue = None if self.native is None else self.native.queue
        if queue is None:
            fits = self.queue.rows < self.queue_rows
        else:
            fits = self.queue.rows + queue.rows < self.queue_rows and queue.ring.has_room
        return fits or self.ended or self.failed

    @property
    def calls_back(self) -> bool:
        """Whether results go to a function."""
        return self._on_result is not None

    @property
    def runs_here(self) -> bool:
        """Whether this thread runs a task or computes its results: it is in a function of results."""
        return self.runner == get_ident() or (self.native is not None and self.native.emits_here)

    def await_room(self) -> None:
        """Wait until the queue has room. A function of results that pushes does not wait: its thread makes the room."""
        while not self.room() and not self.runs_here:
            if self.glutted and not self.consumers - {get_ident()}:
                raise BindingError(
                    f"the queue is full, and {self.result_rows:,} rows of results have not been taken; iterate over the "
                    "open query in another thread, or give on_result="
                )
            self.hurry()
            # The native loop makes room without a word.
            self.change.wait(YIELD if self.native is not None and self.native.queue.running else None)

    def wake(self) -> None:
        """Wake the worker for rows in the ring, or do what its loop stopped for. Takes the lock."""
        if self.idle:
            with self.lock:
                self.work.notify()
        else:
            self.help()

    def offered_natively(self) -> None:
        """Wake the worker if rows arrived for the native loop, which does not run; the caller holds the lock."""
        if self.idle:
            self.work.notify()

    def offered(self, was_empty: bool) -> None:
        """Wake the worker if rows arrived for which it waits."""
        self.close_ring()
        self.live.metrics.queue_rows = self.queue.rows
        if self.idle and (was_empty or self.queue.rows >= min(GATHERED_ROWS, self.queue_rows)):
            self.work.notify()

    def hurry(self) -> None:
        """Process what waits without further delay."""
        self._hurry(True)
        self.work.notify()

    def taken(self, batch: pa.RecordBatch) -> None:
        """Count a batch of results as taken."""
        self.result_rows -= batch.num_rows
        if self.idle and (self.queue or self.waits_natively):
            self.work.notify()

    @property
    def glutted(self) -> bool:
        """Whether so many results wait that no task is begun until some are taken; a run that ends processes all."""
        return not self.closing and self.result_rows >= max(self.queue_rows, WAITING_RESULT_ROWS)

    def quiet(self) -> bool:
        """Whether everything pushed has been processed."""
        return self.ended or (not self.queue and self.runner is None and not self.waits_natively)

    @property
    def overdue(self) -> bool:
        """Whether rows have waited for `max_delay`."""
        return bool(self.queue) and self.live.clock.now() - self.queue.oldest >= self.max_delay

    def help(self) -> None:
        """Run a task in the pushing thread if it is overdue, or let another thread go on with one. Takes the lock.

        A thread that pushes all the time keeps the interpreter's lock for 5 ms at a time, and a task requests it many
        times: without help, results would be late by tenths of a second.
        """
        if self.native is not None and self.native.queue.needs_help:
            self.native.help()
            return
        with self.lock:
            if not self.queue or self.closing or self.waits_natively:
                return
            if self.runner is not None:
                if self.runner != get_ident() and self.overdue:
                    self.change.wait(YIELD)
                return
            age = self.live.clock.now() - self.queue.oldest
            if age < max(self.max_delay / 2, _PATIENCE) or self.glutted:
                return
            task = self._begin()
        self._process(*task)

    def stop(self) -> None:
        """Let the worker end once it has processed what was pushed. Takes the lock."""
        if os.getpid() == self._pid:
            with self.lock:
                self.closing = True
                self.close_ring()
                self._hurry(True)
                self.work.notify()

    def drain(self) -> None:
        """Process what was pushed, and end. Takes the lock."""
        self.stop()
        if os.getpid() == self._pid and not self.runs_here and get_ident() != self.thread.ident:
            self.thread.join()


_OPEN: WeakSet[BackgroundWorker] = WeakSet()


def _drain_all() -> None:
    """At the exit of the interpreter: process what was pushed, and show errors that no call has raised."""
    for worker in list(_OPEN):
        worker.drain()
        if worker.error is not None:
            sys.excepthook(type(worker.error), worker.error, worker.error.__traceback__)


# Functions of `atexit` run when thread pools are closed and compilers of kernels are no longer waited for. These run
# before, the last registered first; `concurrent.futures` registers its own when it is loaded.
threading._register_atexit(_drain_all)  # type: ignore[attr-defined]  # noqa: SLF001


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
