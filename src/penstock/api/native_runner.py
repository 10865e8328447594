"""Run the native loop of a background run, and do what it stops for: in the worker thread, or in one that pushes."""

from __future__ import annotations

from threading import get_ident
from typing import TYPE_CHECKING

from penstock.api.native_queue import NativeQueue, native_queue
from penstock.runtime.ring import COMPLETE, IDLE, LEFT

if TYPE_CHECKING:
    from penstock.api.background_worker import BackgroundWorker

HANDOVER = 0.0002  # seconds for which a thread that made results lets others take them


class NativeRunner:
    """The worker thread runs the loop. A pushing thread helps a loop that stopped: it has the interpreter's lock."""

    def __init__(self, queue: NativeQueue, worker: BackgroundWorker) -> None:
        self.queue, self._worker = queue, worker

    def run(self) -> None:
        """Run the loop, in the worker thread, until nothing waits."""
        worker, queue = self._worker, self.queue
        try:
            reason = COMPLETE
            while reason not in (IDLE, LEFT) and not (worker.failed or worker.glutted):
                reason = queue.run()
                if not worker.failed:
                    self._settle()
        except BaseException as error:
            worker.fail(error)
            if not isinstance(error, Exception):
                raise
        finally:
            with worker.lock:
                worker.runner = None
                queue.rest()
                worker.reopen()
                worker.changed()

    def _settle(self) -> None:
        """Do what the loop stopped for, and deliver results."""
        worker = self._worker
        made = worker.live.settle(self.queue)
        worker.live.metrics.queue_rows = worker.queue.rows + self.queue.rows
        if made:
            worker.deliver(made)
            with worker.lock:
                worker.changed()
        worker.issue_warnings()

    def help(self) -> None:
        """Do what the loop stopped for, in a pushing thread. Takes the lock of the run."""
        worker, queue = self._worker, self.queue
        with worker.lock:
            if worker.failed or worker.glutted or worker.runner == get_ident() or not queue.help():
                return
            before, worker.runner = worker.runner, get_ident()
        try:
            self._settle()
        except BaseException as error:
            worker.fail(error)
            if not isinstance(error, Exception):
                raise
        finally:
            with worker.lock:
                worker.runner = before
                queue.resume(leave=worker.failed or worker.glutted)
                if worker.takers and worker.results:
                    worker.change.wait(HANDOVER)  # threads that take results need the interpreter's lock


def native_runner(worker: BackgroundWorker) -> NativeRunner | None:
    """Return the native part of a background run, if its rows may go to a kernel as they come."""
    queue = native_queue(worker.live, worker.queue_rows, worker.max_delay)
    return None if queue is None else NativeRunner(queue, worker)
