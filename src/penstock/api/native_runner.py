"""Run the native loop of a background run, and do what it stops for: in the worker thread, or in one that pushes.

With several threads, results of complete windows are computed by the thread that helps while the loop goes on:

    loop (worker thread)   fold … stop │ fold the next windows            … stop │
    thread that pushes                 │ detach │ emit, deliver │                │ detach │ emit …
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock, get_ident
from typing import TYPE_CHECKING

from penstock.api.native_queue import NativeQueue, native_queue
from penstock.runtime.ring import COMPLETE, IDLE, LEFT

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.api.background_worker import BackgroundWorker

HANDOVER = 0.0002  # seconds for which a thread that made results lets others take them


class Overlapped:
    """Results computed while the loop goes on, once: by the thread that prepared them, or by one that cannot wait."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work, self._lock, self._done = work, Lock(), False

    def run(self) -> None:
        """Compute the results, or wait until another thread has."""
        with self._lock:
            if not self._done:
                self._done = True  # also of work that fails, which ends the run
                self._work()


class NativeRunner:
    """The worker thread runs the loop. A pushing thread helps a loop that stopped: it has the interpreter's lock."""

    def __init__(self, queue: NativeQueue, worker: BackgroundWorker) -> None:
        self.queue, self._worker = queue, worker
        self._overlapped: Overlapped | None = None
        self._emitters: set[int] = set()  # threads that compute results while the loop goes on

    @property
    def emits_here(self) -> bool:
        """Whether this thread is computing results while the loop goes on."""
        return get_ident() in self._emitters

    def run(self) -> None:
        """Run the loop, in the worker thread, until nothing waits."""
        worker, queue = self._worker, self.queue
        try:
            reason = COMPLETE
            while reason not in (IDLE, LEFT) and not (worker.failed or worker.glutted):
                reason = queue.run()
                if not worker.failed:
                    self._settle(overlaps=False)
        except BaseException as error:
            worker.fail(error)
            if not isinstance(error, Exception):
                raise
        finally:
            with worker.lock:
                worker.runner = None
                if worker.failed:
                    queue.clear()
                queue.rest()
                worker.reopen()
                worker.changed()

    def abandon(self) -> int:
        """Drop what waits; return the number of rows. The caller holds the lock.

        While the loop goes on in another thread it reads what waits, which is dropped when it has returned.
        """
        if self._worker.runner in (None, get_ident()):
            return self.queue.clear()
        self.queue.close()
        self.queue.leave(True)
        return self.queue.rows

    def _settle(self, overlaps: bool) -> Overlapped | None:
        """Do what the loop stopped for, and deliver results; return those that are to be computed while it goes on."""
        worker = self._worker
        if self._overlapped is not None:
            self._overlapped.run()
            self._overlapped = None
            if worker.failed:
                return None
        made, compute = worker.live.settle(self.queue, overlaps)
        worker.live.metrics.queue_rows = worker.queue.rows + self.queue.rows
        self._deliver(made)
        if compute is not None:
            self._overlapped = Overlapped(lambda: self._deliver(compute()))
        return self._overlapped

    def _deliver(self, made: list[pa.RecordBatch]) -> None:
        worker = self._worker
        if made:
            worker.deliver(made)
            with worker.lock:
                worker.changed()
        worker.issue_warnings()

    def help(self) -> None:
        """Do what the loop stopped for, in a pushing thread. Takes the lock of the run."""
        worker, queue = self._worker, self.queue
        with worker.lock:
            if worker.failed or worker.glutted or worker.runs_here or not queue.help():
                return
            before, worker.runner = worker.runner, get_ident()
        overlapped = None
        try:
            # A function of results may call anything, also what waits for the loop.
            overlapped = self._settle(overlaps=not worker.calls_back)
        except BaseException as error:
            worker.fail(error)
            if not isinstance(error, Exception):
                raise
        finally:
            with worker.lock:
                worker.runner = before
                queue.resume(leave=worker.failed or worker.glutted)
                if overlapped is None and worker.takers and worker.results:
                    worker.change.wait(HANDOVER)  # threads that take results need the interpreter's lock
        if overlapped is not None:
            self._emit(overlapped)

    def _emit(self, overlapped: Overlapped) -> None:
        """Compute results while the loop goes on."""
        self._emitters.add(get_ident())
        try:
            overlapped.run()
        except BaseException as error:
            self._worker.fail(error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._emitters.discard(get_ident())

    def help_until_room(self) -> None:
        """While the ring is full, wait for the loop to stop, and do what it stopped for. Takes the lock of the run."""
        worker, queue = self._worker, self.queue
        while queue.running and not (worker.room() or worker.glutted or worker.runs_here):
            if queue.watch():
                return  # what waits behind the ring may still be too much
            if queue.needs_help:
                self.help()


def native_runner(worker: BackgroundWorker) -> NativeRunner | None:
    """Return the native part of a background run, if its rows may go to a kernel as they come."""
    queue = native_queue(worker.live, worker.queue_rows, worker.max_delay)
    return None if queue is None else NativeRunner(queue, worker)
