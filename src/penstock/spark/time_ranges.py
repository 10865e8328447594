"""Shuffle rows by time: each task gets the rows of a range of time, and those around it that its results need.

Files in any order, and DataFrames, are divided so where results reach a known length of time and have no keys in common.
The ranges hold about equally many rows, by a sample of the times.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.physical.choose_strategy import Halo
from penstock.plan.nodes import Source
from penstock.runtime.buffers import indices, ticks_of
from penstock.sources.prefetch import read
from penstock.spark.exchange import ShufflePayload
from penstock.spark.order import quoted
from penstock.spark.slices import Part, Piece
from penstock.spark.streaming.shard_placement import labels
from penstock.state.state_table import divided

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Sampled pieces of files, spread evenly; the times between are taken to be distributed alike.
SAMPLED_PIECES = 32
# Points that stand for the times of all rows.
POINTS = 1 << 14
# A range is at least this many halos long, so that at most half as many rows again are copied.
LEAST_LENGTH = 2


@dataclass(frozen=True, slots=True)
class TimeRanges:
    """Ranges of time between `cuts`, one for each shard; its results need rows from `past` before to `future` after it."""

    cuts: tuple[int, ...]
    past: int
    future: int

    @property
    def shards(self) -> int:
        return len(self.cuts) + 1

    @property
    def labels(self) -> tuple[int, ...]:
        """Return what payloads are labelled with, so that each shard has a partition of its own."""
        return labels(self.shards)

    def part(self, label: int) -> Part:
        """Return the range of results of a shard."""
        shard = self.labels.index(label)
        low = self.cuts[shard - 1] if shard else None
        return Part((), low, self.cuts[shard] if shard < len(self.cuts) else None)

    def divided(self, table: pa.Table, time: str) -> list[pa.Table]:
        """Copy rows to every shard that needs them, in order.

        >>> ranges = TimeRanges((10, 20), past=3, future=0)
        >>> [rows["t"].to_pylist() for rows in ranges.divided(pa.table({"t": [1, 8, 12, 25]}), "t")]
        [[1, 8], [8, 12], [25]]
        """
        ticks = ticks_of(table.column(time).combine_chunks())
        cuts = np.array(self.cuts, np.int64)
        first = np.searchsorted(cuts, ticks - self.future, side="right")
        last = np.searchsorted(cuts, ticks + self.past, side="right")
        copies = last - first + 1
        rows = np.repeat(np.arange(len(ticks)), copies)
        begins = np.cumsum(copies) - copies
        shard = np.repeat(first, copies) + np.arange(len(rows)) - np.repeat(begins, copies)
        return divided(table.take(indices(rows)), shard, self.shards)


def time_ranges(halo: Halo, times: Iterable[np.ndarray], tasks: int) -> TimeRanges:
    """Cut the range of sampled times into about equal shares, at ends of windows where results are windows of one grid.

    >>> time_ranges(Halo(9, 0, 10, 0), [np.arange(100)], 3)
    TimeRanges(cuts=(30, 60), past=0, future=0)
    """
    known = np.sort(np.concatenate([np.zeros(0, np.int64), *times]))
    past = halo.past - halo.step + 1
    if not len(known):
        return TimeRanges((), past, halo.future)
    span = int(known[-1] - known[0])
    ranges = min(tasks, span // max(LEAST_LENGTH * halo.length, 1)) if halo.length else tasks
    wanted = (int(known[len(known) * part // ranges]) for part in range(1, ranges))
    cuts = {cut - (cut - halo.border) % halo.step for cut in wanted}
    return TimeRanges(tuple(sorted(cut for cut in cuts if cut > known[0])), past, halo.future)


def one_shard_at_a_time(payloads: Iterable[ShufflePayload]) -> Iterator[tuple[int, Iterator[ShufflePayload]]]:
    """Group payloads by shard. Spark may give a task several shards: the payloads of later ones wait."""
    rest = iter(payloads)
    while (first := next(rest, None)) is not None:
        waiting: list[ShufflePayload] = []
        yield first.shard, _own(first, rest, waiting)
        rest = iter(waiting)


def _own(
    first: ShufflePayload, rest: Iterator[ShufflePayload], waiting: list[ShufflePayload]
) -> Iterator[ShufflePayload]:
    yield first
    for payload in rest:
        if payload.shard == first.shard:
            yield payload
        else:
            waiting.append(payload)


# --- samples of times -----------------------------------------------------------------------------------------


def times_in_files(pieces: Sequence[Piece], sources: Mapping[str, Source]) -> Iterator[np.ndarray]:
    """Yield points that are distributed like the times of the rows in files.

    Where footers give the range of a piece, the times of the nearest sampled piece are moved into it.
    """
    held = [piece for piece in pieces if piece.fragment.rows != 0]
    rows = sum(piece.fragment.rows or 1 for piece in held)
    every = max(len(held) // SAMPLED_PIECES, 1)
    shape = np.linspace(0, 1, 16)
    for place, piece in enumerate(held):
        count = -(-POINTS * (piece.fragment.rows or 1) // rows)
        low, high = piece.fragment.time_min, piece.fragment.time_max
        found = _sampled(piece, sources[piece.stream]) if place % every == 0 else np.zeros(0, np.int64)
        if low is None or high is None:
            yield _quantiles(found, count)
            continue
        if len(found):
            shape = (np.sort(found) - low) / max(high - low, 1)
        yield low + (_quantiles(shape, count) * (high - low)).astype(np.int64)


def _sampled(piece: Piece, source: Source) -> np.ndarray:
    """Return the times of the first rows of a piece. Times that rows imply are spread evenly."""
    if source.time.implied:
        return np.zeros(0, np.int64)
    name = source.time.column
    batches = read(piece.fragment, source.schema, [name], access=piece.access)
    columns = [batch.column(name).drop_null() for batch in islice(batches, 1)]
    return np.concatenate([np.zeros(0, np.int64), *map(ticks_of, columns)])


def _quantiles(values: np.ndarray, count: int) -> np.ndarray:
    ordered = np.sort(values)
    found: np.ndarray = ordered[np.arange(count) * len(ordered) // count] if len(ordered) else ordered
    return found


def times_in_frame(frame: DataFrame, time: str, tasks: int) -> np.ndarray:
    """Return points that are distributed like the times of a DataFrame: a job that reads the time column alone."""
    from pyspark.sql import functions as sf  # noqa: PLC0415 - Spark loads when it is used

    ticks = _ticks(sf, frame, time)
    shares = [part / (4 * tasks) for part in range(4 * tasks + 1)]
    row = frame.select(sf.percentile_approx(ticks, shares, 10_000)).first()
    found = row[0] if row is not None else None
    return np.array(found or (), np.int64)


def _ticks(functions: Any, frame: DataFrame, time: str) -> Any:
    """Return the column of a DataFrame's times as Arrow delivers them, in ticks."""
    column = functions.col(quoted(time))
    match frame.schema[time].dataType.typeName():
        case "timestamp":
            return functions.unix_micros(column)
        case "timestamp_ntz":
            return functions.unix_micros(column.cast("timestamp"))
        case "date":
            return functions.unix_date(column)
        case _:
            return column.cast("bigint")
