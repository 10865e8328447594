"""The native part of a background run: pushes go into a ring, from which a loop without the interpreter's lock folds them."""

from __future__ import annotations

import time
from array import array
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.runtime.buffers import FIRST_COLUMN, ColumnLayout
from penstock.runtime.ring import (
    ASKING,
    BLOCK_FULL,
    DONE,
    HELPED,
    HURRY,
    IDLE,
    LEAVE,
    LEAVING,
    NO_ROOM,
    OPEN,
    OWNED,
    PUBLISHED,
    REASON,
    REFUSED,
    RUNNING,
    SENSE,
    STATE,
    TAKEN,
    Ring,
)

if TYPE_CHECKING:
    from penstock.api.background_worker import BackgroundWorker
    from penstock.api.ingress import Ingress
    from penstock.api.live import Live
    from penstock.codegen.native_ring import NativeRing
    from penstock.runtime.ring import Departure
    from penstock.runtime.session import Direct

_MOST_PAUSE = 63  # batches that go another way before the ring is tried again
_LONGEST_WATCH = 5_000_000  # nanoseconds; then an interrupt is noticed
_ARRAY_WORDS = 10  # of the struct of an array by the Arrow C data interface


class NativeQueue:
    """The ring of an open query, and what Python does when the loop stops.

    It is open while nothing waits in the queue of Python, so that rows stay in order. Batches that native code cannot
    take (with nulls, with rows behind the watermark, of another schema) close it.
    """

    def __init__(self, live: Live, ingress: Ingress, direct: Direct, ring: Ring) -> None:
        self._live, self._ingress, self._direct, self.ring = live, ingress, direct, ring
        self.words = ring.words
        self.wanted: pa.Schema | None = None  # of the batches that are pushed
        self._layout: ColumnLayout | None = None
        self._exported = array("q", [0] * _ARRAY_WORDS)
        self._pause = self._refusals = 0
        # Blocks of writers that are gone, each with the number of the first batch behind them.
        self.left: deque[tuple[int, Sequence[object]]] = deque()

    @property
    def waiting(self) -> bool:
        """Whether batches or results wait."""
        return self.ring.waiting

    @property
    def rows(self) -> int:
        return self.ring.rows

    # -- pushing: the caller holds the lock of the run ---------------------------------------------------

    def put(self, batch: pa.RecordBatch) -> bool:
        """Queue a batch; False: it has to go the way of other rows, and so do those behind it."""
        schema = batch.schema
        if not (schema is self.wanted or schema.equals(self.wanted)):
            self.wanted = schema
            self.close()
            return False
        if not 0 < batch.num_rows <= self._direct.stage.loop_most:
            self.close()
            return False
        self.ring.keep(batch)
        exported = self._exported.buffer_info()[0]
        batch._export_to_c(exported)  # noqa: SLF001 - as in codegen/batch_reader.py
        if self.ring.put(exported):
            self.ring.keep_last(batch)
            return True
        self.refused()
        return False

    def refused(self) -> None:
        """Native code could not take a batch: try again after a while, longer after each time."""
        self._refusals = min(2 * self._refusals + 1, _MOST_PAUSE)
        self._pause = self._refusals
        self.close()

    def close(self) -> None:
        """Take no more batches; the loop returns once it has processed those that wait."""
        self.words[OPEN], self.words[HURRY] = 0, 1

    @property
    def may_open(self) -> bool:
        """Whether the ring takes batches again once those in the queue are processed."""
        wanted = self.wanted
        if wanted is None or self._pause or self._live.direct() is None:
            return False
        return self._layout_of(wanted) is not None

    def reopen(self) -> None:
        """Take batches again, if native code can; no task runs, and nothing waits."""
        if self.words[OPEN] or not self.may_open:
            self._pause = max(self._pause - 1, 0)
            return
        assert self.wanted is not None
        layout = self._layout_of(self.wanted)
        assert layout is not None
        source, ring = self._direct.source, self.ring
        ring.open(layout, self._ingress.needed.names, source.watermark, source.rows)
        if ring.bind(self._direct.stage):
            self.words[HURRY] = 0
        else:
            self.refused()

    def _layout_of(self, schema: pa.Schema) -> ColumnLayout | None:
        known = self._layout
        if known is None or not known.schema.equals(schema):
            known = self._layout = self._direct.source.layout(schema)
        fits = all(
            schema.get_field_index(column.name) >= 0 and schema.field(column.name).type == column.type
            for column in self._ingress.needed
        )
        return known if fits and known.plan is not None else None

    # -- the loop: one thread at a time runs it, or does what it stopped for ----------------------------

    def run(self) -> int:
        """Run the loop until it needs Python; return why."""
        if self.ring.code is None and not self.ring.bind(self._direct.stage):
            # Python processes the next batch; without one, the loop would never find it bound.
            self.words[REASON] = SENSE if self.waiting else IDLE
            return self.words[REASON]
        self.words[STATE] = RUNNING
        return self.ring.functions.run(self.ring.start)

    def rest(self) -> None:
        """Drop what processed batches refer to, if nothing waits; the caller holds the lock."""
        while self.left and self.left[0][0] <= self.words[DONE]:
            self.left.popleft()
        if not self.waiting:
            self.ring.forget()

    @property
    def needs_help(self) -> bool:
        """Whether the loop waits for a thread to help."""
        return self.words[STATE] == ASKING

    def help(self) -> bool:
        """Begin to do what the loop stopped for; False if another thread does."""
        return bool(self.ring.functions.swap(self.ring.start, ASKING, HELPED))

    def resume(self, leave: bool) -> None:
        """Let the loop go on after help, or return."""
        self.ring.functions.swap(self.ring.start, HELPED, LEAVING if leave else RUNNING)

    @property
    def running(self) -> bool:
        return self.words[STATE] != OWNED

    def hurry(self, on: bool) -> None:
        """Let the loop return as soon as nothing waits."""
        self.words[HURRY] = on

    def leave(self, on: bool) -> None:
        """Let the loop return before its next batch."""
        self.words[LEAVE] = on

    def settle(self, overlaps: bool) -> tuple[list[pa.RecordBatch], Departure | None, float]:
        """Do what the loop stopped for; return the results, and when the rows that completed them arrived.

        With `overlaps` also results that `depart` is to compute while the loop goes on.
        """
        ring, direct = self.ring, self._direct
        session = direct.session
        made, departure = session.settle(direct, ring, self._next_batch, overlaps)
        if ring.words[OPEN]:
            self._refusals = 0
        while not ring.bind(direct.stage):
            if departure is not None:
                made += session.depart(direct, departure)
                departure = None
            if not ring.waiting:
                self.close()
                break
            ring.words[REASON] = SENSE
            made += session.settle(direct, ring, self._next_batch, overlaps=False)[0]
        ring.words[REASON] = IDLE
        return made, departure, ring.arrived

    def depart(self, departure: Departure) -> list[pa.RecordBatch]:
        """Compute results while the loop goes on; nothing else of the query may be called meanwhile."""
        return self._direct.session.depart(self._direct, departure)

    def watch(self) -> bool:
        """Wait, without the interpreter's lock and not for long, until the loop stops or the ring has room, and return whether it has."""
        return bool(self.ring.functions.watch(self.ring.start, _LONGEST_WATCH))

    def clear(self) -> int:
        """Drop what waits; return the number of rows."""
        lost = self.ring.drop()
        self.close()
        return lost

    def _next_batch(self, ring: Ring) -> pa.RecordBatch:
        """The next batch, of the needed columns, from the addresses in its slot."""
        owner, words, rows = ring.next()
        assert ring.layout is not None
        arrays = []
        for column in self._ingress.needed:
            word = words[FIRST_COLUMN + ring.layout.schema.get_field_index(column.name)]
            data = pa.foreign_buffer(word, rows * column.type.bit_width // 8, owner)
            arrays.append(pa.Array.from_buffers(column.type, rows, [None, data]))
        return pa.RecordBatch.from_arrays(arrays, schema=self._ingress.needed)


class Commits:
    """The native form of a writer: a commit copies rows to a block and queues them, in one call."""

    def __init__(
        self,
        queue: NativeQueue,
        functions: NativeRing,
        schema: pa.Schema,
        rows: int,
        worker: BackgroundWorker,
    ) -> None:
        self._queue, self._native, self._worker, self._words = queue, functions.commit, worker, queue.words
        self._start = queue.ring.start
        self.schema, self._block_rows = schema, rows
        # Full blocks, each with the number of the first batch behind it.
        self._full: deque[tuple[int, list[np.ndarray]]] = deque()
        self._sources: Sequence[np.ndarray] = ()
        self._release = functions.nothing
        self._layout: ColumnLayout | None = None
        self._plan = self._block_start = self._array_start = 0
        self._block: list[np.ndarray] = []

    def __del__(self) -> None:
        """Rows that wait outlive their writer."""
        self._queue.left.append((self._words[PUBLISHED], [*self._full, self._block]))

    def begin(self, sources: Sequence[np.ndarray]) -> None:
        """Take rows from these columns."""
        self._sources = sources
        self._new_block()

    def commit(self, rows: int) -> bool:
        """Queue the first rows of the columns; False: they have to go the way of other rows."""
        # Writers commit at MHz rates: this path makes one call. The lock is not needed, as the call keeps the interpreter's.
        worker, layout = self._worker, self._queue.ring.layout
        if layout is None or layout is not self._layout or worker.error is not None:
            return self._begin_layout() and self.commit(rows)
        found = self._native(self._start, self._array_start, self._plan, self._block_start, rows)
        if found != TAKEN:
            return self._find_room(found, rows) and self.commit(rows)
        if worker.idle or self._words[STATE] == ASKING:
            worker.wake()
        return True

    def _begin_layout(self) -> bool:
        """Commit to the layout of the ring, if it is that of the writer."""
        layout = self._queue.ring.layout
        if self._worker.error is not None or layout is None or not layout.schema.equals(self.schema):
            self._queue.wanted = self.schema
            return False
        assert layout.plan is not None
        self._layout, self._plan = layout, layout.plan.buffer_info()[0]
        return True

    def _find_room(self, found: int, rows: int) -> bool:
        """Wait for room in the ring, or begin a block."""
        if found == NO_ROOM:
            runner = self._worker.native
            self._worker.own()
            if runner is not None:
                runner.help_until_room()
            with self._worker.own():
                self._worker.await_room()
            return True
        if found == REFUSED:
            self._queue.refused()
        if found != BLOCK_FULL or rows > self._block_rows:
            return False
        self._new_block()
        return True

    def _new_block(self) -> None:
        """Begin a block: the oldest one, once its rows have been processed, as no kernel keeps rows; else a new one."""
        words, rows, full = self._queue.words, self._block_rows, self._full
        if self._block:
            full.append((words[PUBLISHED], self._block))
        if full and full[0][0] <= words[DONE]:
            columns = full.popleft()[1]
        else:
            columns = [np.empty(rows, source.dtype) for source in self._sources]
        self._block = columns
        addresses = [pa.py_buffer(column).address for column in columns]
        block = array("q", [0, rows, len(columns)])
        for address, source in zip(addresses, self._sources, strict=True):
            block.extend((address, pa.py_buffer(source).address, source.itemsize))
        self._block_words, self._block_start = block, block.buffer_info()[0]
        self._export(addresses)

    def _export(self, addresses: Sequence[int]) -> None:
        """Lay out the columns as an array by the Arrow C data interface, whose release does nothing."""
        buffers = [array("q", [0, address]) for address in addresses]
        children = [
            array("q", [0, 0, 0, 2, 0, pair.buffer_info()[0], 0, 0, self._release, 0]) for pair in buffers
        ]
        list_of = array("q", [child.buffer_info()[0] for child in children])
        whole = [0, 0, 0, 1, len(children), 0, list_of.buffer_info()[0], 0, self._release, 0]
        self._array = array("q", whole)
        self._array_start = self._array.buffer_info()[0]
        self._kept = buffers, children, list_of


def native_queue(live: Live, queue_rows: int, delay: float) -> NativeQueue | None:
    """Return the native part of a background run, if its rows may go to a kernel as they come, by the clock of the machine."""
    found = live.direct()
    if found is None or live.clock.now is not time.monotonic:
        return None
    from penstock.codegen.native_ring import HAS_RING, native_ring  # noqa: PLC0415 - loads LLVM

    if not HAS_RING:
        return None
    ingress, direct = found
    return NativeQueue(live, ingress, direct, Ring(native_ring(), queue_rows, delay))
