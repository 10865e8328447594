"""Buffered rows: those ahead of the watermark, those that open windows still need, and those whose times are implied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.algorithms.sort.sorting import Sorter, ranked
from penstock.errors import OverflowError
from penstock.runtime.buffers import flags, indices, plain, room, ticks_of
from penstock.runtime.metrics import Metrics
from penstock.runtime.source_stage import BEYOND, on_time, with_implied_time
from penstock.runtime.stage import END_OF_TIME, START_OF_TIME, TimedBatch
from penstock.runtime.threads import run_on_threads
from penstock.state.state_table import (
    StateTable,
    array_of,
    complete,
    in_order,
    integers,
    kept_rows,
    read_scalars,
    rows_of,
    scalars,
    without_nulls,
)
from penstock.types.time import Time

# One call for all columns takes a tenth of the time of one for each; pyarrow 18 does not have it.
_CONCATENATE = getattr(pa, "concat_batches", None)


@dataclass(frozen=True)
class Rows:
    """Rows with their times, the columns that order rows of equal time, and whether a window has processed them yet."""

    batch: pa.RecordBatch
    times: np.ndarray
    sequence: pa.Array | None
    branch: np.ndarray | None
    fresh: np.ndarray

    def __len__(self) -> int:
        return len(self.times)

    @property
    def seen_before(self) -> int:
        """The number of rows that a window has processed."""
        return len(self) - int(np.count_nonzero(self.fresh))

    def column(self, name: str) -> pa.Array:
        return self.batch.column(name)

    def times_at(self, begin: int, count: int, step: int, shift: int) -> np.ndarray:
        """The times of every `step`-th row, shifted by some ticks."""
        return every_few(self.times, begin, count, step, shift)

    def chosen(self, which: np.ndarray, threads: int = 1) -> Rows:
        """The rows selected by a mask or by positions."""
        if which.dtype == np.bool_:
            if which.all():
                return self
            which = np.flatnonzero(which)
        return Rows(
            taken(self.batch, which, threads),
            self.times[which],
            None if self.sequence is None else self.sequence.take(indices(which)),
            None if self.branch is None else self.branch[which],
            self.fresh[which],
        )

    def part(self, begin: int, end: int) -> Rows:
        """A contiguous range of rows, without a copy."""
        return Rows(
            self.batch.slice(begin, end - begin),
            self.times[begin:end],
            None if self.sequence is None else self.sequence.slice(begin, end - begin),
            None if self.branch is None else self.branch[begin:end],
            self.fresh[begin:end],
        )

    def seen(self) -> Rows:
        """The same rows, all marked as processed."""
        return Rows(self.batch, self.times, self.sequence, self.branch, np.zeros(len(self), np.bool_))

    def unseen(self) -> Rows:
        """The same rows, none marked as processed."""
        return Rows(self.batch, self.times, self.sequence, self.branch, np.ones(len(self), np.bool_))

    def followed_by(self, *others: Rows) -> Rows:
        several = [other for other in (self, *others) if len(other)]
        if len(several) < 2:
            return several[0] if several else self
        return Rows(
            joined([reduction.batch for reduction in several], self.batch.schema),
            np.concatenate([reduction.times for reduction in several]),
            _joined_sequences([(reduction.sequence, len(reduction)) for reduction in several]),
            _joined_branches(several),
            np.concatenate([reduction.fresh for reduction in several]),
        )

    def kept(self, keys: Sequence[str]) -> StateTable:
        """The rows as a state table with `keys` as its key columns."""
        branch = np.zeros(len(self), np.int64) if self.branch is None else self.branch
        beside = {"branch": indices(branch), "fresh": flags(self.fresh)}
        if self.sequence is not None:
            beside["sequence"] = plain(self.sequence)
        return kept_rows(pa.Table.from_batches([self.batch]), self.times, keys, **beside)

    def order(self, sorter: Sorter, threads: int = 1) -> np.ndarray | None:
        """The positions of the rows by (time, sequence, branch, arrival); None if they are in order already."""
        if self.sequence is None and self.branch is None:
            if sorter.in_order(self.times, threads):
                return None
            return sorter.order(self.times)
        branch = [] if self.branch is None else [self.branch]
        return sorter.order(self.times, *self._sequence_rank(sorter), *branch)

    def _sequence_rank(self, sorter: Sorter) -> list[np.ndarray]:
        if self.sequence is None:
            return []
        known = self.sequence.is_valid().to_numpy(zero_copy_only=False)
        return [ranked(self.sequence, known, sorter)[0]]  # null ranks -1, so it is first


def every_few(times: np.ndarray, begin: int, count: int, step: int, shift: int) -> np.ndarray:
    """Every `step`-th time, shifted by some ticks."""
    some = times[begin : begin + count * step : step][:count]
    return np.add(some, shift, out=room(count)) if shift else some


def taken(batch: pa.RecordBatch, places: np.ndarray, threads: int = 1) -> pa.RecordBatch:
    """Rows of a batch by position; columns are taken in parallel."""
    chosen = indices(places)
    columns: list[Any] = [None] * batch.num_columns

    def take(begin: int) -> None:
        for place in range(begin, batch.num_columns, threads):
            columns[place] = batch.column(place).take(chosen)

    run_on_threads([partial(take, begin) for begin in range(min(threads, batch.num_columns) or 1)])
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def joined(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """Concatenate batches; a single batch is returned as it is."""
    if len(batches) == 1:
        return batches[0]
    if not batches:
        return pa.RecordBatch.from_pylist([], schema=schema)
    if _CONCATENATE is not None:
        try:
            whole = _CONCATENATE(batches)
        except pa.ArrowInvalid:
            pass  # column by column, to name the one that does not fit
        else:
            if whole.schema.equals(schema):
                return whole
    columns = [_concatenated([batch.column(name) for batch in batches], name) for name in schema.names]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _concatenated(arrays: Sequence[pa.Array], name: str) -> pa.Array:
    try:
        return pa.concat_arrays(arrays)
    except pa.ArrowInvalid as reason:
        raise OverflowError(
            f"the rows that wait for their windows do not fit one column {name!r} of type {arrays[0].type}: "
            f"{reason} Cast it, to string for example"
        ) from reason


def _joined_sequences(several: Sequence[tuple[pa.Array | None, int]]) -> pa.Array | None:
    """Concatenate sequences; rows of a stream without a sequence, in a union, get null."""
    types = {reduction.type for reduction, _ in several if reduction is not None}
    if not types:
        return None
    if len(types) > 1:  # one side of a union may be dictionary-encoded
        return _joined_sequences(
            [(None if reduction is None else plain(reduction), rows) for reduction, rows in several]
        )
    dtype = types.pop()
    return pa.concat_arrays(
        [pa.nulls(rows, dtype) if reduction is None else reduction for reduction, rows in several]
    )


def _joined_branches(several: Sequence[Rows]) -> np.ndarray | None:
    if all(reduction.branch is None for reduction in several):
        return None
    return np.concatenate(
        [
            np.zeros(len(reduction), np.int64) if reduction.branch is None else reduction.branch
            for reduction in several
        ]
    )


def no_rows(schema: pa.Schema) -> Rows:
    """An empty set of rows."""
    nothing = np.zeros(0, np.int64)
    return Rows(joined([], schema), nothing, None, None, nothing.astype(np.bool_))


def rows_back(table: pa.Table, schema: pa.Schema, time: Time) -> Rows:
    """Restore saved rows."""
    table = in_order(table)
    batch = rows_of(table, schema)
    branch = integers(table, "branch")
    return Rows(
        batch,
        ticks_of(without_nulls(batch.column(time.column), time.column), time.shift),
        array_of(table, "sequence") if "sequence" in table.column_names else None,
        branch if branch.any() else None,
        complete(table, "fresh", pa.bool_()).to_numpy(zero_copy_only=False),
    )


def arrived(timed_batches: Sequence[TimedBatch], schema: pa.Schema, time: Time) -> Rows:
    """Rows from incoming batches."""
    batch = joined([timed_batch.batch for timed_batch in timed_batches], schema)
    branches = [timed_batch.branch for timed_batch in timed_batches]
    return Rows(
        batch,
        ticks_of(batch.column(time.column), time.shift),
        _joined_sequences(
            [(timed_batch.sequence, timed_batch.batch.num_rows) for timed_batch in timed_batches]
        ),
        np.repeat(branches, [timed_batch.batch.num_rows for timed_batch in timed_batches])
        if any(branches)
        else None,
        np.ones(batch.num_rows, np.bool_),
    )


@dataclass
class PendingRows:
    """Rows of one schema, in arrival order. Times are read only when `oldest` is needed."""

    schema: pa.Schema
    pieces: list[Rows] = field(init=False, default_factory=list)
    _unseen: list[Rows] = field(init=False, default_factory=list)
    _earliest: int = field(init=False, default=END_OF_TIME)

    def add(self, rows: Rows) -> None:
        self.pieces.append(rows)
        self._unseen.append(rows)

    @property
    def oldest(self) -> int:
        """The earliest time in the buffer."""
        self._earliest = min([self._earliest, *map(_oldest, self._unseen)])
        self._unseen = []
        return self._earliest

    @property
    def rows(self) -> Rows:
        """All rows, concatenated."""
        if len(self.pieces) != 1:
            self.pieces = [no_rows(self.schema).followed_by(*self.pieces)]
            self._unseen = list(self.pieces) if self._unseen else []  # releases the concatenated pieces
        return self.pieces[0]

    def add_before(self, rows: Rows) -> None:
        """Insert rows before all others."""
        self.pieces.insert(0, rows)
        self._unseen.append(rows)

    def replace(self, rows: Rows) -> None:
        """Replace the buffered rows."""
        self.pieces, self._unseen, self._earliest = [rows], [rows], END_OF_TIME

    def take(self) -> Rows:
        """Remove and return all rows."""
        rows = self.rows
        self.replace(no_rows(self.schema))
        return rows


def _oldest(rows: Rows) -> int:
    return int(rows.times.min()) if len(rows) else END_OF_TIME


class HeldRows:
    """Rows buffered until the watermark, with the columns that order rows of equal time. Late rows are dropped and counted."""

    def __init__(self, schema: pa.Schema, time: Time, metrics: Metrics) -> None:
        self.schema, self.time, self.metrics = schema, time, metrics
        self.watermark = START_OF_TIME
        self._parts: list[Rows] = []  # in arrival order; concatenated when first read

    def add(self, timed_batches: list[TimedBatch]) -> None:
        self._parts += [
            arrived([self._on_time(timed_batch)], self.schema, self.time) for timed_batch in timed_batches
        ]

    def _on_time(self, timed_batch: TimedBatch) -> TimedBatch:
        def late(arrival_watermarks: np.ndarray) -> np.ndarray:
            return np.asarray(
                ticks_of(timed_batch.batch.column(self.time.column), self.time.shift) < arrival_watermarks
            )

        return on_time(timed_batch, self.metrics, late)

    def release(self, watermark: int) -> Rows:
        """Remove and return the rows before the watermark."""
        self.watermark = max(self.watermark, watermark)
        rows = self.rows()
        if self.watermark == END_OF_TIME:
            self._parts = []
            return rows
        passed = rows.times < self.watermark
        self._parts = [rows.chosen(~passed)]
        return rows.chosen(passed)

    def save(self, keys: Sequence[str] = ()) -> dict[str, StateTable]:
        """Save the buffered rows, with `keys` as the key columns of the state table."""
        return {"marks": scalars(watermark=self.watermark), "rows": self.rows().kept(keys)}

    def load(self, tables: Mapping[str, pa.Table]) -> None:
        self.watermark = read_scalars(tables["marks"])["watermark"]
        if "rows" in tables:
            self._parts = [rows_back(tables["rows"], self.schema, self.time)]

    def rows(self) -> Rows:
        """The buffered rows."""
        whole = no_rows(self.schema).followed_by(*self._parts)
        self._parts = [whole]
        return whole


_BLOCK = 1 << 12


class ImpliedRows(Rows):
    """New rows in arrival order. `schema` includes the time column, `columns` does not."""

    def __init__(self, columns: pa.RecordBatch, schema: pa.Schema, time: Time, first_row: int) -> None:
        given = {"columns": columns, "schema": schema, "time": time, "first_row": first_row}
        for name, value in {**given, "sequence": None, "branch": None}.items():
            object.__setattr__(self, name, value)  # rows are frozen

    columns: pa.RecordBatch
    schema: pa.Schema
    time: Time
    first_row: int

    def __len__(self) -> int:
        return int(self.columns.num_rows)

    @property
    def seen_before(self) -> int:
        return 0

    @cached_property
    def batch(self) -> pa.RecordBatch:
        return with_implied_time(self.columns, self.time, self.first_row, self.schema)

    @cached_property
    def times(self) -> np.ndarray:
        return self.times_at(0, len(self), 1, 0)

    @cached_property
    def fresh(self) -> np.ndarray:
        return np.ones(len(self), np.bool_)

    def column(self, name: str) -> pa.Array:
        return (self.batch if name == self.time.column else self.columns).column(name)

    def times_at(self, begin: int, count: int, step: int, shift: int) -> np.ndarray:
        assert self.time.period is not None
        first = self.time.start + (self.first_row + begin) * self.time.period + shift
        pace = self.time.period * step
        end = first + (count - 1) * pace + 1
        if end > END_OF_TIME:
            raise OverflowError(BEYOND)
        return ramp(first, pace, count)

    def order(self, sorter: Sorter, threads: int = 1) -> np.ndarray | None:
        """Return None: the rows are in time order."""
        return None


def ramp(first: int, pace: int, count: int) -> np.ndarray:
    """The numbers first, first + pace, …: one block, shifted repeatedly into memory that may be reused."""
    block, blocks = np.arange(_BLOCK) * pace, count // _BLOCK
    made, whole = room(count), blocks * _BLOCK
    starts = first + np.arange(blocks) * (pace * _BLOCK)
    np.add(starts[:, None], block, out=made[:whole].reshape(blocks, _BLOCK))
    np.add(block[: count - whole], first + whole * pace, out=made[whole:])
    return made


def arrived_implied(timed_batches: Sequence[TimedBatch], schema: pa.Schema, time: Time) -> Rows:
    """Rows from consecutive incoming batches without the time column."""
    columns = pa.schema([field for field in schema if field.name != time.column])
    return ImpliedRows(
        joined([timed_batch.batch for timed_batch in timed_batches], columns),
        schema,
        time,
        timed_batches[0].first_row,
    )
