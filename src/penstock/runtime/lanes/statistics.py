"""Reductions by rank: order statistics, and what chooses among values that kernels cannot compare."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.loop.abi import numbered
from penstock.runtime.buffers import to_arrow, values_view
from penstock.runtime.engine import run_on_threads
from penstock.runtime.lanes.framing import Frames
from penstock.runtime.lanes.lanes import Lanes
from penstock.runtime.lanes.ranks import ranked
from penstock.runtime.lanes.reducers import KernelPass, active, chosen, parts
from penstock.runtime.programs import Call

_PER_QUESTION = {"quantile": 4, "mode": 1, "count_distinct": 1}


@dataclass(frozen=True)
class RankReducer:
    """Quantiles, mode and count of distinct values of one column, in one pass over the frames.

    The kernel writes what `lower/rank_slide.py` says for each of the `questions`, given with the types of
    their results, and works in `structures` memories of `memory_length(distinct values)` counts.
    """

    places: tuple[int, ...]
    span: int
    column: str
    where: str | None
    questions: tuple[tuple[str, pa.DataType], ...]
    call: Call
    structures: int
    memory_length: Callable[[int], int]
    threads: int

    def reduce(self, lanes: Lanes, frames: Frames) -> list[pa.Array]:
        ranks, values = ranked(lanes.column(self.column), active(lanes, (self.column,), self.where))
        outputs = self._outputs(len(frames))
        given = {"lo": frames.lo, "hi": frames.hi, "ranks": ranks, "distinct": len(values), **outputs}
        run_on_threads([partial(self._run, given, *part) for part in parts(frames, self.threads)])
        columns = iter(outputs.values())
        found = []
        for kind, dtype in self.questions:
            answer = [next(columns) for _ in range(_PER_QUESTION[kind])]
            found.append(_ANSWERS[kind](values, dtype, *answer))
        return found

    def _outputs(self, frames: int) -> dict[str, np.ndarray]:
        count = sum(_PER_QUESTION[kind] for kind, _ in self.questions)
        names = [numbered("out", place) for place in range(count)]
        made = {name: np.empty(frames, np.int64) for name in names}
        at = 0
        for kind, _ in self.questions:
            if kind == "quantile":
                made[names[at + 2]] = np.empty(frames, np.float64)
            at += _PER_QUESTION[kind]
        return made

    def _run(self, given: Mapping[str, Any], begin: int, end: int) -> None:
        length = self.memory_length(given["distinct"])
        memories = {numbered("memory", place): np.zeros(length, np.int32) for place in range(self.structures)}
        self.call({**given, **memories, "begin": begin, "end": end})


def _between(
    values: pa.Array,
    dtype: pa.DataType,
    lower: np.ndarray,
    upper: np.ndarray,
    fraction: np.ndarray,
    count: np.ndarray,
) -> pa.Array:
    """Interpolate; a quantile that is one of the values is that value, infinite or not."""
    some = count > 0
    if not len(values):
        return pa.nulls(len(count), dtype)
    numbers = _as_floats(values)
    low, high = (numbers[np.where(some, rank, 0)] for rank in (lower, upper))
    with np.errstate(invalid="ignore", over="ignore"):
        between = low + (high - low) * fraction
    exact = np.where((fraction == 0) | (low == high), low, between)
    return to_arrow(exact, some, pa.float64())


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
    "quantile": _between,
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

    def reduce(self, lanes: Lanes, frames: Frames) -> list[pa.Array]:
        ranks, values = ranked(lanes.column(self.column), active(lanes, (self.column,), self.where))
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

    def reduce(self, lanes: Lanes, frames: Frames) -> list[pa.Array]:
        counts = active(lanes, (self.by,), self.where)
        by, _ = ranked(lanes.column(self.by), counts)
        value, _ = ranked(lanes.column(self.column), active(lanes, (self.column,), None))
        order = np.lexsort((np.where(value < 0, len(value), value), -by if self.largest else by))
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.arange(len(order))
        (best,) = self.least.arrays(_rank_batch(np.where(by < 0, -1, ranks)), frames)
        row = to_arrow(order, None, pa.int64()).take(best)
        found = row.is_valid().to_numpy(zero_copy_only=False)
        return [chosen(lanes.column(self.column), row.fill_null(0).to_numpy(), found, self.type)]


def _rank_batch(ranks: np.ndarray) -> pa.RecordBatch:
    there = ranks >= 0
    return pa.RecordBatch.from_arrays([to_arrow(ranks, there, pa.int64())], [RANK])
