"""Measure jobs of several sizes over Parquet: in this process, and on Spark where that is installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import penstock as pk
from benchmarks.scale.model import Job, Measured
from benchmarks.scale.processors import FamilyClock, worked
from benchmarks.workloads import VIEW, YsbKeyed, ysb_keyed

KEYS = (100, 10_000)
OVERLAPS = (1, 10)
MANY = 4  # tasks for each core
# Row groups are of one length whatever the size of a lake, and longer than a window: a scan then costs the same for each row.
FILE_ROWS, GROUP_ROWS = 2_000_000, 400_000
# Fewer rows for each task would be shuffled instead: slices that end with windows would read too much twice.
TASK_ROWS = 2_000_000

Run = Callable[[Any, int], object]
"""Run a query to its end, in so many tasks."""


@dataclass(frozen=True, slots=True)
class Size:
    """What is varied: rows, keys and overlapping windows."""

    rows: int
    keys: int
    overlap: int


@dataclass(frozen=True, slots=True)
class Way:
    """A way to run queries: its name, its cores, and into how many tasks it divides those of a size."""

    name: str
    cores: int
    tasks: Callable[[Size], tuple[int, ...]]
    run: Run
    family: FamilyClock = field(default_factory=FamilyClock)


def sizes(rows: int) -> list[Size]:
    """Every setting at one number of rows."""
    return [Size(rows, keys, overlap) for keys in KEYS for overlap in OVERLAPS]


def write_lake(folder: Path, rows: int, keys: int) -> Path:
    """Write a ysb-keyed table as files of some row groups, unless it is there."""
    lake = folder / f"rows={rows}-keys={keys}"
    if not lake.exists():
        table = ysb_keyed(YsbKeyed(rows, keys))
        lake.mkdir(parents=True)
        for number, begin in enumerate(range(0, rows, FILE_ROWS)):
            piece = table.slice(begin, FILE_ROWS)
            pq.write_table(piece, lake / f"{number:04}.parquet", row_group_size=GROUP_ROWS)
    return lake


def query(lake: Path, overlap: int) -> Any:
    """Views for each campaign in windows of a second, sliding so that so many overlap."""
    events = pk.scan(lake, time="ts", name="events").filter(pk.col("event_type") == VIEW)
    window = pk.sliding("1s", every=f"{1_000_000 // overlap}us")
    return events.window(window, by="campaign_id").agg(total=pk.sum("value"))


@dataclass(slots=True)
class Trial:
    """A job that is run again and again; the least of what it took counts, for neighbours only ever add to it."""

    job: Job
    call: Callable[[], object]
    family: FamilyClock
    took: list[tuple[float, float]] = field(default_factory=list)

    def run(self) -> None:
        self.took.append(worked(self.call, self.family))

    def measured(self) -> Measured:
        clock, work = zip(*self.took, strict=True)
        return Measured(self.job, min(work), min(clock))


def prepared(way: Way, size: Size, folder: Path) -> Iterator[Trial]:
    """Write the lake of a setting and run it once in every division into tasks, so that all is warm."""
    asked = query(write_lake(folder, size.rows, size.keys), size.overlap)
    results = _rows(asked.collect())
    for tasks in way.tasks(size):
        way.run(asked, tasks)
        job = Job(size.rows, results, tasks, way.cores, size.keys)
        yield Trial(job, partial(way.run, asked, tasks), way.family)


def _rows(table: pa.Table) -> int:
    return int(table.num_rows)


def in_process(cores: int) -> Way:
    """Run on threads of this process."""
    counts = tuple(sorted({1, cores}))
    return Way(
        "in process",
        cores,
        lambda _: counts,
        lambda asked, tasks: asked.collect(engine=pk.Engine(threads=tasks)),
    )


def on_spark(cores: int, run: Run) -> Way:
    """Run as a job of Spark: a task for each core, and where windows do not overlap, in many small tasks as well."""

    def tasks(size: Size) -> tuple[int, ...]:
        many = min(MANY * cores, size.rows // TASK_ROWS)
        return (cores, many) if size.overlap == 1 and many > cores else (cores,)

    return Way("Spark", cores, tasks, run)


@contextmanager
def ways(cores: int) -> Iterator[Sequence[Way]]:
    """Open all ways there are; Spark is stopped at the end."""
    here = in_process(cores)
    if find_spec("pyspark") is None:
        yield [here]
        return
    session = pk.spark_session(master=f"local[{cores}]")
    try:
        yield [here, on_spark(cores, _job(session))]
    finally:
        session.stop()


def _job(session: Any) -> Run:
    def run(asked: Any, tasks: int) -> None:
        frame = asked.to_spark(session, tasks=tasks)
        frame.write.format("noop").mode("overwrite").save()

    return run
