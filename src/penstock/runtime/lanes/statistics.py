"""Reductions by rank: order statistics, and what chooses among values that kernels cannot compare."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa

from penstock.loop.abi import numbered
from penstock.runtime.buffers import room, to_arrow, values_view
from penstock.runtime.lanes.framing import Frames
from penstock.runtime.lanes.lanes import Lanes
from penstock.runtime.lanes.ranks import ranked
from penstock.runtime.lanes.reducers import KernelPass, active, chosen
from penstock.runtime.lanes.sorting import Sorter
from penstock.runtime.programs import Call
from penstock.runtime.threads import run_on_threads

# Of so many rows ranks, counts and bits stay in the cache, and few words of bits are empty.
BLOCK = 1 << 15

_PER_QUESTION = {"quantile": 2, "mode": 1, "count_distinct": 1}


@dataclass(frozen=True)
class RankReducer:
    """Quantiles, mode and count of distinct values of one column, in one pass over the frames.

    The kernel writes what `lower/rank_slide.py` says for each of the `questions`, given with the types of
    their results, and works in `structures` memories of `memory_length(distinct values)` counts, and in
    `bits_length(distinct values)` words of bits.
    """

    places: tuple[int, ...]
    span: int
    column: str
    where: str | None
    questions: tuple[tuple[str, pa.DataType], ...]
    call: Call
    structures: int
    memory_length: Callable[[int], int]
    bits_length: Callable[[int], int]
    sorter: Sorter
    threads: int

    def reduce(self, lanes: Lanes, frames: Frames) -> list[pa.Array]:
        """Rank and count a stretch of rows at a time, so that what is counted fits a cache."""
        column = lanes.column(self.column)
        counts = active(lanes, (self.column,), self.where)
        blocks = list(pairwise(frames.cuts(0, len(frames), BLOCK)))
        answers: list[list[pa.Array]] = [[] for _ in blocks]

        def work(begin: int) -> None:
            for place in range(begin, len(blocks), self.threads):
                answers[place] = self._block(column, counts, frames, *blocks[place])

        run_on_threads([partial(work, begin) for begin in range(min(self.threads, len(blocks)))])
        return [pa.concat_arrays(each) for each in zip(*answers, strict=True)]

    def _block(
        self, column: pa.Array, counts: np.ndarray | None, frames: Frames, begin: int, end: int
    ) -> list[pa.Array]:
        first, last = int(frames.lo[begin]), int(frames.hi[end - 1])
        some = None if counts is None else counts[first:last]
        ranks, values = ranked(column.slice(first, last - first), some, self.sorter)
        outputs, length = self._outputs(end - begin), self.memory_length(len(values))
        memories = {numbered("memory", place): np.zeros(length, np.int32) for place in range(self.structures)}
        bounds = {"lo": frames.lo[begin:end] - first, "hi": frames.hi[begin:end] - first}
        given = {**bounds, "ranks": ranks, "distinct": len(values), "begin": 0, "end": end - begin}
        given["values"] = self._numbers(values)
        bits = {"bits": np.zeros(self.bits_length(len(values)), np.uint64)}
        self.call({**given, **memories, **bits, **outputs})
        columns = iter(outputs.values())
        found = []
        for kind, dtype in self.questions:
            answer = [next(columns) for _ in range(_PER_QUESTION[kind])]
            found.append(_ANSWERS[kind](values, dtype, *answer))
        return found

    def _numbers(self, values: pa.Array) -> np.ndarray:
        """The values by rank, where they are interpolated."""
        if len(values) and any(kind == "quantile" for kind, _ in self.questions):
            return _as_floats(values)
        return np.zeros(1)

    def _outputs(self, frames: int) -> dict[str, np.ndarray]:
        count = sum(_PER_QUESTION[kind] for kind, _ in self.questions)
        names = [numbered("out", place) for place in range(count)]
        made = {name: room(frames) for name in names}
        at = 0
        for kind, _ in self.questions:
            if kind == "quantile":
                made[names[at]] = room(frames, np.float64)
            at += _PER_QUESTION[kind]
        return made


def _quantile(values: pa.Array, dtype: pa.DataType, found: np.ndarray, some: np.ndarray) -> pa.Array:
    return to_arrow(found, some != 0, dtype)


def _as_floats(values: pa.Array) -> np.ndarray:
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.uint8())
    floats: np.ndarray = values_view(values).astype(np.float64)
    return floats


def _most_frequent(values: pa.Array, dtype: pa.DataType, rank: np.ndarray) -> pa.Array:
    return chosen(values, rank, rank >= 0, dtype)


def _how_many(values: pa.Array, dtype: pa.DataType, count: np.ndarray) -> pa.Array:
    return to_arrow(count, None, dtype)


_ANSWERS: dict[str, Callable[..., pa.Array]] = {
    "quantile": _quantile,
    "mode": _most_frequent,
    "count_distinct": _how_many,
}

RANK = "rank"


@dataclass(frozen=True)
class ExtremeReducer:
    """The least or greatest value of a type that only Arrow compares: kernels see its rank."""

    places: tuple[int, ...]
    span: int
    column: str
    where: str | None
    type: pa.DataType
    extreme: KernelPass
    sorter: Sorter

    def reduce(self, lanes: Lanes, frames: Frames) -> list[pa.Array]:
        ranks, values = ranked(
            lanes.column(self.column), active(lanes, (self.column,), self.where), self.sorter
        )
        (best,) = self.extreme.arrays(_rank_batch(ranks), frames)
        return [values.take(best).cast(self.type)]


@dataclass(frozen=True)
class ExtremeByReducer:
    """The value beside the least or greatest of another column; of several, the smallest, null the last."""

    places: tuple[int, ...]
    span: int
    column: str
    by: str
    where: str | None
    largest: bool
    type: pa.DataType
    least: KernelPass
    sorter: Sorter

    def reduce(self, lanes: Lanes, frames: Frames) -> list[pa.Array]:
        counts = active(lanes, (self.by,), self.where)
        by, _ = ranked(lanes.column(self.by), counts, self.sorter)
        value, _ = ranked(lanes.column(self.column), active(lanes, (self.column,), None), self.sorter)
        order = self.sorter.order(-by if self.largest else by, np.where(value < 0, len(value), value))
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.arange(len(order))
        (best,) = self.least.arrays(_rank_batch(np.where(by < 0, -1, ranks)), frames)
        row = to_arrow(order, None, pa.int64()).take(best)
        found = row.is_valid().to_numpy(zero_copy_only=False)
        return [chosen(lanes.column(self.column), row.fill_null(0).to_numpy(), found, self.type)]


def _rank_batch(ranks: np.ndarray) -> pa.RecordBatch:
    there = ranks >= 0
    return pa.RecordBatch.from_arrays([to_arrow(ranks, there, pa.int64())], [RANK])
