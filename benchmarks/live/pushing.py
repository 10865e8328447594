"""The ways to push rows into an open query. A way that a build does not have is left out."""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

import penstock as pk
from benchmarks.live.feed import SCHEMA

PUSH, BACKGROUND, WRITER = "push", "background", "writer"
MAX_DELAY = "1ms"


@dataclass(slots=True)
class Results:
    """Result batches, and when each was handed over (seconds of `time.perf_counter`)."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    def add(self, made: list[pa.RecordBatch]) -> None:
        now = time.perf_counter()
        self.batches += made
        self.times += [now] * len(made)

    def table(self, schema: pa.Schema) -> pa.Table:
        return pa.Table.from_batches(self.batches, schema)


class Pusher(Protocol):
    """An open query that takes one buffer at a time, in the form that `prepared` gives it."""

    def prepared(self, buffers: Sequence[pa.RecordBatch]) -> Sequence[Any]:
        """Convert buffers to what the program has at hand; this takes no time of the measurement."""

    def push(self, buffer: Any) -> None: ...

    def finish(self) -> None:
        """Complete what was pushed and take all results of it."""

    def close(self) -> None: ...


class Foreground:
    """Push in the caller's thread; each push returns the results that it completed."""

    def __init__(self, query: Any, engine: pk.Engine, results: Results) -> None:
        self._live = query.open(engine=engine)
        self._results = results

    def prepared(self, buffers: Sequence[pa.RecordBatch]) -> Sequence[Any]:
        return buffers

    def push(self, buffer: pa.RecordBatch) -> None:
        made = self._live.push(buffer)
        if made:
            self._results.add(made)

    def finish(self) -> None:
        self._results.add(self._live.finish())

    def close(self) -> None:
        self._live.__exit__(None, None, None)


class Background:
    """Push into the queue of a background worker; a thread takes the results."""

    def __init__(self, query: Any, engine: pk.Engine, results: Results) -> None:
        self._live = query.open(engine=engine, background=True, max_delay=MAX_DELAY)
        self._results = results
        self._taker = threading.Thread(target=self._take, daemon=True)
        self._taker.start()

    def _take(self) -> None:
        for batch in self._live:
            self._results.add([batch])

    def prepared(self, buffers: Sequence[pa.RecordBatch]) -> Sequence[Any]:
        return buffers

    def push(self, buffer: Any) -> None:
        self._live.push(buffer)

    def finish(self) -> None:
        rest = self._live.finish()
        self._taker.join()
        self._results.add(list(rest or ()))

    def close(self) -> None:
        self._live.__exit__(None, None, None)
        self._taker.join()


class Writer(Background):
    """Fill preallocated columns in place from arrays, and commit the rows filled."""

    def prepared(self, buffers: Sequence[pa.RecordBatch]) -> Sequence[Any]:
        self._writer = self._live.writer(max(buffer.num_rows for buffer in buffers))
        self._targets = list(self._writer.values())  # of the columns that the query reads
        return [self._arrays(buffer) for buffer in buffers]

    def _arrays(self, buffer: pa.RecordBatch) -> list[Any]:
        columns = [(buffer.column(name), target.dtype) for name, target in self._writer.items()]
        return [
            (column.view(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_numpy().view(dtype)
            for column, dtype in columns
        ]

    def push(self, buffer: list[Any]) -> None:
        rows = len(buffer[0])
        for target, values in zip(self._targets, buffer, strict=True):
            target[:rows] = values
        self._writer.commit(rows)


PUSHERS: dict[str, type[Foreground | Background]] = {
    PUSH: Foreground,
    BACKGROUND: Background,
    WRITER: Writer,
}


def available() -> Iterator[str]:
    """Yield the ways to push that this build of Penstock has."""
    yield PUSH
    if "background" in inspect.signature(pk.Stream.open).parameters:
        yield BACKGROUND
        with pk.stream("rows", SCHEMA, time="ts").filter(pk.col("et") == 1).open() as live:
            has_writer = hasattr(live, "writer")
        if has_writer:
            yield WRITER
