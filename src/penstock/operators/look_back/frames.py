"""Look-backs as frames, one for each new row in partition order, and their result batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from penstock.algorithms.sorted_partitions.frames import FrameRange, Frames, Released
from penstock.algorithms.sorted_partitions.partitions import SortedPartitions
from penstock.algorithms.sorted_partitions.results import Reductions
from penstock.runtime.buffers import indices, room, row_numbers
from penstock.runtime.kernels import Call
from penstock.runtime.stage import END_OF_TIME, START_OF_TIME
from penstock.types.windows import LookBack

# The bounds of BLOCK frames stay in the cache until they are used. If frames are long, so that a block begins with
# many rows of the previous one, blocks grow up to MOST.
BLOCK, MOST = 1 << 15, 1 << 18
SEVERAL = 4


@dataclass(frozen=True)
class LookBackFraming(Released):
    """Several look-backs at once. `calls` find the frames of each: a span of time, or the rows before a delay."""

    spans: tuple[LookBack, ...]
    calls: tuple[Call, ...]

    def frames(self, partitions: SortedPartitions) -> list[Frames]:
        """The frames of new rows, for each look-back."""
        whole = [Behind(partitions, span, call) for span, call in zip(self.spans, self.calls, strict=True)]
        if partitions.all_fresh:
            return list(whole)
        new = np.flatnonzero(partitions.fresh)
        return [behind.chosen(new) for behind in whole]

    def needed(self, partitions: SortedPartitions, watermark: int) -> np.ndarray:
        """The rows that a row at the watermark, or the next row of its partition, would look back on."""
        kept = np.zeros(len(partitions), np.bool_)
        for span in self.spans:
            reach = span.delay + (span.size or 0)
            kept |= partitions.times >= max(watermark - reach, START_OF_TIME)
            if span.rows is not None:
                kept |= self._last_rows(span, partitions, watermark)
        return kept

    @staticmethod
    def _last_rows(span: LookBack, partitions: SortedPartitions, watermark: int) -> np.ndarray:
        """The last rows of each partition; with a delay, of the rows older than the delay."""
        assert span.rows is not None
        rows = np.diff(partitions.bounds)
        ends = partitions.bounds[1:]
        if span.delay:
            passed = np.concatenate([[0], np.cumsum(partitions.times < watermark - span.delay)])
            ends = partitions.bounds[:-1] + passed[partitions.bounds[1:]] - passed[partitions.bounds[:-1]]
        last: np.ndarray = np.arange(len(partitions)) >= np.repeat(ends - span.rows, rows)
        return last

    def ahead(self, watermark: int) -> int:
        return watermark


class Behind(Frames):
    """The look-back of each row, computed on access: block by block in `sweep`, else all at once."""

    def __init__(self, partitions: SortedPartitions, span: LookBack, call: Call) -> None:
        self.partitions, self.span_of, self.call = partitions, span, call
        self.times = partitions.times

    def __len__(self) -> int:
        return len(self.partitions)

    @cached_property
    def _bounds(self) -> tuple[np.ndarray, np.ndarray]:
        lo, hi = room(len(self)), room(len(self))
        if len(self):
            self._find(0, len(self), lo, hi)
        return lo, hi

    @property
    def lo(self) -> np.ndarray:  # type: ignore[override]  # frames are read-only
        return self._bounds[0]

    @property
    def hi(self) -> np.ndarray:  # type: ignore[override]
        return self._bounds[1]

    @property
    def start(self) -> np.ndarray:  # type: ignore[override]
        return self.partitions.times

    end = start

    def sweep(self, begin: int, end: int, block: int | None) -> Iterator[FrameRange]:
        """Yield the frames begin … end - 1 block by block; blocks reuse the same memory."""
        lo, hi = room(2 * MOST).reshape(2, MOST)
        block = block or BLOCK
        while begin < end:
            rows = min(block, end - begin)
            longest = self._find(begin, begin + rows, lo, hi)
            yield FrameRange(begin, lo[:rows], hi[:rows], longest)
            begin += rows
            if SEVERAL * longest > block:
                block = min(2 * block, MOST)

    def _find(self, begin: int, end: int, lo: np.ndarray, hi: np.ndarray) -> int:
        """Write the bounds of the frames begin … end - 1; return the length of the longest."""
        if self.span_of.rows is None:
            return self._by_time(begin, end, lo, hi)
        hi, lo = hi[: end - begin], lo[: end - begin]
        if self.span_of.delay:
            self._by_time(begin, end, lo, hi)
        else:
            hi[:] = np.arange(begin, end) + (self.span_of.closed != "left")
        np.maximum(hi - self.span_of.rows, self._partition_starts(begin, end), out=lo)
        return int((hi - lo).max())

    def _partition_starts(self, begin: int, end: int) -> np.ndarray:
        bounds = self.partitions.bounds
        if len(bounds) == 2:
            return bounds[:1]
        started: np.ndarray = bounds[self.partitions.of_rows(np.arange(begin, end))]
        return started

    def _by_time(self, begin: int, end: int, lo: np.ndarray, hi: np.ndarray) -> int:
        """Find frames by time, starting from the look-back of the first row, which is found by binary search."""
        span, partitions = self.span_of, self.partitions
        partition = int(np.searchsorted(partitions.bounds, begin, side="right")) - 1
        first = int(partitions.bounds[partition])
        now = int(self.times[begin]) - span.delay
        since = span.size or 0
        limits = [max(limit, START_OF_TIME) for limit in (now, now - since)]
        right, left = np.searchsorted(self.times[first:begin], limits).tolist()
        given = {"times": self.times, "bounds": partitions.bounds, "lo": lo, "hi": hi, "partition": partition}
        given |= {"since": _unsigned(span.delay + since), "until": span.delay, "begin": begin, "end": end}
        return self.call({**given, "left": first + left, "right": first + right})


def _unsigned(distance: int) -> int:
    """Return a distance as an unsigned 64-bit word: size and delay together may be 2^63."""
    return distance - (1 << 64) if distance > END_OF_TIME else distance


NOT_NEW = -1


@dataclass(frozen=True)
class LookBackResults:
    """Every new row, in time order, with aggregates over its look-backs."""

    framing: LookBackFraming
    reductions: Reductions
    schema: pa.Schema

    def __call__(self, partitions: SortedPartitions, watermark: int) -> list[pa.RecordBatch]:
        if partitions.seen == len(partitions):
            return []
        reduced = self.reductions.arrays(partitions, self.framing.frames(partitions))
        if partitions.moments is None and partitions.order is None and partitions.all_fresh:
            rows = partitions.arrived_rows.batch
        else:
            new = None if partitions.all_fresh else np.flatnonzero(partitions.fresh)
            order = _in_time(partitions, new)
            if new is None and partitions.order is None:
                rows = partitions.arrived_rows.batch
            else:
                rows = partitions.taken(order if new is None else new[order])
            reduced = [array.take(indices(order)) for array in reduced]
        return [pa.RecordBatch.from_arrays([*rows.columns, *reduced], schema=self.schema)]


def _in_time(partitions: SortedPartitions, new: np.ndarray | None) -> np.ndarray:
    """Return the positions of new rows in order of time. Ranks are a permutation: its inverse needs no sort."""
    ranks = partitions.moments
    if ranks is None:
        return np.arange(len(partitions) if new is None else len(new))
    places = room(len(ranks))
    if new is None:
        places[ranks] = row_numbers(len(ranks))
        return places
    places.fill(NOT_NEW)
    places[ranks[new]] = np.arange(len(new))
    order: np.ndarray = places[places != NOT_NEW]
    return order
