"""Sweep Hammer Slide's parameters: one case for each point, C++ and Penstock side by side, one thread.

A *kernel* is timed into a recycled buffer, as the C++ is: fresh pages for the output would cost more than
the aggregation. Beside it stands the whole query, `collect()`, with its fresh output table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

import penstock as pk
from benchmarks.contenders import CPP_GROUP, PENSTOCK_GROUP
from benchmarks.figures import Case, Figure, named, ratio
from benchmarks.measure import Contender, Outcome, compare
from benchmarks.peers import failing
from benchmarks.reference import NoCompilerError, single_chunk
from benchmarks.reference.swag import SwagReference
from benchmarks.swag.kernel import count_kernel, windows_of
from benchmarks.swag.subjects import SECOND_US, Aggregate, Numbers, Subject
from penstock.calibration.machine import FAST_MEMORY

CPP = "C++"
PAPER = "C++ as in the paper"
READ = "C++ only reading"
KERNEL = "kernel"
COLLECT = "collect()"
ANSWER = "m"
POISON = 0xA5

Progress = Callable[[str], None]
AGGREGATES = {Aggregate.SUM: pk.sum, Aggregate.MIN: pk.min, Aggregate.AVG: pk.mean}


@dataclass(frozen=True, slots=True)
class Point:
    """Windows of `size` rows, one every `every`; `at` is where the sweep stands.

    `bar` is what it must reach: tuples a second, in millions, on a core that reads 25 GB/s.
    """

    sweep: str
    name: str
    at: float
    size: int
    every: int
    bar: float | None = None
    whole: bool = True


def count_case(
    subject: Subject,
    data: Numbers,
    point: Point,
    reference: SwagReference | NoCompilerError,
    repeat: int,
    progress: Progress,
) -> Case:
    """Everyone over one array of numbers."""
    progress(f"{point.sweep}, {subject}: {point.name}")
    contenders = count_contenders(subject, data, point, reference)
    outcomes = compare(contenders, repeat)
    return Case(
        name=point.name,
        rows=data.size,
        keys=1,
        outcomes=tuple(outcomes),
        figures=count_figures(outcomes, data, point.bar),
        sweep=f"{point.sweep}, {subject}",
        point=point.at,
    )


def count_figures(outcomes: Sequence[Outcome], data: Numbers, bar: float | None) -> tuple[Figure, ...]:
    """The kernel against C++, the query against the kernel, and against the bar if this point has one."""
    ours, reading = named(outcomes, KERNEL), named(outcomes, READ)
    against = [Figure("kernel / C++", ratio(named(outcomes, CPP), ours), 1.0)]
    if any(outcome.name == COLLECT for outcome in outcomes):
        against.append(Figure("collect() / kernel", ratio(ours, named(outcomes, COLLECT))))
    if bar is None:
        return tuple(against)
    scaled = data.size / ours * FAST_MEMORY / (data.nbytes / reading) / 1e6 if ours and reading else None
    return *against, Figure(f"kernel at {FAST_MEMORY / 1e9:g} GB/s", scaled, bar, unit="M/s")


def count_contenders(
    subject: Subject, data: Numbers, point: Point, reference: SwagReference | NoCompilerError
) -> list[Contender]:
    """The reference in both forms, Penstock's kernel and Penstock's query."""
    size, every = point.size, point.every
    out = np.empty(windows_of(data.size, size, every), subject.result)
    out.view(np.uint8)[:] = POISON
    made = [
        recycled(name, reference_call(reference, subject, data, point, out, scans), out, CPP_GROUP)
        for name, scans in ((CPP, True), (PAPER, False))
    ]
    made.append(read_contender(reference, data))
    made.append(recycled(KERNEL, kernel_call(subject, data, point, out), out, PENSTOCK_GROUP))
    if point.whole:
        query = partial(count_query, pa.table({"x": pa.array(data)}), subject, size, every)
        made.append(whole_query(COLLECT, query, [ANSWER]))
    return made


def read_contender(reference: SwagReference | NoCompilerError, data: Numbers) -> Contender:
    """Reading alone, in turns with the others: what memory allows while they run."""
    run = failing(reference) if isinstance(reference, NoCompilerError) else partial(reference.read, data)
    return Contender(READ, run, lambda total: pa.table({"total": [total]}), group=CPP_GROUP, question=READ)


def recycled(name: str, run: Callable[[], int], out: Numbers, group: str) -> Contender:
    """A contender that writes into memory it shares with others, which is spoilt once it has been read."""

    def answer(windows: int) -> pa.Table:
        taken = pa.table({ANSWER: pa.array(out[:windows].copy())})
        out.view(np.uint8)[:] = POISON
        return taken

    return Contender(name, run, answer, group=group)


def reference_call(
    reference: SwagReference | NoCompilerError,
    subject: Subject,
    data: Numbers,
    point: Point,
    out: Numbers,
    scans: bool,
) -> Callable[[], int]:
    """Call the C++ reference, or raise why there is none."""
    if isinstance(reference, NoCompilerError):
        return failing(reference)
    return lambda: reference.count(subject.kind, data, point.size, point.every, out, scans)


def kernel_call(subject: Subject, data: Numbers, point: Point, out: Numbers) -> Callable[[], int]:
    """Compile Penstock's kernel outside the timing, and call it."""
    kernel = count_kernel(subject, point.size, point.every)
    return lambda: kernel(data, out)


def count_query(table: pa.Table, subject: Subject, size: int, every: int) -> Any:
    """Write a count window over implied time as a user would."""
    events = pk.from_arrow(table, time=pk.every(1))
    windows = events.window(pk.rows(size, every=every))
    return windows.agg(AGGREGATES[subject.aggregate]("x").alias(ANSWER))


def whole_query(name: str, query: Callable[[], Any], columns: list[str], threads: int = 1) -> Contender:
    """A whole `collect()`, of which some columns are compared."""

    def run() -> Any:
        return query().collect(engine=pk.Engine(threads=threads))

    return Contender(name, run, lambda answer: answer.select(columns), threads, PENSTOCK_GROUP)


# -- time windows over spiky arrivals ---------------------------------------------------------------------


def time_case(
    table: pa.Table,
    seconds: int,
    every: int,
    reference: SwagReference | NoCompilerError,
    repeat: int,
    progress: Progress,
) -> Case:
    """Average over time windows: the reference's two stacks over panes against the query."""
    progress(f"spiky arrivals: slide {every} s")
    query = partial(time_query, table, seconds, every)
    contenders = [
        Contender(CPP, time_call(reference, table, seconds, every), time_table, group=CPP_GROUP),
        whole_query(COLLECT, query, ["window_start", ANSWER]),
    ]
    outcomes = compare(contenders, repeat)
    against = Figure("collect() / C++", ratio(named(outcomes, CPP), named(outcomes, COLLECT)))
    sweep = f"time windows of {seconds} s, spiky arrivals, float64 AVG"
    return Case(f"{every} s", table.num_rows, 1, tuple(outcomes), (against,), sweep, every)


def time_query(table: pa.Table, seconds: int, every: int) -> Any:
    """Write the cluster's average load as a user would."""
    windows = pk.from_arrow(table, time="ts").window(pk.sliding(f"{seconds}s", every=f"{every}s"))
    return windows.agg(pk.mean("cpu").alias(ANSWER))


def time_call(
    reference: SwagReference | NoCompilerError, table: pa.Table, seconds: int, every: int
) -> Callable[[], Any]:
    """Call the C++ reference, or raise why there is none."""
    if isinstance(reference, NoCompilerError):
        return failing(reference)
    times, values = single_chunk(table, "ts"), single_chunk(table, "cpu")
    return lambda: reference.time_avg(times, values, seconds * SECOND_US, every * SECOND_US)  # type: ignore[arg-type]  # of the table's types


def time_table(answer: tuple[Numbers, Numbers]) -> pa.Table:
    """Give the reference's answer as the query's table."""
    starts, means = answer
    return pa.table({"window_start": pa.array(starts).view(pa.timestamp("us")), ANSWER: pa.array(means)})
