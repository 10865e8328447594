"""A session over bounded input that keeps to a memory budget.

    few rows     gathered, then pushed at once: operators sort rows once, as without a budget
    many rows    sorted by time, in files beyond the budget, and pushed in time order through the pipeline of unbounded
                 input, whose operators forget a row as soon as no later result needs it

What operators hold even then is measured now and then, and refused beyond the budget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from penstock.errors import MemoryLimitError
from penstock.runtime.buffers import ticks_of
from penstock.runtime.memory.budget import Budget, SortedRuns, size_of
from penstock.runtime.session import Context, Pipeline, Session
from penstock.runtime.stage import END_OF_TIME, START_OF_TIME
from penstock.types.time import Time

GATHERED, SORTED, STATES = 2, 4, 2  # the shares of the budget: one in so many parts of it
_ROW = "row number"  # the hidden column of implied times: longer names of users cannot hold a space and clash

Arrange = Callable[[pa.Table], pa.Table]


class RowNeed(NamedTuple):
    """What operators need for a row of bounded input: a multiple of its own bytes, and bytes of positions and results."""

    times: float
    plus: int

    def of(self, rows: int, size: int) -> int:
        return int(self.times * size) + self.plus * rows


@dataclass(frozen=True)
class Memory:
    """A budget and what it applies to: the times of streams, and the need of their rows; None if no operator holds rows."""

    budget: Budget
    times: Mapping[str, Time]
    need: RowNeed | None
    operators: Mapping[str, str]


class _Gathered(NamedTuple):
    stream: str
    batches: tuple[pa.RecordBatch, ...]
    first_row: int | None = None
    watermark: int | None = None


@dataclass
class _Input:
    """A stream whose rows are pushed in time order."""

    time: Time
    arrange: Arrange | None
    budget: Budget
    share: int
    frontier: int = START_OF_TIME  # no earlier row is added
    next_row: int = 0
    runs: SortedRuns | None = field(default=None)

    def add(self, batch: pa.RecordBatch) -> None:
        if self.time.implied:
            numbers = pa.array(np.arange(self.next_row, self.next_row + batch.num_rows))
            batch = pa.RecordBatch.from_arrays(
                [*batch.columns, numbers], schema=batch.schema.append(pa.field(_ROW, pa.int64()))
            )
        if self.runs is None:
            self.runs = SortedRuns(batch.schema, self.ticks, self.budget, self.share)
        self.runs.add(batch if batch.schema == self.runs.schema else _cast(batch, self.runs.schema))

    def ticks(self, batch: pa.RecordBatch) -> np.ndarray:
        if not self.time.implied:
            return ticks_of(batch.column(self.time.column))
        assert self.time.period is not None
        return ticks_of(batch.column(_ROW)) * self.time.period + self.time.start

    def arranged(self, chunk: pa.RecordBatch) -> list[pa.RecordBatch]:
        """Return a chunk, whose times are all complete, in the form that its stream takes."""
        if self.arrange is None:
            return [chunk]
        return list(self.arrange(pa.Table.from_batches([chunk])).combine_chunks().to_batches())


class BudgetedSession(Session):
    """A session that gathers rows, and goes on in time order when they exceed its budget."""

    def __init__(
        self, pipeline: Pipeline, ordered: Callable[[], Pipeline], context: Context, memory: Memory
    ) -> None:
        super().__init__(pipeline, context)
        self.memory = memory
        self._ordered_pipeline, self._context = ordered, context
        self._gathered: list[_Gathered] = []
        self._need = self._since_measured = 0
        self._inputs: dict[str, _Input] | None = None
        self._next_row: dict[str, int] = {}
        self._arranges: dict[str, Arrange] = {}
        self._tables: list[tuple[str, tuple[pa.RecordBatch, ...]]] = []

    @property
    def budget(self) -> Budget:
        return self.memory.budget

    @property
    def ordered(self) -> bool:
        """Whether rows exceeded their share of the budget, so that they are pushed in time order."""
        return self._inputs is not None

    def arrange(self, stream: str, change: Arrange) -> None:
        """Order the rows of a stream by a function, which gets all of its rows, or all of some times in time order."""
        self._arranges[stream] = change
        if self.memory.need is None:  # rows are gathered even if no operator holds them
            self.memory = replace(self.memory, need=RowNeed(1.0, 0))

    def trust_watermarks(self) -> None:
        """Push rows at once: they come in time order, or nearly, so that operators hold few of them."""
        self.memory = replace(self.memory, need=None)

    def fill(self, table: str, batches: Iterable[pa.RecordBatch]) -> None:
        held = tuple(batches)
        self._tables.append((table, held))
        super().fill(table, held)

    def number_from(self, stream: str, row: int) -> None:
        if self.memory.need is None:
            super().number_from(stream, row)
        self._next_row[stream] = row

    def push(self, stream: str, *batches: pa.RecordBatch) -> list[pa.RecordBatch]:
        self._source(stream)
        if self.memory.need is None:
            return self._measured(super().push(stream, *batches), sum(batch.nbytes for batch in batches))
        self._take_in(_Gathered(stream, batches, self._next_row.pop(stream, None)))
        return self._released() if self.ordered else []

    def advance(self, watermark: int, stream: str | None = None) -> list[pa.RecordBatch]:
        if self.memory.need is None:
            return super().advance(watermark, stream)
        for name in self.memory.times if stream is None else [stream]:
            self._source(name)
            self._take_in(_Gathered(name, (), None, watermark))
        return self._released() if self.ordered else []

    def finish(self) -> list[pa.RecordBatch]:
        """Push what is gathered, and finish. All results of rows in files are returned at once: `finishing` yields them."""
        return [batch for made in self.finishing() for batch in made]

    def finishing(self) -> Iterable[list[pa.RecordBatch]]:
        """Finish, and yield results as they become complete."""
        if self._finished:
            return
        if self._inputs is not None:
            for entry in self._inputs.values():
                entry.frontier = END_OF_TIME
            yield from self._releases()
        else:
            for gathered in self._whole():
                yield self._replay(gathered)
        yield super().finish()

    # -- few rows ------------------------------------------------------------------------------------

    def _take_in(self, given: _Gathered) -> None:
        if self._inputs is not None:
            self._enter(given)
            return
        assert self.memory.need is not None
        self._gathered.append(given)
        need = self.memory.need
        self._need += sum(need.of(batch.num_rows, batch.nbytes) for batch in given.batches)
        if self._need > self.budget.limit // GATHERED:
            self._go_on_in_order()

    def _whole(self) -> list[_Gathered]:
        """Return what was gathered, with the streams that have an order of their own as one batch each."""
        plain = [gathered for gathered in self._gathered if gathered.stream not in self._arranges]
        for stream, change in self._arranges.items():
            rows = [b for gathered in self._gathered if gathered.stream == stream for b in gathered.batches]
            if rows:
                table = change(pa.Table.from_batches(rows))
                plain.append(_Gathered(stream, tuple(table.combine_chunks().to_batches())))
        self._gathered = []
        return plain

    def _replay(self, given: _Gathered) -> list[pa.RecordBatch]:
        if given.first_row is not None:
            super().number_from(given.stream, given.first_row)
        made = super().push(given.stream, *given.batches) if given.batches else []
        return made if given.watermark is None else made + super().advance(given.watermark, given.stream)

    # -- many rows -----------------------------------------------------------------------------------

    def _go_on_in_order(self) -> None:
        """Start anew with the pipeline of unbounded input. No row was pushed yet: rows that files skipped stay counted."""
        context = replace(self._context, metrics=self.metrics, bounded=False)
        Session.__init__(self, self._ordered_pipeline(), context)
        self.pace()
        for name, batches in self._tables:
            super().fill(name, batches)
        # Operators need more for a chunk than its own bytes, and the sort holds a few copies of it.
        raw = sum(batch.nbytes for gathered in self._gathered for batch in gathered.batches)
        share = int(self.budget.limit / SORTED * raw / max(self._need, 1)) // len(self.memory.times)
        self._inputs = {
            name: _Input(time, self._arranges.get(name), self.budget, share)
            for name, time in self.memory.times.items()
        }
        gathered, self._gathered = self._gathered[::-1], []
        while gathered:  # a batch is released as soon as it is in a run
            self._enter(gathered.pop())

    def _enter(self, given: _Gathered) -> None:
        assert self._inputs is not None
        entry = self._inputs[given.stream]
        entry.next_row = entry.next_row if given.first_row is None else given.first_row
        for batch in given.batches:
            if entry.time.implied:
                entry.add(batch)
            else:
                entry.add(self._timed(given.stream, entry.time, batch))
            entry.next_row += batch.num_rows
        if given.watermark is not None:
            entry.frontier = max(entry.frontier, given.watermark)

    def _timed(self, stream: str, time: Time, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that have a time. The source of the stream counts the others, or fails."""
        times = batch.column(time.column)
        if not times.null_count:
            return batch
        super().push(stream, self._plain(stream, batch.filter(times.is_null())))
        return batch.filter(times.is_valid())

    def _plain(self, stream: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        change = self._arranges.get(stream)
        return batch if change is None else change(pa.Table.from_batches([batch])).to_batches()[0]

    def _released(self) -> list[pa.RecordBatch]:
        return [batch for made in self._releases() for batch in made]

    def _releases(self) -> Iterable[list[pa.RecordBatch]]:
        """Push the rows before the frontier of every stream, in steps of time, and yield what they complete."""
        assert self._inputs is not None
        frontier = min(given_input.frontier for given_input in self._inputs.values())
        if frontier == START_OF_TIME:
            return
        if len(self._inputs) == 1:
            ((stream, entry),) = self._inputs.items()
            for chunk in entry.runs.take(frontier) if entry.runs is not None else ():
                yield self._pushed(stream, entry, chunk)
        else:
            yield from self._interleaved(frontier)
        yield super().advance(frontier) if frontier != END_OF_TIME else []

    def _interleaved(self, frontier: int) -> Iterable[list[pa.RecordBatch]]:
        """Push the streams in turns: always the one whose next row is the oldest, up to the next row of the others."""
        assert self._inputs is not None
        chunks = {
            name: _Chunks(entry, frontier) for name, entry in self._inputs.items() if entry.runs is not None
        }
        if frontier == END_OF_TIME:
            for name in self._inputs.keys() - chunks.keys():  # a stream without rows holds nothing up
                yield super().advance(END_OF_TIME, name)
        while chunks:
            name = min(chunks, key=lambda stream: chunks[stream].first)
            chunk = chunks[name].next()
            if chunk is None:
                del chunks[name]
                if frontier == END_OF_TIME and chunks:
                    yield super().advance(END_OF_TIME, name)
                continue
            yield self._pushed(name, self._inputs[name], chunk)

    def _pushed(self, stream: str, entry: _Input, chunk: pa.RecordBatch) -> list[pa.RecordBatch]:
        """Push a chunk, which has all rows up to its last time."""
        last, made = int(entry.ticks(chunk)[-1]), []
        if entry.time.implied:
            made += self._push_numbered(stream, chunk)
        else:
            made += super().push(stream, *entry.arranged(chunk))
        if last < END_OF_TIME - 1:
            made += super().advance(last + 1, stream)
        return self._measured(made, chunk.nbytes)

    def _push_numbered(self, stream: str, chunk: pa.RecordBatch) -> list[pa.RecordBatch]:
        """Push rows whose time follows from their number, in stretches of consecutive numbers."""
        numbers, made = ticks_of(chunk.column(_ROW)), []
        rows = chunk.drop_columns([_ROW])
        edges = [0, *(np.flatnonzero(np.diff(numbers) != 1) + 1).tolist(), len(numbers)]
        for begin, end in pairwise(edges):
            super().number_from(stream, int(numbers[begin]))
            made += super().push(stream, rows.slice(begin, end - begin))
        return made

    # -- states --------------------------------------------------------------------------------------

    def _measured(self, made: list[pa.RecordBatch], pushed: int) -> list[pa.RecordBatch]:
        """Measure states after each share of the budget, so that it costs no more than the rows did."""
        self._since_measured += pushed
        if self.budget.strict and self._since_measured > self.budget.limit // SORTED:
            self._since_measured = 0
            self._refuse_large_states()
        return made

    def _refuse_large_states(self) -> None:
        held = self.held()
        total = sum(state.bytes for state in held.values())
        if total <= self.budget.limit // STATES:
            return
        name = max(held, key=lambda stage: held[stage].bytes)
        rows, size = held[name]
        what = self.memory.operators.get(name, "an operator")
        raise MemoryLimitError(
            f"{what} (~{name}) holds {rows} rows or states in {size_of(size)}, and the run {size_of(total)} in all, which needs about "
            f"{size_of(STATES * total)} of memory so far; memory={size_of(self.budget.limit)}: give more, or use shorter windows or fewer keys"
        )


class _Chunks:
    """The chunks of one stream, and the time of the next."""

    def __init__(self, entry: _Input, before: int) -> None:
        assert entry.runs is not None
        self._entry, self._chunks = entry, iter(entry.runs.take(before))
        self._next: pa.RecordBatch | None = None
        self.first = START_OF_TIME
        self._load()

    def next(self) -> pa.RecordBatch | None:
        """Return the next chunk; None at the end."""
        found = self._next
        if found is not None:
            self._load()
        return found

    def _load(self) -> None:
        self._next = next(self._chunks, None)
        self.first = END_OF_TIME if self._next is None else int(self._entry.ticks(self._next)[0])


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Give a batch the types that the batches before it had, such as that of a dictionary."""
    if batch.schema.names != schema.names:
        batch = batch.select(schema.names)
    return pa.Table.from_batches([batch]).cast(schema).combine_chunks().to_batches()[0]
