"""A lake that does not exist, planned for real and run by a clock that is counted.

Row groups are described by their numbers of rows and their times, as footers would; the planner that Spark jobs use
cuts them into tasks; tasks take what the model says, more or less, and cores take them in turn, as Spark does.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.scale.model import Job, Model
from penstock.sources.fragment import Fragment

SLOWER = 4.0  # times as long as others, for the unlucky tasks

Cut = Callable[[Sequence[Fragment], int], Sequence[Sequence[Fragment]]]
"""A planner: fragments and a number of tasks in, the fragments of each task out."""


@dataclass(frozen=True, slots=True)
class Lake:
    """Row groups of a table ordered by time, more or less.

    `burst` is how much denser rows are at the busiest hour than on average; `disorder` is how far a row group reaches into
    the time before it, in its own length: rows that came late.
    """

    row_groups: int
    rows: int
    burst: float = 1.0
    disorder: float = 0.0
    groups_per_file: int = 8
    seed: int = 1


def fragments(lake: Lake) -> list[Fragment]:
    """Describe every row group."""
    random = np.random.default_rng(lake.seed)
    rows = random.integers(lake.rows // 2, lake.rows * 3 // 2 + 1, lake.row_groups)
    phase = np.linspace(0, 60 * np.pi, lake.row_groups)
    density = 1 + (lake.burst - 1) * np.maximum(np.sin(phase), 0)
    lengths = np.maximum(rows / density, 1).astype(np.int64)
    ends = np.cumsum(lengths)
    starts = ends - lengths - (lengths * lake.disorder * random.random(lake.row_groups)).astype(np.int64)
    return [
        _fragment(number, lake, int(rows[number]), int(starts[number]), int(ends[number]) - 1)
        for number in range(lake.row_groups)
    ]


def _fragment(number: int, lake: Lake, rows: int, first: int, last: int) -> Fragment:
    file, group = divmod(number, lake.groups_per_file)
    return Fragment(f"lake/{file:08}.parquet", "parquet", (group, group + 1), rows, first, last)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a job: how it was planned, how long it took, and how well cores were used."""

    row_groups: int
    tasks: int
    planning_seconds: float
    read_again: float
    largest: float
    seconds: float
    predicted: float
    busy: float


def simulate(
    parts: Sequence[Fragment],
    cut: Cut,
    model: Model,
    tasks: int,
    cores: int,
    per_row: float,
    unlucky: float = 0.0,
    keys: int = 1,
) -> Outcome:
    """Plan and run a job; `per_row` is the number of results for each row, `unlucky` the part of slow tasks."""
    begin = time.perf_counter()
    plan = cut(parts, tasks)
    planning = time.perf_counter() - begin
    rows = np.array([sum(fragment.rows or 0 for fragment in task) for task in plan], float)
    there = sum(part.rows or 0 for part in parts)
    alike = np.array([model.task_seconds(row, row * per_row, keys) for row in rows])
    took = alike * _luck(len(rows), unlucky)
    seconds = model.start + makespan(took, cores)
    job = Job(there, int(there * per_row), len(rows), cores, keys)
    return Outcome(
        row_groups=len(parts),
        tasks=len(rows),
        planning_seconds=planning,
        read_again=float(rows.sum() / max(there, 1)),
        largest=float(rows.max() / max(rows.mean(), 1)),
        seconds=seconds,
        predicted=model.seconds(job),
        busy=float(took.sum() / (cores * max(seconds, 1e-9))),
    )


def _luck(tasks: int, unlucky: float) -> np.ndarray:
    """Machines differ a little, and some tasks meet a slow one."""
    random = np.random.default_rng(1)
    slow = np.where(random.random(tasks) < unlucky, SLOWER, 1.0)
    luck: np.ndarray = random.lognormal(0.0, 0.1, tasks) * slow
    return luck


def makespan(seconds: Sequence[float] | np.ndarray, cores: int) -> float:
    """Run tasks in their order, each on the core that is free first.

    >>> makespan([3, 1, 1, 1], cores=2)
    3.0
    """
    free = [0.0] * cores
    last = 0.0
    for second in seconds:
        end = heapq.heappop(free) + second
        heapq.heappush(free, end)
        last = max(last, end)
    return last
