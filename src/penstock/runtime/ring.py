"""The ring of a running query: batches that native code gives to a stage, and the words both sides share.

Python threads put batches in, holding the interpreter's lock. The native loop (`codegen/ring_module.py`) takes them out
without it, until something needs Python. Exactly one side uses the state of the query at any time: `STATE` says which.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from penstock.loop.abi import ACCEPTED, ERRORS
from penstock.runtime.buffers import FIRST_COLUMN, ColumnLayout
from penstock.runtime.kernels import KernelCall
from penstock.runtime.stage import TimedBatch

# The shared words. Counts are since the ring was made.
(
    STATE,  # the user of the query
    OPEN,  # whether batches may be put in
    LEAVE,  # the loop returns before the next batch
    HURRY,  # the loop returns once nothing waits, and holds no result back
    PUBLISHED,  # batches put in
    DONE,  # batches processed
    ROWS_IN,
    ROWS_DONE,
    MOST_ROWS,  # rows that may wait
    INGRESS,  # the watermark after the last batch put in
    MARK,  # the watermark after the last batch processed
    UNTIL,  # the watermark at which the stage completes something
    FIRST_ROW,  # the number of the next row
    ROWS_LEFT,  # rows until the stage measures a task
    REASON,  # why the loop stopped
    REACHED,  # the row at which a kernel stopped
    ARRIVED,  # when the last batch processed was put in, in nanoseconds
    BUSY,  # nanoseconds spent in kernels
    DELAY,  # nanoseconds for which results of rows are gathered
    POLL,  # microseconds of sleep while nothing waits
    LINGER,  # nanoseconds without a batch after which the loop returns
    PATIENCE,  # nanoseconds for which a stopped loop waits for a thread that holds the interpreter's lock
    KERNEL,  # addresses: the kernel's code, its arguments, and words among them
    FRAME,
    HI_AT,
    FIRST_AT,
    COUNT_AT,
    ERRORS_AT,
    READER,  # the code that reads an exported batch
    SLOTS,
    MASK,
    STRIDE,
    COLUMNS,  # (address in the frame, word of the slot) of each column that the kernel reads
    COLUMN_LIST,
    CHECKED,  # words of the slot that are 0 if a column holds nulls
    CHECKED_LIST,
    OUTPUTS,  # (address in the frame, address of the memory, bytes a row) of each column that the kernel writes
    OUTPUT_LIST,
    CAPACITY,  # rows of output that fit
    MADE,  # rows of output written
    MADE_FROM,  # when the first batch of them was put in
    HOLD,  # nanoseconds for which complete windows are gathered while batches wait
    COMPLETE_FROM,  # when the first of them was complete; 0 if none is
    CONTROL_WORDS,
) = range(44)

# The words of a slot; those of its columns follow (`column_addresses`).
ROWS, PUT_AT, SLOT_WORDS = range(3)
# The user of the query: Python; the loop; none, as the loop waits for Python; a helping thread; and the loop shall return.
OWNED, RUNNING, ASKING, HELPED, LEAVING = range(5)
# Why the loop stopped: nothing waits; a window may be complete; the kernel stopped; it overflowed; a task is to be
# measured; no room for results; results have waited; Python takes the query.
IDLE, COMPLETE, STOPPED, OVERFLOWN, SENSE, FULL, DUE, LEFT = range(8)
# What became of a batch: put in; or not, as the ring is closed, has no room, must not take it, or the block is full.
TAKEN, CLOSED, NO_ROOM, REFUSED, BLOCK_FULL = 1, 0, -1, -2, -3

SLOT_COUNT = 1 << 12


@dataclass(frozen=True, eq=False)
class LoopCall:
    """A kernel bound to a stage: what the native loop changes between two batches.

    `columns` pairs places in the frame with words of a batch. `outputs` are the places and arrays of the columns it
    writes; without any, the kernel changes the state of the stage. `head` has the kernel's counts.
    """

    call: KernelCall
    start: int
    columns: Sequence[tuple[int, int]]
    hi: int
    first_row: int
    head: np.ndarray
    outputs: Sequence[tuple[int, np.ndarray]] = ()


class Departure(Protocol):
    """Results that a thread computes while the loop goes on; it is done before anything else changes the stage."""

    @property
    def ahead(self) -> int:
        """The earliest time of later results."""

    def emit(self) -> list[TimedBatch]:
        """Compute the results."""


@runtime_checkable
class LoopStage(Protocol):
    """A stage whose kernel the native loop may call, batch after batch."""

    loop_results: bool  # whether the kernel writes results, and not state

    @property
    def loop_gathers(self) -> bool:
        """Whether several complete windows are emitted for less, and may be gathered while batches wait."""

    @property
    def loop_most(self) -> int:
        """The most rows of a batch that one thread should process."""

    def loop_call(self, layout: ColumnLayout, room: int) -> LoopCall | None:
        """Bind the kernel to batches of a layout, without nulls, and to so many rows of output; None if it cannot be."""

    def loop_limits(self) -> tuple[int, int]:
        """The watermark at which the stage has to be advanced, and the rows until it measures a task."""

    def loop_done(self, rows: int, made: int) -> list[TimedBatch]:
        """Take over what the loop did since the last call: rows, and results that it wrote."""

    def loop_stopped(self, timed_batch: TimedBatch, reached: int) -> None:
        """Finish a batch whose kernel stopped."""

    def depart(self, watermark: int) -> Departure | None:
        """Results that the watermark completes, to be computed while the loop goes on; None: call `advance`."""


class Functions(Protocol):
    """The native functions of rings."""

    reader: int  # an address

    def run(self, control: int, /) -> int:
        """Process batches until something needs Python; return why."""

    def put(self, control: int, exported: int, plan: int, /) -> int:
        """Put in an exported batch, and release it."""

    def swap(self, control: int, before: int, after: int, /) -> int:
        """Change the state, if it is `before`; return whether it was."""

    def watch(self, control: int, nanoseconds: int, /) -> int:
        """Wait until the loop stops or there is room in the ring, without the interpreter's lock; return whether there is."""


class Ring:
    """Batches of one layout, on their way to a stage. The owner of a lock calls what changes it.

    The caller keeps what a batch refers to alive in `held`, until it is processed.
    """

    def __init__(self, functions: Functions, most_rows: int, delay: float) -> None:
        self.functions = functions
        self.words = words = array("q", [0] * CONTROL_WORDS)
        self.start = words.buffer_info()[0]
        self.held: list[Any] = [None] * SLOT_COUNT
        self.layout: ColumnLayout | None = None
        self.code: object = None
        self.bound: LoopCall | None = None
        self._lists: Mapping[int, array[int]] = {}
        self._slots = array("q")
        self._stride = 0
        self._cleared = self._synced = 0
        self._busy = 0
        nanoseconds = round(min(delay, 1e6) * 1e9)
        words[MOST_ROWS], words[DELAY], words[MASK] = most_rows, nanoseconds, SLOT_COUNT - 1
        words[POLL] = min(max(nanoseconds // 4_000, 50), 200)
        words[LINGER], words[PATIENCE] = 2_000_000, 100_000
        words[READER] = functions.reader

    # -- putting in ----------------------------------------------------------------------------------------

    @property
    def waiting(self) -> bool:
        """Whether batches wait, or results."""
        words = self.words
        return words[PUBLISHED] != words[DONE] or words[MADE] > 0

    @property
    def rows(self) -> int:
        """The rows that wait."""
        return self.words[ROWS_IN] - self.words[ROWS_DONE]

    @property
    def has_room(self) -> bool:
        words = self.words
        return words[PUBLISHED] - words[DONE] < SLOT_COUNT and self.rows < words[MOST_ROWS]

    def keep(self, owner: object) -> None:
        """Keep what the next batch refers to; drop what processed ones did."""
        words, held = self.words, self.held
        # Of rows that writers committed nothing is held: the batches before may be rounds behind, and their places taken.
        begin = max(self._cleared, words[PUBLISHED] - SLOT_COUNT)
        done = min(words[DONE], begin + 4)
        for place in range(begin, done):
            held[place & (SLOT_COUNT - 1)] = None
        self._cleared = max(begin, done)
        held[words[PUBLISHED] & (SLOT_COUNT - 1)] = owner

    def keep_last(self, owner: object) -> None:
        """Keep what a batch put in refers to until all batches so far are processed: a writer may have committed before it."""
        self.held[(self.words[PUBLISHED] - 1) & (SLOT_COUNT - 1)] = owner

    def put(self, exported: int) -> bool:
        """Put in an exported batch of the layout, which `keep` was called with; False: it has to go another way."""
        assert self.layout is not None and self.layout.plan is not None
        return self.functions.put(self.start, exported, self.layout.plan.buffer_info()[0]) == TAKEN

    # -- opening -------------------------------------------------------------------------------------------

    def open(self, layout: ColumnLayout, needed: Sequence[str], watermark: int, rows: int) -> None:
        """Take batches of a layout from now on; none waits. `needed` are the columns that may hold no nulls."""
        assert not self.waiting and layout.plan is not None
        words = self.words
        if layout is not self.layout:
            self.layout = layout
            self._stride = SLOT_WORDS + FIRST_COLUMN + len(layout.schema)
            self._slots = array("q", [0] * (self._stride * SLOT_COUNT))
            checked = [SLOT_WORDS + FIRST_COLUMN + layout.schema.get_field_index(name) for name in needed]
            self._lists = {**self._lists, CHECKED_LIST: array("q", checked)}
            words[STRIDE], words[SLOTS], words[CHECKED] = self._stride, _start(self._slots), len(checked)
            words[CHECKED_LIST] = _start(self._lists[CHECKED_LIST])
        words[INGRESS] = words[MARK] = watermark
        words[FIRST_ROW] = rows
        words[OPEN] = 1

    def bind(self, stage: LoopStage) -> bool:
        """Bind the stage's kernel as it is now; return whether the loop can run."""
        words = self.words
        assert self.layout is not None
        bound = stage.loop_call(self.layout, self._next_rows())
        pinned = None if bound is None else bound.call.pinned()
        if bound is None or pinned is None:
            self.code = None
            return False
        words[KERNEL], self.code, settled = pinned
        if bound is not self.bound:
            self._use(bound)
        words[UNTIL], words[ROWS_LEFT] = stage.loop_limits()
        words[HOLD], words[COMPLETE_FROM] = words[DELAY] if stage.loop_gathers else 0, 0
        if not settled:  # look for better code again soon
            words[ROWS_LEFT] = max(min(words[ROWS_LEFT], 1 << 20), self._next_rows())
        return True

    def _use(self, bound: LoopCall) -> None:
        words, frame = self.words, bound.start
        columns = array("q")
        for place, word in bound.columns:
            columns.extend((frame + 8 * place, SLOT_WORDS + word))
        outputs = array("q")
        for place, memory in bound.outputs:
            outputs.extend((frame + 8 * place, pa.py_buffer(memory).address, memory.itemsize))
        self._lists = {**self._lists, COLUMN_LIST: columns, OUTPUT_LIST: outputs}
        words[COLUMNS], words[COLUMN_LIST] = len(bound.columns), _start(columns)
        words[OUTPUTS], words[OUTPUT_LIST] = len(bound.outputs), _start(outputs)
        words[CAPACITY] = min((len(memory) for _, memory in bound.outputs), default=0)
        words[FRAME] = frame
        words[HI_AT], words[FIRST_AT] = frame + 8 * bound.hi, frame + 8 * bound.first_row
        head = pa.py_buffer(bound.head).address
        words[COUNT_AT], words[ERRORS_AT] = head + 8 * ACCEPTED, head + 8 * ERRORS
        self.bound = bound

    # -- between two runs of the loop ----------------------------------------------------------------------

    def _next_rows(self) -> int:
        """The rows of the batch to be processed next, 0 if none waits."""
        words = self.words
        if words[PUBLISHED] == words[DONE]:
            return 0
        return self._slots[(words[DONE] & (SLOT_COUNT - 1)) * self._stride + ROWS]

    def next(self) -> tuple[Any, Sequence[int], int]:
        """What the next batch refers to, the words of its columns, and its rows."""
        place = self.words[DONE] & (SLOT_COUNT - 1)
        begin = place * self._stride
        return (
            self.held[place],
            self._slots[begin + SLOT_WORDS : begin + self._stride],
            self._slots[begin + ROWS],
        )

    def skip(self, watermark: int, rows: int) -> None:
        """Count the next batch as processed by Python, after which the stream has this watermark and these rows."""
        words = self.words
        words[ARRIVED] = self._slots[(words[DONE] & (SLOT_COUNT - 1)) * self._stride + PUT_AT]
        words[ROWS_DONE] += self._next_rows()
        words[DONE] += 1
        words[MARK], words[FIRST_ROW] = watermark, rows
        self._synced = words[DONE]

    def taken(self) -> tuple[int, int, float]:
        """The batches that the loop processed since the last call, its rows of output, and its seconds in kernels."""
        words = self.words
        batches, self._synced = words[DONE] - self._synced, words[DONE]
        made, words[MADE] = words[MADE], 0
        busy, words[BUSY] = words[BUSY], 0
        return batches, made, busy * 1e-9

    def forget(self) -> None:
        """Drop what processed batches refer to; the code as well, which a cache may have to free. None waits."""
        for place in range(self._cleared, self.words[DONE]):
            self.held[place & (SLOT_COUNT - 1)] = None
        self._cleared = self.words[DONE]
        self.code = None

    def drop(self) -> int:
        """Drop what waits; return the number of rows."""
        words, lost = self.words, self.rows
        words[ROWS_DONE], words[DONE], words[MADE] = words[ROWS_IN], words[PUBLISHED], 0
        self.forget()
        return lost

    @property
    def arrived(self) -> float:
        """When the rows that completed the last results arrived."""
        return self.words[ARRIVED] * 1e-9


def _start(words: array[int]) -> int:
    return words.buffer_info()[0]
