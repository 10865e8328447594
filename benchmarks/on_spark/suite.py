"""Run the questions on Spark, and take the figures that the project promises there."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import penstock as pk
from benchmarks.figures import Case, Figure, ratio
from benchmarks.measure import Contender, Outcome, compare
from benchmarks.on_spark.market import market_questions
from benchmarks.on_spark.overheads import planning_figures, task_figures
from benchmarks.on_spark.questions import (
    HERE,
    ON_SPARK,
    POLARS,
    Question,
    of_fewer_rows,
    questions,
)
from benchmarks.scale.processors import FamilyClock
from benchmarks.suites import Progress
from penstock.spark.baseline import fair

THROUGH_SPARK, AGAINST_POLARS = 1.5, 0.7
CHECKED = "Penstock, fewer"


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """How many rows, of how many keys, asked how often; `only` those questions whose names hold this text."""

    rows: int
    keys: int
    repeat: int
    cores: int = 2
    only: str = ""

    @property
    def questions(self) -> list[Question]:
        return [
            question
            for question in (*questions(self.keys), *market_questions())
            if self.only in question.name
        ]


@dataclass(frozen=True, slots=True)
class Bench:
    """A running session, and the folder of the lakes written so far."""

    options: SparkOptions
    spark: Any
    folder: Path
    progress: Progress

    def cases(self) -> Iterator[Case]:
        """Ask everything, a question at a time."""
        for question in self.options.questions:
            yield self._asked(question)

    def overheads(self) -> list[Figure]:
        """Take the figures that belong to no question."""
        self.progress("planning")
        planning = planning_figures(self.folder)
        self.progress("many small tasks")
        return [*planning, *task_figures(self.spark, self.folder, self.options.cores)]

    def _asked(self, question: Question) -> Case:
        """Ask one question of everybody, Spark perhaps over a smaller lake, where we are asked too to check the answer."""
        rows = max(self.options.rows // question.part, 1)
        outcomes = compare(
            self._contenders(question, rows), self.options.repeat, self.progress, FamilyClock()
        )
        name = f"{question.name}, on Spark"
        return Case(name, rows, question.keys, tuple(outcomes), tuple(ratios(question, rows, outcomes)))

    def _contenders(self, question: Question, rows: int) -> list[Contender]:
        whole = self._lake(question, rows)
        mine = question.ours(self.spark, whole)
        if rows <= question.spark_rows:
            return mine + question.theirs(self.spark, whole)
        few = self._lake(question, question.spark_rows)
        here = next(our for our in question.ours(self.spark, few) if our.name == HERE)
        theirs = [replace(here, name=CHECKED), *question.theirs(self.spark, few)]
        return mine + of_fewer_rows(theirs, question.spark_rows)

    def _lake(self, question: Question, rows: int) -> str:
        lake = self.folder / f"{question.lake.__name__}-{rows}-{question.keys}"
        if not lake.exists():
            self.progress(f"writing a lake of {rows:,} rows")
            question.lake(lake, rows, question.keys)
        return str(lake)


def spark_bench(options: SparkOptions, progress: Progress) -> Iterator[Case | Figure]:
    """Start Spark and write lakes; give each case when it is done, then the figures that belong to none."""
    progress("starting Spark")
    spark = pk.spark_session(f"local[{options.cores}]", name="penstock bench", memory="4g")
    fair(spark)
    try:
        with tempfile.TemporaryDirectory(prefix="penstock-lake-") as folder:
            bench = Bench(options, spark, Path(folder), progress)
            yield from bench.cases()
            if not options.only:
                yield from bench.overheads()
    finally:
        spark.stop()


# --- figures ------------------------------------------------------------------------------------------------


def ratios(question: Question, rows: int, outcomes: Sequence[Outcome]) -> list[Figure]:
    """Compare with Spark's own way, with the same engine without Spark, and with Polars: by the clock, which has a target,
    and by processor time, which neighbours disturb less.
    """
    through, library = (THROUGH_SPARK, AGAINST_POLARS) if question.through else (None, None)
    against = {question.rival: question.target, HERE: through, POLARS: library}
    there = [outcome.name for outcome in outcomes]
    return [
        figure
        for name, target in against.items()
        if name in there
        for figure in _pair(name, target, rows, outcomes)
    ]


def _pair(name: str, target: float | None, rows: int, outcomes: Sequence[Outcome]) -> list[Figure]:
    ours, theirs = _each(outcomes, ON_SPARK), _each(outcomes, name)
    clock = _rows_second(ours, rows, ours.best), _rows_second(theirs, rows, theirs.best)
    work = _rows_second(ours, rows, ours.best_cpu), _rows_second(theirs, rows, theirs.best_cpu)
    if name == HERE:
        title = f"{ON_SPARK} takes so many times {HERE}"
        by_clock = Figure(title, ratio(clock[1], clock[0]), target, at_least=False)
        by_work = ratio(work[1], work[0])
    else:
        title = f"{ON_SPARK} / {name}{_said(theirs)}"
        by_clock = Figure(title, ratio(clock[0], clock[1]), target)
        by_work = ratio(work[0], work[1])
    return [by_clock, Figure("  the same by processor time", by_work)]


def _each(outcomes: Sequence[Outcome], name: str) -> Outcome:
    return next(outcome for outcome in outcomes if outcome.name == name)


def _rows_second(outcome: Outcome, rows: int, seconds: float | None) -> float | None:
    """Give a speed, of right answers only."""
    return (outcome.rows or rows) / seconds if seconds and outcome.agrees else None


def _said(outcome: Outcome) -> str:
    return "" if outcome.rows is None else f" (rows a second, of {outcome.rows:,} rows)"
