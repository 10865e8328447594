"""Key numbering, partitions of both sides, and the ranges of right rows that left rows match.

A partition (a partition in identifiers) holds the rows of one key on one side, in order of a value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa

from penstock.algorithms.hash_table.keys import LARGEST_TABLE, SMALL, SPARSEST_KEYS, Indexer
from penstock.algorithms.joins.joiner import Pairs
from penstock.algorithms.sort.sorting import Sorter
from penstock.loop.abi import numbered
from penstock.runtime.buffers import values_view
from penstock.runtime.kernels import Call
from penstock.runtime.stage import END_OF_TIME, START_OF_TIME, is_within_reach, moved
from penstock.runtime.threads import run_on_threads

# Fewer rows than this do not justify a second thread.
JOINED_ROWS_PER_THREAD = 1 << 16


@dataclass(frozen=True)
class PartitionKernels:
    """The kernels and settings that all joins share."""

    count_partitions: Call
    fill_partitions: Call
    find_ranges: Callable[[bool], Call]
    expand_ranges: Call
    last_before: Callable[[bool], Call]
    next_after: Callable[[bool], Call]
    sorter: Sorter
    new_index: Callable[[int], Indexer]
    threads: int

    def shares(self, rows: int) -> int:
        """Return the number of threads to use for some rows."""
        return max(min(self.threads, rows // JOINED_ROWS_PER_THREAD), 1)


# --- key numbering ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Numbers:
    """The partition of each row of both sides. Rows with a null key are in a partition without rows of the
    other side.

    `groups` numbers rows by their keys alone; null is a key like any other.
    """

    left: np.ndarray
    right: np.ndarray
    partitions: int
    groups: tuple[np.ndarray, np.ndarray]

    def chosen(self, left: np.ndarray, right: np.ndarray) -> Numbers:
        """Return the numbers of some rows."""
        groups = self.groups[0][left], self.groups[1][right]
        return Numbers(self.left[left], self.right[right], self.partitions, groups)


def number_keys(
    left: Sequence[pa.Array], right: Sequence[pa.Array], rows: tuple[int, int], kernels: PartitionKernels
) -> Numbers:
    """Assign one number to equal keys of both sides; without keys there is one partition."""
    if not left:
        zeros = np.zeros(rows[0], np.int64), np.zeros(rows[1], np.int64)
        return Numbers(*zeros, 1, zeros)
    whole = [_whole(side) for side in (left, right)]
    dense = _dense(left[0], right[0]) if len(left) == 1 else None
    if dense is None:
        index = kernels.new_index(len(left))
        numbers = [index.number(list(side)) for side in (left, right)]
        partitions = len(index)
    else:
        *numbers, partitions = dense
    apart = [
        codes if there is None else np.where(there, codes, partitions + place)
        for place, (codes, there) in enumerate(zip(numbers, whole, strict=True))
    ]
    return Numbers(apart[0], apart[1], partitions + 2, (numbers[0], numbers[1]))


def _whole(columns: Sequence[pa.Array]) -> np.ndarray | None:
    """Which rows have a key without nulls; None means all."""
    masks = [column.is_valid().to_numpy(zero_copy_only=False) for column in columns if column.null_count]
    if not masks:
        return None
    found: np.ndarray = np.logical_and.reduce(masks)
    return found


def _dense(left: pa.Array, right: pa.Array) -> tuple[np.ndarray, np.ndarray, int] | None:
    """Number keys by subtraction, where they are integers in a small range."""
    if not (pa.types.is_integer(left.type) or pa.types.is_temporal(left.type)):
        return None
    if left.null_count or right.null_count or not len(left) or not len(right):
        return None
    one, other = (values_view(column).astype(np.int64, copy=False) for column in (left, right))
    least, most = int(min(one.min(), other.min())), int(max(one.max(), other.max()))
    widest = min(max(SPARSEST_KEYS * (len(one) + len(other)), SMALL), LARGEST_TABLE)
    if least >= 0 and most < widest:
        return one, other, most + 1  # a few empty partitions cost less than two copies
    return None if most - least >= widest else (one - least, other - least, most - least + 1)


# --- partitions -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Laid:
    """Rows of one side by partition, in order of a value; `values` has one spare element."""

    bounds: np.ndarray
    places: np.ndarray
    values: np.ndarray

    @property
    def rows(self) -> int:
        return len(self.places)


def lay(numbers: np.ndarray, partitions: int, values: np.ndarray, kernels: PartitionKernels) -> Laid:
    """Distribute rows, which are in order of their values, over partitions."""
    rows = len(numbers)
    if partitions == 1:
        return Laid(np.array([0, rows]), np.arange(rows), np.append(values, np.int64(0)))
    cuts = list(pairwise(np.linspace(0, rows, kernels.shares(rows) + 1).astype(int).tolist()))
    counts, first = np.zeros((2, len(cuts), partitions), np.int64)
    stretches: list[dict[str, object]] = [
        {"partitions": numbers, "lo": begin, "hi": end, "counts": own, "first": seen}
        for (begin, end), own, seen in zip(cuts, counts, first, strict=True)
    ]
    run_on_threads([partial(kernels.count_partitions, stretch) for stretch in stretches])
    total = counts.sum(axis=0)
    bounds = np.concatenate([[0], np.cumsum(total)])
    starts = bounds[:-1] + np.cumsum(counts, axis=0) - counts
    placed, moved = np.empty(rows, np.int64), np.zeros(rows + 1, np.int64)
    columns = {"in": np.ascontiguousarray(values), numbered("in", 1): np.arange(rows), "out": moved}
    columns[numbered("out", 1)] = placed
    run_on_threads(
        [
            partial(kernels.fill_partitions, {**stretch, **columns, "places": own})
            for stretch, own in zip(stretches, starts, strict=True)
        ]
    )
    return Laid(bounds, placed, moved)


# --- ranges -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ranges:
    """For each left row, in input order, the range first … last of matching rows in the right partitions."""

    first: np.ndarray
    last: np.ndarray
    right: Laid

    @property
    def counts(self) -> np.ndarray:
        lengths: np.ndarray = self.last - self.first
        return lengths


Limits = tuple[int, int] | tuple[np.ndarray, np.ndarray]


def find(left: Laid, right: Laid, limits: Limits, kernels: PartitionKernels) -> Ranges:
    """Find the right rows of each left row's partition with values between limits, both included.

    Limits are added to the left row's value, or listed for the left rows by partition.
    """
    since, until = limits
    listed = isinstance(since, np.ndarray)
    first, last = np.empty(left.rows, np.int64), np.empty(left.rows, np.int64)
    given: dict[str, object] = {"left": left.values, "left_bounds": left.bounds, "right": right.values}
    given |= {"right_bounds": right.bounds, "places": left.places, "first": first, "last": last}
    if listed:
        given |= {"since": since, "until": until}
    else:
        if not is_within_reach(left.values[: left.rows], max(-int(since), 0), max(int(until), 0)):
            return _find_at_limits(left, right, (int(since), int(until)), kernels)
        given |= {"lo": since, "hi": until}
    call, work = kernels.find_ranges(listed), left.bounds + right.bounds
    threads = kernels.shares(left.rows + right.rows)
    inner = np.searchsorted(work, np.linspace(0, work[-1], threads + 1)[1:-1])
    cuts = [0, *inner.tolist(), len(left.bounds) - 1]
    run_on_threads([partial(call, {**given, "begin": begin, "end": end}) for begin, end in pairwise(cuts)])
    return Ranges(first, last, right)


def _find_at_limits(left: Laid, right: Laid, limits: tuple[int, int], kernels: PartitionKernels) -> Ranges:
    """Find with listed limits, clamped to valid times; a row with both limits out of range matches no row."""
    since, until = limits
    values, places = left.values[: left.rows], left.places[: left.rows]
    found = find(left, right, (moved(values, since), moved(values, until)), kernels)
    null_row = places[(values > END_OF_TIME - max(since, 0)) | (values < START_OF_TIME - min(until, 0))]
    found.last[null_row] = found.first[null_row]
    return found


def expanded(ranges: Ranges, begin: int, end: int, kernels: PartitionKernels) -> Pairs:
    """Return the pairs of the left rows begin … end, by left row, then by position in the right partition."""
    counts = ranges.counts[begin:end]
    starts = np.zeros(len(ranges.first), np.int64)
    starts[begin:end] = np.cumsum(counts) - counts
    total = int(counts.sum())
    own, other = np.empty(total, np.int64), np.empty(total, np.int64)
    place_pairs(ranges, starts, (own, other), (begin, end), kernels)
    return own, other


def place_pairs(
    ranges: Ranges, starts: np.ndarray, into: Pairs, rows: tuple[int, int], kernels: PartitionKernels
) -> None:
    """Write the pairs of some left rows, each row's pairs from its entry in `starts`."""
    given = {"first": ranges.first, "last": ranges.last, "starts": starts, "places": ranges.right.places}
    given |= {"own": into[0], "other": into[1]}
    begin, end = rows
    cuts = np.linspace(begin, end, kernels.shares(len(into[0])) + 1).astype(int).tolist()
    run_on_threads(
        [partial(kernels.expand_ranges, {**given, "begin": low, "end": high}) for low, high in pairwise(cuts)]
    )


def blocks(counts: np.ndarray, most: int) -> list[tuple[int, int]]:
    """Cut rows into blocks of about `most` pairs, or one row."""
    ends = np.cumsum(counts)
    if not len(ends) or ends[-1] <= most:
        return [(0, len(counts))]
    inner = np.searchsorted(ends, np.arange(most, int(ends[-1]), most), side="right")
    cuts = np.unique(np.concatenate([[0], inner, [len(counts)]])).tolist()
    return list(pairwise(cuts))
