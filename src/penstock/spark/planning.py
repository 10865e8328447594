"""Plan a query on Spark: files, strategy and tasks. Planning reads footers, no rows, and does not import pyspark."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import pyarrow as pa

from penstock.analysis.slice_boundaries import Carry, Counts, Held, Sessions
from penstock.compile import Compiled
from penstock.errors import EngineError
from penstock.physical.choose_strategy import (
    FRAGMENTS,
    KEYS,
    ONE,
    SLICES,
    TIMES,
    DataFacts,
    Halo,
    Possible,
    StrategyChoice,
    choose,
    possible,
)
from penstock.physical.memory_need import holders
from penstock.plan.nodes import Source
from penstock.plan.schema import sources_of
from penstock.runtime.memory.budget import size_of
from penstock.sources.bound import Bound
from penstock.sources.fragment import Fragment
from penstock.spark.bound import BoundDataFrame
from penstock.spark.boundary_splits import carried_slices, count_slices, held_slices, session_slices
from penstock.spark.slices import (
    Part,
    Piece,
    even_parts,
    in_turn,
    joined_part,
    longest,
    read_again,
    span_of,
    time_known,
    time_slices,
)
from penstock.spark.task_memory import UNBOUNDED, TaskMemory, TaskNeed, task_need
from penstock.storage.uri import absolute

# A Spark task costs about 40 ms. Below this number of rows another task does not pay off.
LEAST_ROWS_PER_TASK = 500_000
# Upper bound on the rows of one task. It limits the work repeated after a failure and the interval between progress updates.
MOST_ROWS_PER_TASK = 64_000_000
# Upper bound on the rows that a task after a shuffle holds in memory.
MOST_ROWS_PER_SHARD = 16_000_000


@dataclass(frozen=True, slots=True)
class Physical:
    """The physical plan of a query on Spark: inputs, strategy with its reason, and tasks."""

    compiled: Compiled
    frames: Mapping[str, BoundDataFrame]
    pieces: tuple[Piece, ...]
    found: Possible
    choice: StrategyChoice
    parts: tuple[Part, ...]
    tasks: int

    @property
    def shards(self) -> int:
        rows = sum(piece.fragment.rows or 0 for piece in self.pieces)
        return max(self.tasks, -(-rows // MOST_ROWS_PER_SHARD))

    def need(self, memory: TaskMemory) -> TaskNeed | None:
        """Predict the memory of the largest task; None if the number of rows is not known."""
        if self.frames or any(piece.fragment.rows is None for piece in self.pieces):
            return None
        rows = sum(piece.fragment.rows or 0 for piece in self.pieces)
        ordered = all(map(in_turn, self.parts)) and self.choice.strategy in (SLICES, ONE)
        rows = longest(self.parts) if self.choice.strategy not in (KEYS, TIMES) else -(-rows // self.shards)
        schema = pa.schema([field for inputs in self.compiled.inputs.values() for field in inputs])
        needs = holders(self.compiled.physical("bounded")) if self.choice.strategy != FRAGMENTS else ()
        return task_need(needs, rows, schema, memory, ordered)

    def __str__(self) -> str:
        return self.described(UNBOUNDED)

    def described(self, memory: TaskMemory) -> str:
        """Describe the strategy with its reason, the tasks, and what one of them needs."""
        need = self.need(memory)
        needs = (
            []
            if need is None
            else [f"memory: {need}; its budget is {size_of(memory.limit)} ({memory.origin})"]
        )
        head = f"strategy: {self.choice.strategy}; {self.choice.reason}"
        return "\n".join([head, *self._reading(), *needs])

    def _reading(self) -> list[str]:
        frames = [
            f"stream {stream!r}: a DataFrame, {', '.join(self.compiled.columns[stream])} through mapInArrow"
            for stream in self.frames
        ]
        rows, pieces = sum(part.rows for part in self.parts), sum(len(part.pieces) for part in self.parts)
        files = [f"tasks: {len(self.parts)}, reading {pieces} pieces of files, {rows} rows"]
        return frames + (files if self.pieces else [])


def planned(compiled: Compiled, bound: Mapping[str, Bound], strategy: str | None, tasks: int) -> Physical:
    """Choose the physical plan of a query. Reads footers, no rows."""
    if tasks < 1:
        raise EngineError(f"tasks must be at least 1, not {tasks}")
    frames = {name: data for name, data in bound.items() if isinstance(data, BoundDataFrame)}
    sources = [source for source in sources_of(compiled.plan) if source.name not in frames]
    pieces = tuple(piece for source in sources for piece in pieces_of(source, bound[source.name]))
    found = possible(compiled.program)
    worth = tasks if frames or strategy is not None else _tasks_worth(pieces, tasks)
    slices = _slices(found, sources, pieces, worth) if not frames else None
    choice = choose(found, _facts(slices, pieces, not frames, worth), strategy)
    parts = _parts(choice, found, pieces, slices, worth)
    return Physical(compiled, frames, pieces, found, choice, tuple(map(joined_part, parts)), worth)


def _facts(slices: Sequence[Part] | None, pieces: Sequence[Piece], files: bool, tasks: int) -> DataFacts:
    if slices is None:
        return DataFacts(files, tasks)
    share = max(longest(even_parts(pieces, tasks)), 1)
    return DataFacts(files, tasks, read_again(slices, pieces), longest(slices) / share, span_of(pieces))


def _tasks_worth(pieces: Sequence[Piece], tasks: int) -> int:
    rows = [piece.fragment.rows for piece in pieces]
    if None in rows:
        return tasks
    total = sum(row or 0 for row in rows)
    waves = -(-total // (tasks * MOST_ROWS_PER_TASK))
    return max(min(tasks * waves, total // LEAST_ROWS_PER_TASK), 1)


def _slices(
    found: Possible, sources: Sequence[Source], pieces: Sequence[Piece], tasks: int
) -> tuple[Part, ...] | None:
    if not time_known(pieces):
        return None
    match found.slices:
        case Halo(carry=Carry(right=right)) as halo:
            source = next(source for source in sources if source.name == right)
            return carried_slices(pieces, halo, source, tasks)
        case Halo(held=Held()) as halo:
            return held_slices(pieces, halo, sources, tasks)
        case Halo() as halo:
            return time_slices(pieces, halo, tasks)
        case Sessions(gap=gap):
            return session_slices(pieces, gap, tasks)
        case Counts() as border:
            return count_slices(pieces, border, sources[0], tasks)
        case _:
            return None


def _parts(
    choice: StrategyChoice,
    found: Possible,
    pieces: Sequence[Piece],
    slices: tuple[Part, ...] | None,
    tasks: int,
) -> tuple[Part, ...]:
    if choice.strategy == ONE:
        return (Part(tuple(pieces)),)
    if choice.strategy == SLICES and not found.rows:
        assert slices is not None
        return slices
    return even_parts(pieces, tasks)


def pieces_of(source: Source, bound: Any) -> list[Piece]:
    """List the pieces of a stream with the number of each first row. A file of unknown row count counts as 2**40 rows."""
    data = bound.dataset(source.time.column)
    fragments: Sequence[Fragment] = data.fragments
    counts = [1 << 40 if fragment.rows is None else fragment.rows for fragment in fragments]
    firsts = [0, *accumulate(counts)]
    if source.time.implied:
        fragments = [
            _implied(fragment, first, source) for fragment, first in zip(fragments, firsts, strict=False)
        ]
    return [
        Piece(source.name, _whole_path(fragment), first, data.access)
        for fragment, first in zip(fragments, firsts, strict=False)
    ]


def _whole_path(fragment: Fragment) -> Fragment:
    """Make the path of a fragment absolute, so that tasks in any working directory find it. Links are not resolved."""
    path = fragment.path
    return fragment if os.path.isabs(path) else replace(fragment, path=absolute(path))  # noqa: PTH117


def _implied(fragment: Fragment, first: int, source: Source) -> Fragment:
    """Set the time range of a fragment from the numbers of its rows."""
    assert source.time.period is not None
    if fragment.rows is None:
        return fragment
    last = first + max(fragment.rows, 1) - 1
    ends = (source.time.start + row * source.time.period for row in (first, last))
    low, high = sorted(ends)
    return replace(fragment, time_min=low, time_max=high)
