"""Partition rows by key number (`partitions`): a counting sort that also moves columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TypeVar

import numpy as np
import pyarrow as pa

from penstock.algorithms.hash_table.keys import LARGEST_TABLE, SMALL, SPARSEST_KEYS
from penstock.loop.abi import numbered
from penstock.runtime.buffers import room, values_view
from penstock.runtime.kernels import Call
from penstock.runtime.threads import run_on_threads

_Found = TypeVar("_Found")
Fill = Callable[[tuple[np.dtype, ...], bool], Call]

# Fewer rows than this are not worth a second thread.
ROWS_PER_THREAD = 1 << 17
# With fewer partitions times columns, the cache lines that rows are written to stay in a core's private cache; with
# more, a chunk has too few rows per line for its order to matter.
FEWEST_LINES, MOST_LINES = 1 << 13, 1 << 18
CACHED_VALUES = 1 << 16  # values that stay in a core's private cache


@dataclass(frozen=True)
class Partitioner:
    """Partition rows; `count_partitions` and `fill_partitions(types, many)` are kernels.

    The kernel for many partitions sorts `chunk` rows at a time by groups of 2 ** `group_bits` partitions.
    """

    count_partitions: Call
    fill_partitions: Fill
    chunk: int
    group_bits: int
    threads: int

    def partition(self, partitions: np.ndarray, least: int = 0) -> Partition:
        """Count the rows of each partition, of which there are at least `least`; each thread takes a range of rows."""
        cuts = _stretches(len(partitions), self.threads)
        highest = (
            _of_stretches(lambda begin, end: int(partitions[begin:end].max()), cuts)
            if len(partitions)
            else [-1]
        )
        counts, first = np.zeros((2, len(cuts), max(max(highest) + 1, least)), np.int64)
        stretches = [
            {"partitions": partitions, "lo": begin, "hi": end, "counts": own, "first": seen}
            for (begin, end), own, seen in zip(cuts, counts, first, strict=True)
        ]
        run_on_threads([partial(self.count_partitions, stretch) for stretch in stretches])
        return Partition(stretches, counts, first, self)


def _stretches(rows: int, most: int) -> list[tuple[int, int]]:
    """Split rows into one range for each thread that has enough work."""
    threads = max(min(most, rows // ROWS_PER_THREAD), 1)
    return list(pairwise(np.linspace(0, rows, threads + 1).astype(int).tolist()))


@dataclass(frozen=True)
class Partition:
    """A stable sort of rows by partition. `counts` has the rows of each partition in each thread's range."""

    stretches: list[dict[str, object]]
    counts: np.ndarray
    seen: np.ndarray
    by: Partitioner

    @property
    def bounds(self) -> np.ndarray:
        """The begins of the non-empty partitions, and the end of the last."""
        total = self.counts.sum(axis=0)
        return np.concatenate([[0], np.cumsum(total)[total > 0]])

    @property
    def all_bounds(self) -> np.ndarray:
        """The begins and ends of all partitions, empty ones included."""
        return np.concatenate([[0], np.cumsum(self.counts.sum(axis=0))])

    @property
    def first(self) -> np.ndarray:
        """The first row of each non-empty partition."""
        used = self.counts.sum(axis=0) > 0
        stretch = np.argmax(self.counts[:, used] > 0, axis=0)
        found: np.ndarray = self.seen[:, used][stretch, np.arange(len(stretch))]
        return found

    def carried(self, columns: list[np.ndarray]) -> list[np.ndarray]:
        """The values of columns, by partition."""
        total = self.counts.sum(axis=0)
        places = (np.cumsum(total) - total) + np.cumsum(self.counts, axis=0) - self.counts
        made = [room(len(column), column.dtype) for column in columns]
        many = FEWEST_LINES <= len(total) * len(columns) <= MOST_LINES
        dtypes = tuple(column.dtype for column in columns)
        call = self.by.fill_partitions(dtypes, many)
        given = {numbered("in", place): column for place, column in enumerate(columns)}
        given |= {numbered("out", place): array for place, array in enumerate(made)}
        run_on_threads(
            [
                partial(call, {**stretch, **given, **(self._held(dtypes) if many else {}), "places": own})
                for stretch, own in zip(self.stretches, places, strict=True)
            ]
        )
        return made

    def _held(self, dtypes: tuple[np.dtype, ...]) -> dict[str, object]:
        """Memory in which one thread groups the rows of a chunk."""
        held = [room(self.by.chunk, dtype) for dtype in (np.dtype(np.int64), *dtypes)]
        groups = (self.counts.shape[1] >> self.by.group_bits) + 1
        return {
            **{numbered("held", place): array for place, array in enumerate(held)},
            "groups": groups,
            "ends": room(groups),
        }


def carried_view(column: pa.Array) -> np.ndarray | None:
    """The values of a column that can be moved directly: fixed width, no nulls; else None."""
    dtype = column.type
    plain = pa.types.is_integer(dtype) or pa.types.is_floating(dtype) or pa.types.is_temporal(dtype)
    if not plain or column.null_count or dtype.bit_width not in (8, 16, 32, 64):
        return None
    return values_view(column)


def _of_stretches(work: Callable[[int, int], _Found], stretches: list[tuple[int, int]]) -> list[_Found]:
    """The results of a function for each range, computed in parallel."""
    found: dict[int, _Found] = {}

    def run(place: int) -> None:
        found[place] = work(*stretches[place])

    run_on_threads([partial(run, place) for place in range(len(stretches))])
    return [found[place] for place in range(len(stretches))]


def dense_numbers(column: pa.Array, threads: int) -> np.ndarray | None:
    """Number keys by subtraction if they are integers in a small range; else None."""
    whole = pa.types.is_integer(column.type) or pa.types.is_temporal(column.type)
    if not whole or column.null_count or not len(column):
        return None
    values, stretches = values_view(column), _stretches(len(column), threads)
    ends = _of_stretches(lambda begin, end: _least_and_most(values[begin:end]), stretches)
    least, most = min(low for low, _ in ends), max(high for _, high in ends)
    limit = min(max(SPARSEST_KEYS * len(values), SMALL), LARGEST_TABLE)
    if values.dtype == np.int64 and least >= 0 and most < limit:
        return values  # unchanged: empty partitions cost little
    if most - least >= limit:
        return None
    numbers = room(len(values))
    origin = np.array(least, values.dtype).astype(np.int64)  # modulo 2^64, as the differences are

    def subtract(begin: int, end: int) -> None:
        np.subtract(values[begin:end], origin, out=numbers[begin:end], dtype=np.int64, casting="unsafe")

    _of_stretches(subtract, stretches)
    return numbers


def _least_and_most(values: np.ndarray) -> tuple[int, int]:
    """The minimum and the maximum in one pass over memory: each block stays in the cache for the second scan."""
    blocks = [values[begin : begin + CACHED_VALUES] for begin in range(0, len(values), CACHED_VALUES)]
    least, most = zip(*((block.min(), block.max()) for block in blocks), strict=True)
    return int(min(least)), int(max(most))
