"""The bounded queue of a background run: pushed batches, rows of writers and calls, in order of arrival."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from penstock.api.live import Given
from penstock.api.writer import Block
from penstock.sources.conform import COALESCED_ROWS

Call = Callable[[], list[pa.RecordBatch]]


@dataclass(slots=True)
class Filled:
    """Rows of a writer: a range of a block."""

    stream: str
    block: Block
    begin: int
    end: int
    arrived: float


class Alone(NamedTuple):
    """A call that runs alone, and the number of rows that it pushes."""

    call: Call
    rows: int


Item = Given | Filled | Alone


class RowQueue:
    """Items in order of arrival. Its owner holds a lock around every call.

    >>> queue = RowQueue()
    >>> for t in range(3):
    ...     queue.put(Given("a", pa.record_batch({"t": [t]}), 0.5))
    >>> queue.rows, queue.oldest
    (3, 0.5)
    >>> [given.batch["t"].to_pylist() for given in joined(queue.take())]
    [[0, 1, 2]]
    """

    def __init__(self) -> None:
        self._items: deque[Item] = deque()
        self.rows = 0
        self.calls = 0

    def __len__(self) -> int:
        return len(self._items)

    @property
    def oldest(self) -> float:
        """When the oldest rows arrived; the queue is not empty."""
        first = self._items[0]
        return first.arrived if isinstance(first, Given | Filled) else 0.0

    def put(self, given: Given) -> None:
        """Append a batch."""
        # An interrupt between the two lines leaves a count that is too large, never a row that is not counted.
        self.rows += given.batch.num_rows
        self._items.append(given)

    def filled(self, stream: str, block: Block, rows: int, arrived: float) -> None:
        """Append the last rows of a block. Rows that follow others of the same block extend their item."""
        self.rows += rows
        last = self._items[-1] if self._items else None
        if isinstance(last, Filled) and last.block is block:
            last.end = block.end
        else:
            self._items.append(Filled(stream, block, block.end - rows, block.end, arrived))

    def call(self, call: Call, rows: int = 0) -> None:
        """Append a call, which runs alone, and the number of rows that it pushes."""
        self.calls += 1
        self.rows += rows
        self._items.append(Alone(call, rows))

    def take(self) -> list[Given] | Call:
        """Take all rows up to the next call, or that call."""
        first = self._items[0]
        if isinstance(first, Alone):
            self._items.popleft()
            self.calls -= 1
            self.rows -= first.rows
            return first.call
        taken = list(self._rows())
        self.rows -= sum(given.batch.num_rows for given in taken)
        return taken

    def _rows(self) -> Iterator[Given]:
        while self._items:
            match self._items[0]:
                case Given() as given:
                    yield given
                case Filled() as filled:
                    batch = filled.block.batch(filled.begin, filled.end)
                    yield Given(filled.stream, batch, filled.arrived)
                case _:
                    return
            self._items.popleft()

    def clear(self) -> int:
        """Drop all items; return the number of rows."""
        lost, self.rows, self.calls = self.rows, 0, 0
        self._items.clear()
        return lost


def joined(given: list[Given]) -> list[Given]:
    """Join neighbouring batches of a stream, as one task. Rows are late or not one by one, so no answer changes."""
    if len(given) == 1:
        return given
    found, run, rows = [], [given[0]], given[0].batch.num_rows
    for argument in given[1:]:
        rows += argument.batch.num_rows
        if (
            rows <= COALESCED_ROWS
            and argument.stream == run[0].stream
            and argument.batch.schema.equals(run[0].batch.schema)
        ):
            run.append(argument)
        else:
            found += _one(run)
            run, rows = [argument], argument.batch.num_rows
    return found + _one(run)


def _one(run: list[Given]) -> list[Given]:
    if len(run) == 1:
        return run
    table = pa.Table.from_batches([entry.batch for entry in run]).combine_chunks()
    return [Given(run[0].stream, batch, run[0].arrived) for batch in table.to_batches()]
