"""Reductions by rank: order statistics, and extremes of values that kernels cannot compare."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.algorithms.sort.sorting import Sorter, placed, ranked
from penstock.algorithms.sorted_partitions.frames import FrameRange, Frames
from penstock.algorithms.sorted_partitions.partitions import SortedPartitions
from penstock.algorithms.sorted_partitions.reducers import KernelPass, active, chosen, parts
from penstock.loop.abi import numbered
from penstock.runtime.buffers import room, to_arrow
from penstock.runtime.kernels import Call
from penstock.runtime.threads import run_on_threads

# For this many rows, values, positions and bits stay in the L2 cache, and few words of bits are empty.
RANK_BLOCK = 1 << 14

# The kernel's outputs: a quantile and its validity, a rank, a count.
_WRITTEN: dict[str, tuple[type[np.generic], ...]] = {
    "quantile": (np.float64, np.uint8),
    "mode": (np.int64,),
    "count_distinct": (np.int64,),
}


@dataclass(frozen=True)
class RankReducer:
    """Quantiles, mode and count of distinct values of one column, in one pass over the frames.

    The kernel writes the outputs that `algorithms/order_statistics/kernels.py` defines for each of the `questions`, which are given
    with their result types. Its scratch memory is `structures` arrays of `memory_length(distinct values)` counts, and,
    for quantiles, `bits_length(rows)` words of bits. `call(shared)` returns the kernel; `shared`: equal values share a
    position.
    """

    places: tuple[int, ...]
    span: int
    column: str
    where: str | None
    questions: tuple[tuple[str, pa.DataType], ...]
    call: Callable[[bool], Call]
    structures: int
    memory_length: Callable[[int], int]
    bits_length: Callable[[int], int]
    sorter: Sorter
    threads: int

    def reduce(self, partitions: SortedPartitions, frames: Frames) -> list[pa.Array]:
        """Rank and count a block of rows at a time, so that the counters fit the cache."""
        column = partitions.column(self.column)
        counts = active(partitions, (self.column,), self.where)
        ranges = parts(len(frames), len(column) + len(frames), self.threads)
        outputs = self._outputs(len(frames))
        chosen_values: list[list[list[pa.Array]]] = [[] for _ in ranges]

        def work(place: int) -> None:
            for stretch in frames.sweep(*ranges[place], RANK_BLOCK):
                here = slice(stretch.first, stretch.first + len(stretch.lo))
                views = {name: output[here] for name, output in outputs.items()}
                chosen_values[place].append(self._answer(column, counts, stretch, views))

        run_on_threads([partial(work, place) for place in range(len(ranges))])
        return self._results(outputs, list(chain(*chosen_values)))

    def _answer(
        self,
        column: pa.Array,
        counts: np.ndarray | None,
        stretch: FrameRange,
        outputs: Mapping[str, np.ndarray],
    ) -> list[pa.Array]:
        """Compute the results of a block of frames. A mode is a rank within the block, so return its values."""
        first, last = int(stretch.lo[0]), int(stretch.hi[-1])
        rows = column.slice(first, last - first), None if counts is None else counts[first:last]
        bounds = {"lo": stretch.lo, "hi": stretch.hi, "base": first, "begin": 0, "end": len(stretch.lo)}
        ranks, values = self._ranks(*rows)
        places, shared = self._places(*rows)
        self.call(shared)({**bounds, **places, **ranks, **outputs})
        modes = [(outputs[name], dtype) for kind, dtype, (name, *_) in self._asked() if kind == "mode"]
        return [chosen(values, rank, rank >= 0, dtype) for rank, dtype in modes]

    def _results(self, outputs: Mapping[str, np.ndarray], stretches: list[list[pa.Array]]) -> list[pa.Array]:
        modes = iter(zip(*stretches, strict=True))
        found = []
        for kind, dtype, names in self._asked():
            if kind == "mode":
                found.append(pa.concat_arrays([pa.nulls(0, dtype), *next(modes, ())]))
            else:
                values, *some = (outputs[name] for name in names)
                found.append(to_arrow(values, some[0] if some else None, dtype))
        return found

    def _asked(self) -> Iterator[tuple[str, pa.DataType, list[str]]]:
        """The questions, and the names of the kernel's outputs for each."""
        at = 0
        for kind, dtype in self.questions:
            types = _WRITTEN[kind]
            yield kind, dtype, [numbered("out", at + place) for place in range(len(types))]
            at += len(types)

    def _places(self, column: pa.Array, counts: np.ndarray | None) -> tuple[dict[str, Any], bool]:
        """Kernel arguments for quantiles: each row's position in sort order; and whether equal values share a position."""
        if all(kind != "quantile" for kind, _ in self.questions):
            return {"many": 0}, False
        places, (values, shared) = placed(column, counts, self.sorter)
        numbers = values.astype(np.float64, copy=False) if len(values) else np.zeros(1)
        given = {"places": places, "values": numbers, "many": len(values)}
        given["bits"] = np.zeros(self.bits_length(len(values)), np.uint64)
        if shared:
            given["counts"] = np.zeros(len(values), np.int32)
        return given, shared

    def _ranks(self, column: pa.Array, counts: np.ndarray | None) -> tuple[dict[str, Any], pa.Array | None]:
        """Kernel arguments for mode and distinct count: ranks that equal values share; and the values by rank."""
        if not self.structures:
            return {"distinct": 0}, None
        ranks, values = ranked(column, counts, self.sorter)
        length = self.memory_length(len(values))
        memories = {numbered("memory", place): np.zeros(length, np.int32) for place in range(self.structures)}
        return {"ranks": ranks, "distinct": len(values), **memories}, values

    def _outputs(self, frames: int) -> dict[str, np.ndarray]:
        return {
            name: room(frames, dtype)
            for kind, _, names in self._asked()
            for name, dtype in zip(names, _WRITTEN[kind], strict=True)
        }


RANK = "rank"


@dataclass(frozen=True)
class ExtremeReducer:
    """The least or greatest value of a type that only Arrow can compare: kernels process its rank."""

    places: tuple[int, ...]
    span: int
    column: str
    where: str | None
    type: pa.DataType
    extreme: KernelPass
    sorter: Sorter

    def reduce(self, partitions: SortedPartitions, frames: Frames) -> list[pa.Array]:
        ranks, values = ranked(
            partitions.column(self.column), active(partitions, (self.column,), self.where), self.sorter
        )
        (best,) = self.extreme.arrays(_rank_batch(ranks), frames)
        return [values.take(best).cast(self.type)]


@dataclass(frozen=True)
class ExtremeByReducer:
    """The value in the row where another column is least or greatest; of several such rows, the smallest value, nulls last."""

    places: tuple[int, ...]
    span: int
    column: str
    by: str
    where: str | None
    largest: bool
    type: pa.DataType
    least: KernelPass
    sorter: Sorter

    def reduce(self, partitions: SortedPartitions, frames: Frames) -> list[pa.Array]:
        counts = active(partitions, (self.by,), self.where)
        by, _ = ranked(partitions.column(self.by), counts, self.sorter)
        value, _ = ranked(
            partitions.column(self.column), active(partitions, (self.column,), None), self.sorter
        )
        order = self.sorter.order(-by if self.largest else by, np.where(value < 0, len(value), value))
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.arange(len(order))
        (best,) = self.least.arrays(_rank_batch(np.where(by < 0, -1, ranks)), frames)
        row = to_arrow(order, None, pa.int64()).take(best)
        found = row.is_valid().to_numpy(zero_copy_only=False)
        return [chosen(partitions.column(self.column), row.fill_null(0).to_numpy(), found, self.type)]


def _rank_batch(ranks: np.ndarray) -> pa.RecordBatch:
    there = ranks >= 0
    return pa.RecordBatch.from_arrays([to_arrow(ranks, there, pa.int64())], [RANK])
