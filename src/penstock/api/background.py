"""An open query in the background: pushes are queued, and a worker thread gathers them into tasks."""

from __future__ import annotations

import asyncio
import atexit
import os
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from os import PathLike
from threading import Condition, RLock, Thread, current_thread
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from weakref import finalize

import pyarrow as pa

from penstock.api.arguments import shown, whole
from penstock.api.late_and_malformed import seconds
from penstock.api.live import Given, Live
from penstock.api.row_queue import Call, RowQueue, joined
from penstock.api.writer import BLOCK_ROWS, Block, Writer
from penstock.errors import BindingError, StateError
from penstock.runtime.state.state import State
from penstock.sources.malformed import Arrived
from penstock.types.duration import Duration

if TYPE_CHECKING:
    import numpy as np

    from penstock.runtime.metrics import Metrics

Results = Callable[[pa.RecordBatch], object]
QUEUE_ROWS = 1 << 20
MAX_DELAY = 0.001  # seconds
ENOUGH = (
    1 << 16
)  # rows; their processing far exceeds the fixed cost of a task, so that waiting for more gains nothing
_TICK = 0.001  # seconds between two looks at the clock, where time alone completes results


class Worker:
    """The worker thread, its queue and its results.

    Only the worker calls the open query, but for its state. It holds no reference to `Background`, so that a run that is
    dropped can end: it processes what was pushed first.
    """

    def __init__(self, live: Live, max_delay: float, queue_rows: int, on_result: Results | None) -> None:
        self.live, self.max_delay, self.queue_rows = live, max_delay, queue_rows
        self._on_result = on_result
        self.queue = RowQueue()
        self.results: deque[pa.RecordBatch] = deque()
        self.result_rows = 0
        # The bare lock is entered by `with`: unlike a condition, it leaves no gap in which an interrupt keeps it closed.
        self.lock = RLock()
        self.work, self.change = Condition(self.lock), Condition(self.lock)
        self.waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self.consumers: set[int] = set()
        self.error: BaseException | None = None
        self.failed = False
        self.closing = self.ended = self.idle = self.busy = self.hurried = False
        self.pid = os.getpid()
        self.thread = Thread(target=self._run, name="penstock-background", daemon=True)
        self.thread.start()
        # Daemon threads still run while exit handlers do.
        atexit.register(self._exit)

    # -- the worker thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._step():
                pass
        except BaseException as error:  # noqa: BLE001 - raised by the next call of the user
            self._fail(error)
        with self.lock:
            self.ended, self.busy = True, False
            self._changed()
        if self.error is None:
            atexit.unregister(self._exit)

    def _fail(self, error: BaseException) -> None:
        with self.lock:
            self.error, self.failed = error, True
            lost = self.queue.clear()
        if lost:
            error.add_note(f"{lost:,} rows that were pushed behind it have not been processed")

    def _step(self) -> bool:
        """Process what waits; return whether to go on."""
        with self.lock:
            self._await_work()
            if not self.queue and self.closing:
                return False
            taken: list[Given] | Call = self.queue.take() if self.queue else []
            # Rows that arrive from now on have these times, or later ones.
            stamps = self.live.stamps() if self.live.timed else {}
            self.busy = True
            self.live.metrics.queue_rows = self.queue.rows
            self._changed()
        made = taken() if callable(taken) else self.live.feed(joined(taken) if taken else [], stamps)
        self._deliver(made)
        self._warn()
        with self.lock:
            self.busy = False
            self._changed()
        return True

    def _await_work(self) -> None:
        """Wait until a task is due."""
        while True:
            if self.queue and (self._is_due() or self.closing):
                if self.closing or self.result_rows < self.queue_rows:
                    return
                timeout = None  # until results are taken
            elif self.closing:
                return
            elif self.queue:
                timeout = max(self.queue.oldest + self.max_delay - self.live.clock.now(), 0.0)
            else:
                self.hurried = False
                timeout = max(self.max_delay, _TICK) if self.live.timed else None
            self.idle = True
            signalled = self.work.wait(timeout)
            self.idle = False
            if not signalled and not self.queue and self.live.timed:
                return

    def _is_due(self) -> bool:
        queue = self.queue
        return (
            self.hurried
            or queue.calls > 0
            or queue.rows >= min(ENOUGH, self.queue_rows)
            or self.live.clock.now() >= queue.oldest + self.max_delay
        )

    def _deliver(self, made: list[pa.RecordBatch]) -> None:
        if self._on_result is not None:
            for batch in made:
                self._on_result(batch)
        elif made:
            with self.lock:
                self.results.extend(made)
                self.result_rows += sum(batch.num_rows for batch in made)

    def _warn(self) -> None:
        """Issue warnings; one that is an error is raised by the next call, and the run goes on."""
        try:
            self.live.warn()
        except Warning as warning:
            self.error = warning

    def _changed(self) -> None:
        """Wake the threads and coroutines that wait for results, for room or for the end."""
        self.change.notify_all()
        waiters, self.waiters = self.waiters, []
        for loop, future in waiters:
            try:
                loop.call_soon_threadsafe(_resolve, future)
            except RuntimeError:  # the loop is closed
                continue

    # -- calls of other threads -------------------------------------------------------------------------

    def check(self) -> None:
        """Raise the error of the worker, once; then refuse calls."""
        error, self.error = self.error, None
        if error is not None:
            raise error
        if self.failed:
            raise StateError(
                "an earlier push failed halfway: go on from the state that was saved before it, or start anew"
            )

    def own(self) -> RLock:  # type: ignore[valid-type]
        """The lock, unless this process is a fork: its copy of the lock may be closed for ever."""
        if os.getpid() != self.pid:
            raise StateError(
                "this query was opened in another process, whose worker a fork does not copy; open it anew here"
            )
        return self.lock

    def room(self) -> bool:
        """Whether the queue has room, or the worker has failed and no room will come."""
        return self.queue.rows < self.queue_rows or self.ended or self.error is not None

    def await_room(self) -> None:
        """Wait until the queue has room. A function of results is called by the worker itself, and cannot wait for it."""
        while not self.room() and current_thread() is not self.thread:
            if self.result_rows >= self.queue_rows and not self.consumers - {current_thread().ident}:
                raise BindingError(
                    f"the queue is full, and {self.result_rows:,} rows of results have not been taken; iterate over the "
                    "open query in another thread, or give on_result="
                )
            self.hurry()
            self.change.wait()

    def hurry(self) -> None:
        """Process what waits without further delay."""
        self.hurried = True
        self.work.notify()

    def offered(self, was_empty: bool) -> None:
        """Wake the worker if rows arrived for which it waits."""
        self.live.metrics.queue_rows = self.queue.rows
        if self.idle and (was_empty or self.queue.rows >= min(ENOUGH, self.queue_rows)):
            self.work.notify()

    def quiet(self) -> bool:
        """Whether everything pushed has been processed."""
        return self.ended or (not self.queue and not self.busy)

    def stop(self) -> None:
        """Let the worker end once it has processed what was pushed."""
        if os.getpid() != self.pid:
            return
        with self.lock:
            self.closing = True
            self.work.notify()

    def drain(self) -> None:
        """Process what was pushed, and end."""
        self.stop()
        if os.getpid() == self.pid and current_thread() is not self.thread:
            self.thread.join()

    def _exit(self) -> None:
        """At the exit of the interpreter: process what was pushed, and show an error that no call has raised."""
        self.drain()
        if self.error is not None:
            raise self.error


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class Background:
    """A query that runs in the background: `push` queues rows and returns at once; results are iterated over.

    A worker thread gathers what waits into one task, after at most `max_delay`. `push` blocks while `queue_rows` rows
    wait. Results go to `on_result` in the worker thread, or to `for batch in live` and `async for batch in live`, which
    end after `finish()` or `close()`. An error of the worker is raised by the next call. Nothing that was pushed is lost:
    `close()`, the end of a `with` block and the exit of the interpreter process it first.

    >>> import penstock as pk
    >>> events = pk.stream("events", {"t": "int64", "v": "int64"}, time="t")
    >>> with events.window(10).agg(total=pk.sum("v")).open(background=True) as live:
    ...     for t in range(25):
    ...         live.push({"t": t, "v": 1})
    ...     live.finish()
    >>> [total for batch in live for total in batch["total"].to_pylist()]
    [10, 10, 5]
    """

    def __init__(self, live: Live, max_delay: float, queue_rows: int, on_result: Results | None) -> None:
        self._live = live
        self._worker = Worker(live, max_delay, queue_rows, on_result)
        self._blocks: dict[str, Block] = {}
        self._finished = self._interrupted = False
        # Not at exit: then `drain` waits for the worker.
        finalize(self, self._worker.stop).atexit = False

    @property
    def metrics(self) -> Metrics:
        """The metrics so far."""
        return self._live.metrics

    @property
    def watermark(self) -> int | None:
        """The watermark over all streams, in ticks; None until every stream has one."""
        return self._live.watermark

    # -- pushing ---------------------------------------------------------------------------------------------

    def push(self, batch: Any = None, /, **batches: Any) -> None:
        """Queue rows of the only stream, or of each stream by name, as `Live.push` takes them."""
        arrived = self._live.clock.now()
        admitted = self._admitted(batch, batches)
        try:
            with self._worker.own():
                self._check()
                self._worker.await_room()
                self._check()
                self._put(admitted, arrived)
        except KeyboardInterrupt:
            self._interrupted = True
            raise

    async def push_async(self, batch: Any = None, /, **batches: Any) -> None:
        """Queue rows; while the queue is full, other coroutines run."""
        arrived, worker = self._live.clock.now(), self._worker
        admitted = self._admitted(batch, batches)
        while True:
            with worker.own():
                self._check()
                if worker.room():
                    self._put(admitted, arrived)
                    return
                worker.hurry()
                changed = self._next_change()
            await changed

    def _admitted(self, batch: Any, batches: dict[str, Any]) -> list[tuple[str, pa.RecordBatch]]:
        """Convert rows in the calling thread, so that errors in them are its own."""
        live = self._live
        given = live.bindings(batch, batches)
        return [(name, part) for name, each in given for part in live.admit(name, each) if part.num_rows]

    def _put(self, admitted: list[tuple[str, pa.RecordBatch]], arrived: float) -> None:
        worker, live = self._worker, self._live
        was_empty = not worker.queue
        for name, part in admitted:
            worker.queue.put(Given(name, live.stamp(name, part), arrived))
        worker.offered(was_empty)

    def advance(self, time: object) -> None:
        """Queue the declaration that no row before this time follows: a datetime, an ISO string, or ticks."""
        reached = self._live.tick(time)
        self._call(lambda: self._live.advance_to(reached))

    def take(self, name: str, given: pa.RecordBatch | Arrived) -> None:
        """Queue the output of a source: a batch, or an arrival with its split and malformed records."""
        if isinstance(given, pa.RecordBatch):
            self.push(**{name: given})
        else:
            self._call(lambda: self._live.take(name, given), given.batch.num_rows)

    def _call(self, call: Call, rows: int = 0) -> None:
        with self._worker.own():
            self._check()
            if rows:
                self._worker.await_room()
            self._worker.queue.call(call, rows)
            self._worker.work.notify()

    def writer(self, capacity: int = 1024, stream: str | None = None) -> Writer:
        """Return preallocated columns of a stream to fill in place; `commit(n)` queues the first n rows."""
        return self._live.writer_of(capacity, stream, self._commit)

    def _commit(
        self,
        name: str,
        schema: pa.Schema,
        rows: int,
        columns: list[np.ndarray],
        valid: list[np.ndarray | None],
    ) -> list[pa.RecordBatch]:
        worker, arrived = self._worker, self._live.clock.now()
        try:
            with worker.own():
                self._check()
                worker.await_room()
                self._check()
                block = self._block(name, schema, rows)
                block.append(rows, columns, valid)
                if self._live.is_stamped(name):
                    self._put([(name, block.batch(block.end - rows, block.end))], arrived)
                    return []
                was_empty = not worker.queue
                worker.queue.filled(name, block, rows, arrived)
                worker.offered(was_empty)
        except KeyboardInterrupt:
            self._interrupted = True
            raise
        return []

    def _block(self, name: str, schema: pa.Schema, rows: int) -> Block:
        block = self._blocks.get(name)
        if block is None or block.left < rows:
            block = self._blocks[name] = Block.of(schema, max(BLOCK_ROWS, rows))
        return block

    def _check(self) -> None:
        self._worker.check()
        if self._interrupted:
            raise StateError(
                "an earlier push was interrupted halfway, and may have been taken or not: close() processes what was "
                "taken; start anew"
            )
        if self._finished or self._worker.closing:
            raise BindingError("this query is closed; open it again to push more rows")

    # -- results -------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        worker = self._worker
        with worker.own():
            worker.consumers.add(current_thread().ident or 0)
            while not worker.results:
                worker.check()
                if worker.ended:
                    raise StopIteration
                worker.change.wait()
            return self._taken()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> pa.RecordBatch:
        worker = self._worker
        while True:
            with worker.own():
                if worker.results:
                    return self._taken()
                worker.check()
                if worker.ended:
                    raise StopAsyncIteration
                changed = self._next_change()
            await changed

    def ready(self) -> list[pa.RecordBatch]:
        """Return the results that are complete by now, without waiting."""
        worker = self._worker
        with worker.own():
            worker.check()
            made = list(worker.results)
            worker.results.clear()
            worker.result_rows = 0
            worker.work.notify()
            return made

    def _taken(self) -> pa.RecordBatch:
        worker = self._worker
        batch = worker.results.popleft()
        worker.result_rows -= batch.num_rows
        if worker.idle:
            worker.work.notify()
        return batch

    def _next_change(self) -> Awaitable[None]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._worker.waiters.append((loop, future))
        return future

    # -- state and end ---------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Wait until everything that was pushed has been processed."""
        worker = self._worker
        with worker.own():
            if current_thread() is worker.thread:
                raise BindingError(
                    "a function of results cannot wait until all results are there; return first"
                )
            worker.check()
            while not worker.quiet():
                worker.hurry()
                worker.change.wait()
            worker.check()

    def state(self) -> State:
        """Return the state of the query after all that was pushed, to resume from later; take the results first."""
        worker = self._worker
        with worker.own():
            self.flush()
            if worker.results:
                raise StateError(
                    f"{len(worker.results)} batches of results have not been taken yet, and would be lost; take them first"
                )
            return self._live.state()

    def save(self, path: str | PathLike[str]) -> None:
        """Write the state of the query to a file, to resume with `open(state=path)`."""
        self.state().save(path)

    def finish(self) -> None:
        """Process what was pushed, declare the end of all input, and stop; windows still open are among the results."""
        self.end()
        self.close()

    def end(self) -> None:
        """Queue the declaration of the end of all input."""
        if not self._finished:
            self._call(self._live.finish)
            self._finished = True

    def shut(self) -> None:
        """Let the worker end once it has processed what was pushed, without waiting for it."""
        self._worker.stop()

    def expect_consumer(self) -> None:
        """Let a push wait for results to be taken before the first is."""
        self._worker.consumers.add(-1)

    def close(self) -> None:
        """Process what was pushed, and stop. Open windows are not emitted; their state can still be saved."""
        self._worker.drain()
        self._worker.check()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except Exception:
            if kind is None:
                raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        worker = self._worker
        worker.stop()
        while True:
            with worker.own():
                if worker.ended:
                    break
                changed = self._next_change()
            await changed
        self.__exit__(kind, value, trace)


def in_background(
    live: Live, max_delay: Duration | None, queue_rows: int | None, on_result: Results | None = None
) -> Background:
    """Run an open query in the background."""
    delay = MAX_DELAY if max_delay is None else seconds(max_delay, "max_delay")
    rows = QUEUE_ROWS if queue_rows is None else whole(queue_rows, "queue_rows", 1)
    if on_result is not None and not callable(on_result):
        raise BindingError(f"on_result is {shown(on_result)}; it is a function that takes a RecordBatch")
    return Background(live, delay, rows, on_result)
