"""Run both ways in turns, and take the figures that the project promises on streams."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import penstock as pk
from benchmarks.answers import agree, normalise
from benchmarks.contenders import PENSTOCK_GROUP
from benchmarks.figures import Case, Figure, least_cpu, named, ratio
from benchmarks.measure import Outcome
from benchmarks.peers import PEER_GROUP
from benchmarks.streaming.feed import write_feed
from benchmarks.streaming.kafka_case import kafka_cases
from benchmarks.streaming.questions import (
    OURS,
    QUESTIONS,
    SPARK,
    Question,
    complete,
    last_start,
    ours,
    theirs,
)
from benchmarks.streaming.runs import Ran, run_stream
from benchmarks.suites import Progress
from benchmarks.workloads import YsbKeyed, ysb_keyed
from penstock.spark.streaming.topology import cell_bytes

# Planning and committing a batch is work of the JVM, which takes twenty batches to compile what it repeats: these are
# small, yet give results as the large ones do. Of those the first is not counted either.
WARM, WARM_ROWS = 20, 20_000
COUNTED = 3
# What crosses our shuffle are a few states: to assemble them is work for one task. Spark's own way is best with one a core.
SHARDS = 1
SMALL_ROWS = 10_000
# Batches with and without rows in turns, in one stream: whatever the machine does meets both. Figures fall for about
# a hundred batches, while the JVM warms up; the second half counts (decision 82).
SMALL_BATCHES = 240
MOST_ADDED = 1.2
# The store in which Spark holds large states best; ours does not mind.
ROCKSDB = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
MOST_STATE = 2.0
WINDOW_US = 10_000_000


@dataclass(frozen=True, slots=True)
class StreamingOptions:
    """How many rows in each batch that counts (some questions take several times as many), of how many keys; how often each way runs."""

    rows: int
    keys: int
    repeat: int
    cores: int = 2


def streaming_cases(options: StreamingOptions, progress: Progress) -> tuple[list[Case], list[Figure]]:
    """Write the files, start Spark, run everything."""
    progress("starting Spark")
    reported = {"spark.sql.streaming.numRecentProgressUpdates": SMALL_BATCHES + 1}
    config = {"spark.sql.shuffle.partitions": options.cores, **reported, **ROCKSDB}
    spark = pk.spark_session(f"local[{options.cores}]", name="penstock bench", memory="4g", config=config)
    try:
        with tempfile.TemporaryDirectory(prefix="penstock-lake-") as folder:
            cases = [_on_its_feed(question, options, spark, folder, progress) for question in QUESTIONS]
            alone = [latency_figure(spark, options, Path(folder), progress)]
    finally:
        spark.stop()
    messages, missing = kafka_cases(options.rows, options.keys, options.repeat, progress)
    if missing is not None:
        alone.append(Figure(f"Kafka is not measured: {missing}", None))
    return [*cases, *messages], alone


def _on_its_feed(
    question: Question, options: StreamingOptions, spark: Any, folder: str, progress: Progress
) -> Case:
    """Write the files of one question, which are gone when the next one's are written."""
    with tempfile.TemporaryDirectory(dir=folder) as own:
        rows, large = options.rows * question.batch, COUNTED + 1
        progress(f"writing {large} times {rows:,} rows")
        lake = write_feed(Path(own), options.keys, feed_sizes(rows, options.cores))
        return asked(question, options, spark, lake, progress)


def feed_sizes(rows: int, files: int) -> list[int]:
    """Give the rows of each file, so many files a batch: small batches first, then those of so many rows.

    >>> feed_sizes(100_000, 2)[-9:] == [WARM_ROWS, *[50_000] * 8]
    True
    """
    return [WARM_ROWS] * (WARM * files) + [rows // files] * ((COUNTED + 1) * files)


def asked(question: Question, options: StreamingOptions, spark: Any, lake: str, progress: Progress) -> Case:
    """Run both ways over the same files, in turns, and compare what they gave."""
    mine = Outcome(OURS, PENSTOCK_GROUP, options.cores)
    other = Outcome(SPARK, PEER_GROUP, options.cores)
    largest = 0
    for turn in range(options.repeat):
        ran = {}
        for name in (OURS, SPARK) if turn % 2 == 0 else (SPARK, OURS):
            progress(f"{question.name}: {name}, round {turn + 1}")
            frame = _frame(question, name, options, spark, lake)
            ran[name] = run_stream(frame, WARM + 1 + COUNTED, WARM + 1)
        _note(mine, ran[OURS])
        _note(other, ran[SPARK])
        largest = max(largest, ran[OURS].state)
        other.agrees = _same(ran[OURS], ran[SPARK]) and other.agrees is not False
    mine.agrees = True
    rows = options.rows * question.batch * COUNTED
    figures = (*speed_figures(question, [mine, other]), state_figure(question, options, lake, largest))
    return Case(f"{question.name}, streaming", rows, options.keys, (mine, other), figures)


def _frame(question: Question, name: str, options: StreamingOptions, spark: Any, lake: str) -> Any:
    spark.conf.set("spark.sql.shuffle.partitions", options.cores if name == SPARK else SHARDS)
    if name == SPARK:
        return theirs(question, spark, lake, options.cores)
    return ours(question, lake, options.cores).to_spark(spark)


def _note(outcome: Outcome, ran: Ran) -> None:
    outcome.seconds.append(ran.seconds)
    outcome.cpu_seconds.append(ran.processors)


def _same(one: Ran, two: Ran) -> bool:
    upto = last_start([one.answer, two.answer])
    return agree(*(normalise(complete(run.answer, upto)) for run in (one, two)))


def speed_figures(question: Question, outcomes: Sequence[Outcome]) -> list[Figure]:
    """Compare by the clock, and by the work of all processes, which neighbours disturb less."""
    mine, other = outcomes
    clock = ratio(named(outcomes, SPARK), named(outcomes, OURS))
    work = ratio(least_cpu([other]), least_cpu([mine]))
    return [
        Figure(f"{OURS} / {SPARK}", clock, question.target),
        Figure(f"{OURS} / {SPARK}, by processor time", work),
    ]


def state_figure(question: Question, options: StreamingOptions, lake: str, largest: int) -> Figure:
    """Compare the largest state with the bound that `explain("spark")` prints: panes that are open, keys, bytes."""
    query = ours(question, lake, options.cores).compiled()
    # Of the windows that are open at the end of a batch, the oldest began less than a window ago.
    panes = WINDOW_US // (int(question.every.split()[0]) * 1_000_000)
    bound = panes * options.keys * cell_bytes(query, query.program.output)
    return Figure("state / bound that explain prints", largest / bound, MOST_STATE, at_least=False)


def latency_figure(spark: Any, options: StreamingOptions, folder: Path, progress: Progress) -> Figure:
    """Compare small batches with empty ones: the same topology, with nothing to do."""
    progress(f"batches of {SMALL_ROWS:,} rows and of none, in turns")
    spark.conf.set("spark.sql.shuffle.partitions", SHARDS)
    path = folder / "small"
    _small(path, options.keys)
    ran = run_stream(ours(QUESTIONS[0], str(path), 1).to_spark(spark), SMALL_BATCHES)
    counted = ran.durations[SMALL_BATCHES // 2 :]
    full, empty = statistics.median(counted[::2]), statistics.median(counted[1::2])
    name = f"a batch of {SMALL_ROWS:,} rows takes so many times an empty one ({empty:.2f} s)"
    return Figure(name, full / empty, MOST_ADDED, at_least=False)


def _small(folder: Path, keys: int) -> None:
    """Write a file for each batch, every other one without rows; those have their columns all the same."""
    folder.mkdir()
    table = ysb_keyed(YsbKeyed(SMALL_ROWS * SMALL_BATCHES // 2, keys))
    for number in range(SMALL_BATCHES):
        rows = 0 if number % 2 else SMALL_ROWS
        pq.write_table(table.slice(number // 2 * SMALL_ROWS, rows), folder / f"{number:04}.parquet")
