"""What Spark costs beside the work: planning over many row groups, and starting many tasks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import penstock as pk
from benchmarks.figures import Figure
from benchmarks.scale.processors import FamilyClock, worked
from penstock.physical.choose_strategy import Halo
from penstock.sources.fragment import Fragment
from penstock.spark.baseline import consume
from penstock.spark.planning import planned
from penstock.spark.slices import Piece, time_slices

ROW_GROUPS, GROUPS_A_FILE = 100_000, 100
PLANNED_TASKS = 64
FEW, MANY = 2, 34
TASK_ROWS = 1_000


def planning_figures(folder: Path, row_groups: int = ROW_GROUPS) -> list[Figure]:
    """Time the whole planning over footers, and once more the cutting of a lake that is in order.

    The files are one, by many names: writing a hundred thousand row groups takes minutes, and a footer is read from
    each name all the same.
    """
    query = _counts(_linked(folder / "planning", row_groups // GROUPS_A_FILE))
    ordered = _in_order(row_groups)

    def plan() -> None:
        planned(query.compiled(), query.data, None, PLANNED_TASKS)
        time_slices(ordered, Halo(9_999, 0), PLANNED_TASKS)

    title = f"planning {row_groups:,} row groups, footers and slices"
    return _figures(title, *worked(plan), 10.0, "s")


def _linked(folder: Path, files: int) -> Path:
    folder.mkdir(parents=True)
    first = folder / "000000.parquet"
    pq.write_table(_rows(GROUPS_A_FILE), first, row_group_size=1)
    for number in range(1, files):
        os.link(first, folder / f"{number:06}.parquet")
    return folder


def _rows(rows: int) -> pa.Table:
    ticks = np.arange(rows, dtype=np.int64)
    return pa.table({"ts": pa.array(ticks).cast(pa.timestamp("us")), "value": ticks})


def _counts(folder: Path) -> Any:
    return pk.scan(folder, time="ts", name="events").window("10us").agg(n=pk.count())


def _in_order(row_groups: int) -> list[Piece]:
    return [
        Piece(
            "events",
            Fragment(
                f"{n // GROUPS_A_FILE}.parquet",
                "parquet",
                (n % GROUPS_A_FILE, n % GROUPS_A_FILE + 1),
                10_000,
                n * 1_000,
                n * 1_000 + 999,
            ),
            n * 10_000,
        )
        for n in range(row_groups)
    ]


def task_figures(spark: Any, folder: Path, cores: int, repeat: int = 3) -> list[Figure]:
    """Time a job of few tasks and one of many over the same few rows: what they differ in is the cost of tasks."""
    lake = folder / "tasks"
    lake.mkdir()
    pq.write_table(_rows(MANY * TASK_ROWS), lake / "0.parquet", row_group_size=TASK_ROWS)
    query, family = _counts(lake), FamilyClock()

    def run(tasks: int) -> tuple[float, float]:
        def job() -> None:
            consume(query.to_spark(spark, strategy="slices", tasks=tasks))

        job()
        clocks, work = zip(*(worked(job, family) for _ in range(repeat)), strict=True)
        return min(clocks), min(work)

    (long, much), (short, little) = run(MANY), run(FEW)
    per_task = 1e3 / (MANY - FEW)
    return _figures(
        "a task costs beside its work",
        (long - short) * cores * per_task,
        (much - little) * per_task,
        50.0,
        "ms",
    )


def _figures(title: str, clock: float, work: float, target: float, unit: str) -> list[Figure]:
    """Give what the clock says, which has a target, and what processors say, whom neighbours disturb less."""
    by_clock = Figure(title, max(clock, 0.0), target, at_least=False, unit=unit)
    return [by_clock, Figure("  the same by processor time", max(work, 0.0), unit=unit)]
