"""An open query in the background: pushes are queued, and gathered into tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from threading import get_ident
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from weakref import finalize, ref

import pyarrow as pa

from penstock.api.background_worker import YIELD, BackgroundWorker, Results
from penstock.api.literals import shown, whole
from penstock.api.live import Given, Live
from penstock.api.native_queue import Commits, NativeQueue
from penstock.api.row_queue import Call
from penstock.api.saving import Savable
from penstock.api.source_options import seconds
from penstock.api.writer import BLOCK_ROWS, Block, Writer
from penstock.codegen.native_ring import native_ring
from penstock.errors import BindingError, StateError
from penstock.runtime.metrics import measure_of
from penstock.runtime.ring import OPEN
from penstock.sources.malformed import Arrived
from penstock.state.state import State
from penstock.types.duration import Duration

if TYPE_CHECKING:
    import numpy as np

    from penstock.runtime.metrics import Metrics

QUEUE_ROWS = 1 << 20
MAX_DELAY = 0.001  # seconds


class Background(Savable):
    """A query that runs in the background: `push` queues rows and returns at once; results are iterated over.

    What waits is gathered into one task, after at most `max_delay`. A worker thread runs it, or a push that finds it
    overdue. `push` blocks while `queue_rows` rows wait. Results go to `on_result`, in whichever thread runs the task, or to
    `for batch in live` and `async for batch in live`, which end after `finish()` or `close()`. An error of a task is raised
    by the next call. Nothing that was pushed is lost: `close()`, the end of a `with` block and the exit of the interpreter
    process it first.

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
        self._worker = worker = BackgroundWorker(live, max_delay, queue_rows, on_result)
        self._native = None if worker.native is None else worker.native.queue
        live.metrics.measure = measure_of(ref(worker))
        self._blocks: dict[str, Block] = {}
        self._finished = self._interrupted = False
        # Not at exit: then `drain` waits for the worker.
        finalize(self, self._worker.stop).atexit = False

    @property
    def metrics(self) -> Metrics:
        """The metrics so far."""
        return self._live.metrics

    def explain(self) -> str:
        return self._live.explain()

    @property
    def watermark(self) -> int | None:
        """The watermark over all streams, in ticks; None until every stream has one."""
        return self._live.watermark

    # -- pushing ---------------------------------------------------------------------------------------------

    def push(self, batch: Any = None, /, **batches: Any) -> None:
        """Queue rows of the only stream, or of each stream by name, as `Live.push` takes them."""
        native = self._native
        if native is not None and isinstance(batch, pa.RecordBatch) and not batches:  # noqa: SIM102 - it queues
            if self._put_natively(native, batch):
                return
        arrived = self._live.clock.now()
        admitted = self._admitted(batch, batches)
        try:
            with self._worker.own():
                self._check()
                self._worker.await_room()
                self._check()
                self._put(admitted, arrived)
            self._worker.help()
        except KeyboardInterrupt:
            self._interrupt()
            raise

    def _put_natively(self, native: NativeQueue, batch: pa.RecordBatch) -> bool:
        """Queue a batch for the native loop; False: it has to go through the queue."""
        worker = self._worker
        if not native.words[OPEN]:
            native.wanted = batch.schema
            return False
        try:
            if worker.native is not None and not worker.room():
                worker.own()
                worker.native.help_until_room()
            with worker.own():
                self._check()
                if not worker.room():
                    worker.await_room()
                    self._check()
                if not native.words[OPEN] or not native.put(batch):
                    return False
                worker.offered_natively()
            if native.needs_help:
                worker.help()
        except KeyboardInterrupt:
            self._interrupt()
            raise
        return True

    def _interrupt(self) -> None:
        self._interrupted = True
        self._worker.close_ring()

    async def push_async(self, batch: Any = None, /, **batches: Any) -> None:
        """Queue rows; while the queue is full, other coroutines run."""
        arrived, worker = self._live.clock.now(), self._worker
        admitted = self._admitted(batch, batches)
        while True:
            with worker.own():
                self._check()
                if worker.room():
                    self._put(admitted, arrived)
                    break
                worker.hurry()
                changed = self._next_change()
            await changed
        if worker.overdue:  # a loop that never waits would keep the interpreter's lock
            await asyncio.sleep(YIELD)

    def _admitted(self, batch: Any, batches: dict[str, Any]) -> list[tuple[str, pa.RecordBatch]]:
        """Convert rows in the calling thread, so that errors in them are its own."""
        live = self._live
        given = live.bindings(batch, batches)
        return [
            (name, part) for name, argument in given for part in live.admit(name, argument) if part.num_rows
        ]

    def _put(self, admitted: list[tuple[str, pa.RecordBatch]], arrived: float) -> None:
        worker, live = self._worker, self._live
        was_empty = not worker.queue
        for name, part in admitted:
            worker.queue.put(Given(name, live.stamp(name, part), arrived))
        worker.offered(was_empty)

    def advance(self, time: object) -> None:
        """Queue the declaration that no row before this time follows: a datetime, an ISO string, or ticks."""
        self._live.tick(time)  # a mistake is an error of this call
        self._call(lambda: self._live.advance(time))

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
            self._worker.close_ring()
            self._worker.queue.call(call, rows)
            self._worker.work.notify()

    def writer(self, capacity: int = 1024, stream: str | None = None) -> Writer:
        """Return preallocated columns of a stream to fill in place; `commit(n)` queues the first n rows."""
        writer = self._live.writer_of(capacity, stream, self._commit)
        native = self._native
        if native is not None:
            commits = Commits(native, native_ring(), writer.schema, max(BLOCK_ROWS, capacity), self._worker)
            writer.use(commits.commit, commits.begin)
        return writer

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
                worker.close_ring()
                if self._live.is_stamped(name):
                    self._put([(name, block.batch(block.end - rows, block.end))], arrived)
                    return []
                was_empty = not worker.queue
                worker.queue.filled(name, block, rows, arrived)
                worker.offered(was_empty)
            worker.help()
        except KeyboardInterrupt:
            self._interrupt()
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
                "taken; start again"
            )
        if self._finished or self._worker.closing:
            raise BindingError("this query is closed; open it again to push more rows")

    # -- results -------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        worker = self._worker
        with worker.own():
            worker.consumers.add(get_ident())
            while not worker.results:
                worker.check()
                if worker.ended:
                    raise StopIteration
                worker.takers += 1
                try:
                    worker.change.wait()
                finally:
                    worker.takers -= 1
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
            worker.consumers.add(get_ident())
            if not worker.results:
                worker.check()
            return [self._taken() for _ in range(len(worker.results))]

    def _taken(self) -> pa.RecordBatch:
        worker = self._worker
        batch = worker.results.popleft()
        worker.taken(batch)
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
            if worker.runs_here:
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

    def finish(self) -> None:
        """Process what was pushed, declare the end of all input, and stop; windows still open are among the results."""
        self.shut(final=True)
        self.close()

    async def finish_async(self) -> None:
        """Do the same, while other coroutines run."""
        self.shut(final=True)
        await self._end()

    def shut(self, final: bool) -> None:
        """Let the worker end once it has processed what was pushed, and declared the end of all input if `final`."""
        if final and not self._finished:
            self._call(self._live.finish)
            self._finished = True
        self._worker.stop()

    async def _end(self) -> None:
        worker = self._worker
        worker.stop()
        while True:
            with worker.own():
                if worker.ended:
                    worker.check()
                    return
                changed = self._next_change()
            await changed

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
        try:
            await self._end()
        except Exception:
            if kind is None:
                raise


def in_background(
    live: Live, max_delay: Duration | None, queue_rows: int | None, on_result: Results | None = None
) -> Background:
    """Run an open query in the background."""
    delay = MAX_DELAY if max_delay is None else seconds(max_delay, "max_delay")
    rows = QUEUE_ROWS if queue_rows is None else whole(queue_rows, "queue_rows", 1)
    if on_result is not None and not callable(on_result):
        raise BindingError(f"on_result is {shown(on_result)}; it is a function that takes a RecordBatch")
    return Background(live, delay, rows, on_result)
