"""The memory that a run may use, and an external sort by time, which keeps what exceeds the budget in files.

Rows are gathered in memory. When they exceed their share of the budget they are sorted and written as a run: an Arrow
IPC stream in a nameless temporary file. Runs are merged by reading one batch of each. A chunk that comes out has every row
of each of its times, and rows of one time are in their order of arrival.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, cast

import numpy as np
import pyarrow as pa

from penstock.errors import EngineError, MemoryLimitError
from penstock.runtime.buffers import indices
from penstock.runtime.stage import END_OF_TIME

LEAST_BUDGET = 1 << 20  # a smaller budget would be used up by the buffers of one batch
_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS |= {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_UNITS |= {"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")
# Where tasks of cluster managers are to put temporary files, most specific first.
_FOLDERS = "PENSTOCK_SPILL_DIR", "SPARK_LOCAL_DIRS", "LOCAL_DIRS"


def memory_bytes(given: object, least: int = LEAST_BUDGET) -> int:
    """Return a size in bytes, given as a number or as text with a unit; Spark's `512m` and `4g` are binary.

    >>> memory_bytes("4GB"), memory_bytes("512MiB"), memory_bytes("1g")
    (4000000000, 536870912, 1073741824)
    """
    found = _parsed(given)
    if found is None:
        raise EngineError(f"memory must be a size such as '4GB' or a number of bytes, not {given!r:.60}")
    if found < least:
        raise EngineError(
            f"memory={given!r:.60} is too little to run anything in; give at least {size_of(least)}"
        )
    return found


def _parsed(given: object) -> int | None:
    if isinstance(given, int) and not isinstance(given, bool):
        return given
    found = _SIZE.fullmatch(given) if isinstance(given, str) else None
    unit = None if found is None else _UNITS.get(found[2].lower())
    return None if found is None or unit is None else int(float(found[1]) * unit)


def size_of(size: float) -> str:
    """Format a number of bytes.

    >>> size_of(1_500_000), size_of(3_100_000_000)
    ('1.5 MB', '3.1 GB')
    """
    for unit, length in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= length:
            return f"{size / length:.1f} {unit}"
    return f"{size:.0f} bytes"


@dataclass
class Budget:
    """A limit in bytes, and what has been spilled because of it. Only a `strict` one refuses states beyond the limit.

    `folder` is where rows are spilled; without one, it is a folder for temporary files.
    """

    limit: int
    strict: bool = True
    folder: str | None = None
    spilled: int = 0

    def file(self) -> BinaryIO:
        """Open a file for one run of rows. It has no name, or none any longer, so that nothing remains after a crash."""
        folder = self.folder or spill_folder(os.environ)
        try:
            return cast(BinaryIO, tempfile.TemporaryFile(dir=folder))
        except OSError as error:
            raise no_room(folder, error) from None


def spill_folder(environment: Mapping[str, str]) -> str:
    """Return the folder for spilled rows: the first that the environment names, or the system's."""
    for name in _FOLDERS:
        first = environment.get(name, "").split(",")[0].strip()
        if first:
            return first
    return tempfile.gettempdir()


def no_room(folder: str, error: OSError) -> MemoryLimitError:
    """Return the error for a folder that takes no spilled rows."""
    return MemoryLimitError(
        f"rows beyond the memory of this run cannot be spilled to {folder!r}: {error.strerror or error}; "
        "name a folder on a local disk with room in PENSTOCK_SPILL_DIR, or give more memory"
    )


FAN_IN = 16  # runs of one level that become one of the next; each has a batch in memory
FEWEST_ROWS_OF_RUN = 64  # of a batch of a run

Times = Callable[[pa.RecordBatch], np.ndarray]


@dataclass
class _Head:
    """The next rows of a run, in time order, and where the rows behind them come from. `level` counts its merges."""

    rows: pa.RecordBatch
    times: np.ndarray
    rest: Iterator[pa.RecordBatch]
    times_of: Times
    more: bool = True
    level: int = 0

    def reach(self) -> int:
        """Return a time such that every row of the run before it is at hand."""
        while self.more and not len(self.times):
            self.load()
        return int(self.times[-1]) if self.more else END_OF_TIME

    def load(self) -> None:
        """Read one more batch."""
        batch = next(self.rest, None)
        self.more = batch is not None
        if batch is not None:
            self.rows = pa.concat_batches([self.rows, batch]) if self.rows.num_rows else batch
            self.times = self.times_of(self.rows)

    def take(self, before: int) -> pa.RecordBatch:
        count = len(self.times) if before == END_OF_TIME else int(np.searchsorted(self.times, before))
        taken = self.rows.slice(0, count)
        self.rows, self.times = self.rows.slice(count), self.times[count:]
        return taken

    @property
    def empty(self) -> bool:
        return not self.more and not len(self.times)


@dataclass
class SortedRuns:
    """Rows of one stream that are not taken yet. `share` bounds the bytes that are gathered before they are written."""

    schema: pa.Schema
    times_of: Times
    budget: Budget
    share: int
    _loose: list[pa.RecordBatch] = field(init=False, default_factory=list)
    _loose_bytes: int = field(init=False, default=0)
    _files: list[_Head] = field(init=False, default_factory=list)
    _memory: _Head | None = field(init=False, default=None)  # the youngest rows, sorted
    _first: int = field(init=False, default=END_OF_TIME)  # no row is earlier

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows, which have times; write a run if too many are in memory."""
        if not batch.num_rows:
            return
        self._loose.append(batch)
        self._loose_bytes += batch.nbytes
        self._first = min(self._first, int(self.times_of(batch).min()))
        sorted_bytes = 0 if self._memory is None else self._memory.rows.nbytes
        if self._loose_bytes + sorted_bytes > self.share:
            self._spill()

    def oldest(self) -> int:
        """Return the earliest time of the rows; END_OF_TIME if there are none."""
        heads = self._heads()
        for head in heads:
            head.reach()
        return min((int(head.times[0]) for head in heads if len(head.times)), default=END_OF_TIME)

    def take(self, before: int) -> Iterator[pa.RecordBatch]:
        """Remove the rows before a time and yield them in time order; END_OF_TIME takes all."""
        if before <= self._first and before != END_OF_TIME:  # nothing to sort yet
            return
        self._first = before
        self._memory = self._in_memory()
        yield from self._merged(self._heads(), before)
        self._files = [head for head in self._files if not head.empty]

    def _merged(self, heads: Sequence[_Head], before: int) -> Iterator[pa.RecordBatch]:
        heads = [head for head in heads if not head.empty]
        while heads:
            reach = min(before, *(head.reach() for head in heads))
            parts = [part for part in (head.take(reach) for head in heads) if part.num_rows]
            if parts:
                yield in_time_order(parts, self.times_of)
            if reach == before:
                return
            if not parts:  # one time fills a whole batch
                for head in heads:
                    if head.more and head.reach() == reach:
                        head.load()
            heads = [head for head in heads if not head.empty]

    def _heads(self) -> list[_Head]:
        self._memory = self._in_memory()
        return [*self._files, *([] if self._memory is None else [self._memory])]

    def _in_memory(self) -> _Head | None:
        """Sort the loose rows into those that were sorted before."""
        if not self._loose:
            return self._memory
        older = [] if self._memory is None else [self._memory.rows]
        rows = in_time_order([*older, *self._loose], self.times_of)
        self._loose, self._loose_bytes = [], 0
        return _Head(rows, self.times_of(rows), iter(()), self.times_of, more=False)

    def _spill(self) -> None:
        """Write the rows in memory as a run, and merge runs when there are many."""
        memory, self._memory = self._in_memory(), None
        assert memory is not None
        self._files.append(self._written([memory.rows], 0))
        while len(last := self._files[-FAN_IN:]) == FAN_IN and last[0].level == last[-1].level:
            merged = self._written(self._merged(last, END_OF_TIME), last[0].level + 1)
            self._files[-FAN_IN:] = [merged]

    def _written(self, sorted_rows: Iterable[pa.RecordBatch], level: int) -> _Head:
        """Write rows in time order to a file, and return its head."""
        file = self.budget.file()
        try:
            with pa.ipc.new_stream(file, self.schema) as writer:
                for rows in sorted_rows:
                    every = max(
                        self.share // FAN_IN * rows.num_rows // max(rows.nbytes, 1), FEWEST_ROWS_OF_RUN
                    )
                    for begin in range(0, rows.num_rows, every):
                        writer.write_batch(rows.slice(begin, every))
            self.budget.spilled += file.tell()
        except OSError as error:
            file.close()
            raise no_room(spill_folder(os.environ), error) from None
        file.seek(0)
        return _Head(_no_rows(self.schema), np.zeros(0, np.int64), _batches(file), self.times_of, level=level)


def in_time_order(batches: Sequence[pa.RecordBatch], times_of: Times) -> pa.RecordBatch:
    """Concatenate batches and sort their rows by time. Rows of one time keep their order."""
    whole = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    times = times_of(whole)
    if (times[1:] >= times[:-1]).all():
        return whole
    return whole.take(indices(np.argsort(times, kind="stable")))


def _batches(file: BinaryIO) -> Iterator[pa.RecordBatch]:
    with file:
        yield from pa.ipc.open_stream(file)


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
