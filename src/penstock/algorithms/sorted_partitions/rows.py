"""Buffered rows: those ahead of the watermark, and those that open windows still need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.algorithms.order_statistics.ranks import ranked
from penstock.algorithms.sort.sorting import Sorter
from penstock.errors import OverflowError
from penstock.runtime.buffers import flags, indices, plain, room, ticks_of
from penstock.runtime.stage import TimedBatch
from penstock.runtime.threads import run_on_threads
from penstock.state.state_table import (
    StateTable,
    array_of,
    complete,
    in_order,
    integers,
    kept_rows,
    rows_of,
    without_nulls,
)
from penstock.types.time import Time


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
