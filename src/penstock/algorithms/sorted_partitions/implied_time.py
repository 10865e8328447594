"""Rows with implied times, which follow from row numbers and are materialised only on access."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa

from penstock.algorithms.sort.sorting import Sorter
from penstock.algorithms.sorted_partitions.rows import Rows, joined
from penstock.errors import OverflowError
from penstock.runtime.buffers import room
from penstock.runtime.implied_times import BEYOND, with_implied_time
from penstock.runtime.stage import END_OF_TIME, TimedBatch
from penstock.types.time import Time

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
