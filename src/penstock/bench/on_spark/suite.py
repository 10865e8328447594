"""Run the questions on Spark, and take the figures that the project promises there."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import penstock as pk
from penstock.bench.figures import Case, Figure, named, ratio
from penstock.bench.measure import Outcome, compare
from penstock.bench.on_spark.lake import write_lake
from penstock.bench.on_spark.questions import HERE, ON_SPARK, POLARS, SPARK, Question, questions
from penstock.bench.suites import Progress
from penstock.bench.workloads import YsbKeyed
from penstock.passes.choose_strategy import Halo
from penstock.sources.fragment import Fragment
from penstock.spark.own_way import fair
from penstock.spark.slices import Piece, time_slices

# How many times as fast as Spark's own way; the rest is the same for all.
TARGETS = {
    "tumbling 1 s": 6.0,
    "sliding 1 s, 10 at a time": 40.0,
    "sliding 1 s, 100 at a time": 200.0,
    "rolling mean of 1 s by key": 5.0,
}
ROW_GROUPS = 100_000


@dataclass(frozen=True, slots=True)
class SparkOptions:
    rows: int
    keys: int
    repeat: int
    cores: int = 2


def spark_cases(options: SparkOptions, progress: Progress) -> list[Case]:
    """Write lakes, start Spark, ask everything."""
    progress("starting Spark")
    spark = pk.spark_session(f"local[{options.cores}]", name="penstock bench", memory="4g")
    fair(spark)
    try:
        with tempfile.TemporaryDirectory(prefix="penstock-lake-") as folder:
            return [asked(each, options, spark, Path(folder), progress) for each in questions(options.keys)]
    finally:
        spark.stop()


def asked(question: Question, options: SparkOptions, spark: Any, folder: Path, progress: Progress) -> Case:
    """Ask one question of everybody, over one lake."""
    rows = max(options.rows // question.part, 1)
    lake = folder / f"{rows}-{question.keys}"
    if not lake.exists():
        progress(f"writing a lake of {rows:,} rows")
        write_lake(lake, YsbKeyed(rows, question.keys))
    outcomes = compare(question.contenders(spark, str(lake)), options.repeat, progress)
    figures = tuple(ratios(question, outcomes))
    return Case(f"{question.name}, on Spark", rows, question.keys, tuple(outcomes), figures)


def ratios(question: Question, outcomes: Sequence[Outcome]) -> list[Figure]:
    """Compare with Spark's own way, with Polars, and with the same engine without Spark."""
    ours = named(outcomes, ON_SPARK)
    found = [
        Figure(f"{ON_SPARK} / {SPARK}", ratio(named(outcomes, SPARK), ours), TARGETS.get(question.name)),
        Figure(
            f"{ON_SPARK} takes so many times {HERE}", ratio(ours, named(outcomes, HERE)), 1.5, at_least=False
        ),
    ]
    if any(each.name == POLARS for each in outcomes):
        found.append(Figure(f"{ON_SPARK} / {POLARS}", ratio(named(outcomes, POLARS), ours), 0.7))
    return found


def planning_figure() -> Figure:
    """Time the cutting of many row groups into slices; footers are read besides, files at a time."""
    pieces = [
        Piece(
            "events",
            Fragment(
                f"{n // 100}.parquet", "parquet", (n % 100, n % 100 + 1), 10_000, n * 1_000, n * 1_000 + 999
            ),
            n * 10_000,
        )
        for n in range(ROW_GROUPS)
    ]
    begin = time.perf_counter()
    time_slices(pieces, Halo(9_999, 0), 64)
    return Figure(
        f"planning {ROW_GROUPS:,} row groups", time.perf_counter() - begin, 10.0, at_least=False, unit="s"
    )
