"""Build result batches from frames: one row per window, one row per input row, or the output of a user function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from penstock.algorithms.sort.sorting import Sorter, ranked
from penstock.algorithms.sorted_partitions.frames import Frames
from penstock.algorithms.sorted_partitions.partitions import SortedPartitions, same_keys
from penstock.algorithms.sorted_partitions.reducers import Reducer, ranges
from penstock.algorithms.sorted_partitions.rows import taken
from penstock.runtime.buffers import indices, time_array
from penstock.runtime.stage import does_not_fit

Emission = Callable[[SortedPartitions, int], list[pa.RecordBatch]]


class Framed(Protocol):
    """Windows over sorted partitions."""

    def frames(self, partitions: SortedPartitions, watermark: int) -> Frames:
        """The windows that are complete at the watermark and have not been emitted."""


@dataclass(frozen=True)
class Reductions:
    """All reductions of a query over its frames."""

    reducers: Sequence[Reducer]
    count: int

    def arrays(self, partitions: SortedPartitions, spans: Sequence[Frames]) -> list[pa.Array]:
        found: list[pa.Array] = [None] * self.count
        for reducer in self.reducers:
            made = reducer.reduce(partitions, spans[reducer.span])
            for place, array in zip(reducer.places, made, strict=True):
                found[place] = array
        return found


@dataclass(frozen=True)
class WindowResults:
    """One row for each window and key: bounds, keys, aggregates.

    `by_key` orders the rows of a window by their keys, if a downstream stage depends on their order.
    """

    framing: Framed
    reductions: Reductions
    keys: tuple[str, ...]
    schema: pa.Schema
    sorter: Sorter
    by_key: bool
    threads: int

    def __call__(self, partitions: SortedPartitions, watermark: int) -> list[pa.RecordBatch]:
        frames = self.framing.frames(partitions, watermark)
        if not len(frames):
            return []
        reduced = self.reductions.arrays(partitions, [frames])
        keys = key_arrays(partitions, partitions.key_rows(frames.lo), self.keys)
        batch = pa.RecordBatch.from_arrays(
            [*bound_arrays(frames, self.schema), *keys, *reduced], schema=self.schema
        )
        by_key = keys and self.by_key
        order = by_bounds_and_keys(frames, keys, self.sorter) if by_key else by_bounds(frames, self.sorter)
        return [batch if order is None else taken(batch, order, self.threads)]


@dataclass(frozen=True)
class RowResults:
    """Every row, once for each window that holds it, with the window's bounds and aggregates.

    `adds_bounds` is False if the rows already have columns for the bounds.
    """

    framing: Framed
    reductions: Reductions
    adds_bounds: bool
    schema: pa.Schema
    sorter: Sorter

    def __call__(self, partitions: SortedPartitions, watermark: int) -> list[pa.RecordBatch]:
        frames = self.framing.frames(partitions, watermark)
        if not len(frames):
            return []
        reduced = self.reductions.arrays(partitions, [frames])
        row = ranges(frames.lo, frames.hi)
        frame = np.repeat(np.arange(len(frames)), frames.hi - frames.lo)
        order = self.sorter.order(frames.end[frame], frames.start[frame], partitions.in_time(row))
        row, frame = row[order], frame[order]
        arrays = list(partitions.taken(row).columns)
        arrays += bound_arrays(frames.chosen(frame), self.schema) if self.adds_bounds else []
        arrays += [array.take(indices(frame)) for array in reduced]
        return [pa.RecordBatch.from_arrays(arrays, schema=self.schema)]


@dataclass(frozen=True)
class AppliedResults:
    """The output of a Python function for each window's rows, after columns for the window's bounds and keys."""

    framing: Framed
    function: Callable[[pa.Table], pa.Table]
    columns: tuple[str, ...]
    keys: tuple[str, ...]
    schema: pa.Schema
    sorter: Sorter

    def __call__(self, partitions: SortedPartitions, watermark: int) -> list[pa.RecordBatch]:
        frames = self.framing.frames(partitions, watermark)
        if not len(frames):
            return []
        keys = key_arrays(partitions, partitions.rows(frames.lo), self.keys)
        frames = frames.chosen(by_bounds_and_keys(frames, keys, self.sorter))
        whole = pa.Table.from_batches([partitions.batch(self.columns)])
        made = [self.function(whole.slice(lo, hi - lo)) for lo, hi in zip(frames.lo, frames.hi, strict=True)]
        frame = np.repeat(np.arange(len(frames)), [table.num_rows for table in made])
        repeated = frames.chosen(frame)
        body = pa.concat_tables(made).combine_chunks()
        arrays = [
            *bound_arrays(repeated, self.schema),
            *key_arrays(partitions, partitions.rows(repeated.lo), self.keys),
            *(column.chunk(0) if column.num_chunks else pa.nulls(0, column.type) for column in body.columns),
        ]
        return [pa.RecordBatch.from_arrays(arrays, schema=self.schema)]


def by_bounds(frames: Frames, sorter: Sorter) -> np.ndarray | None:
    """The order of frames by end, then start; None if they are in that order."""
    if frames.in_order:
        return None
    later = frames.end[1:] > frames.end[:-1]
    same = (frames.end[1:] == frames.end[:-1]) & (frames.start[1:] >= frames.start[:-1])
    return None if bool((later | same).all()) else sorter.order(frames.end, frames.start)


def by_bounds_and_keys(frames: Frames, keys: Sequence[pa.Array], sorter: Sorter) -> np.ndarray:
    """The order of frames by end, then start, then keys: nulls first, NaN last."""
    ranks = [ranked(key, key.is_valid().to_numpy(zero_copy_only=False), sorter)[0] for key in keys]
    return sorter.order(frames.end, frames.start, *ranks)


def bound_arrays(frames: Frames, schema: pa.Schema) -> list[pa.Array]:
    """The bounds of windows as columns of the time type."""
    found = []
    for name, ticks in (("window_start", frames.start), ("window_end", frames.end)):
        dtype = schema.field(name).type
        check_range(ticks[:: max(len(ticks) - 1, 1)] if frames.in_order else ticks, dtype)
        found.append(time_array(ticks, dtype))
    return found


def check_range(ticks: np.ndarray, dtype: pa.DataType) -> None:
    """Refuse bounds that do not fit the time column's type."""
    bits = dtype.bit_width
    if bits == 64 and not pa.types.is_unsigned_integer(dtype):
        return  # every 64-bit number of ticks fits
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    if pa.types.is_unsigned_integer(dtype):
        low, high = 0, (1 << bits) - 1
    if len(ticks) and (int(ticks.min()) < low or int(ticks.max()) > high):
        raise does_not_fit(dtype)


def key_arrays(partitions: SortedPartitions, rows: np.ndarray, keys: Sequence[str]) -> Sequence[pa.Array]:
    """The keys at some arrival positions."""
    places = indices(rows)
    return same_keys([partitions.arrived_rows.batch.column(name).take(places) for name in keys])
