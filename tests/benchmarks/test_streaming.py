"""The parts of the streaming benchmark that need no Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.figures import Case
from benchmarks.measure import Outcome
from benchmarks.on_spark.lake import write_lake
from benchmarks.streaming.feed import write_feed
from benchmarks.streaming.kafka_case import BARE, QUERY, kafka_figures
from benchmarks.streaming.processors import tree_seconds
from benchmarks.streaming.questions import QUESTIONS, complete, last_start, ours
from benchmarks.streaming.suite import StreamingOptions, speed_figures, state_figure
from benchmarks.workloads import START_US, STEP_US, YsbKeyed
from penstock.sources.live_files import live_files


def test_work_of_processors_never_runs_back_and_counts_this_process() -> None:
    before = tree_seconds()
    begin = sum(number * number for number in range(2_000_000))
    assert begin
    assert before > 0
    assert tree_seconds() >= before


def test_only_windows_that_both_have_given_are_compared() -> None:
    starts = [START_US, START_US + 10_000_000]
    table = pa.table(
        {"window_start": pa.array(starts).cast(pa.timestamp("us")), "campaign_id": [1, 2], "total": [3, 4]}
    )
    upto = last_start([table, table.slice(0, 1)])
    assert upto == START_US
    assert complete(table, upto).num_rows == 1


def test_the_bound_of_the_state_is_that_of_explain(tmp_path: Path) -> None:
    lake = write_lake(tmp_path / "lake", YsbKeyed(100, 10))
    options = StreamingOptions(100, 10, 1)
    text = str(ours(QUESTIONS[1], lake, 1).explain("spark"))
    assert "panes of open windows x keys x 41 bytes" in text
    assert "what panes hold is sent" in text
    figure = state_figure(QUESTIONS[1], options, lake, 10 * 10 * 41)
    assert figure.value == 1.0
    assert figure.met


def test_an_answer_that_differs_gives_no_figure() -> None:
    mine = Outcome("Penstock on Spark", "penstock", 2, seconds=[1.0], cpu_seconds=[1.0], agrees=True)
    other = Outcome("Spark Structured Streaming", "peer", 2, seconds=[6.0], cpu_seconds=[4.0], agrees=False)
    assert [figure.value for figure in speed_figures(QUESTIONS[0], [mine, other])] == [None, None]
    other.agrees = True
    assert [figure.value for figure in speed_figures(QUESTIONS[0], [mine, other])] == [6.0, 4.0]


def test_files_of_a_feed_cover_as_much_time_each_and_are_read_in_that_order(tmp_path: Path) -> None:
    path = write_feed(tmp_path, 10, [3, 5, 2])
    found = live_files(path, None, None).listed()
    times = [pq.read_table(value.path)["ts"].cast(pa.int64()).to_pylist() for value in found]
    assert [len(time) for time in times] == [3, 5, 2]
    steps = [[(time - START_US) // STEP_US for time in tick] for tick in times]
    assert steps == [[0, 1, 2], [5, 6, 7, 8, 9], [10, 12]]
    assert [value for file in times for value in file] == [
        START_US + STEP_US * step for file in steps for step in file
    ]


def test_of_kafka_most_of_the_consumers_speed_or_two_million_rows_are_asked_for() -> None:
    mine = Outcome(QUERY, "penstock", 1, seconds=[2.0], cpu_seconds=[2.0], agrees=True)
    bare = Outcome(BARE, "peer", 1, seconds=[1.0], cpu_seconds=[1.0], agrees=True)
    slow, fast = (kafka_figures(Case("", rows, 0, (mine, bare))) for rows in (1_000_000, 5_000_000))
    assert [figure.met for figure in slow] == [False, None, None]
    assert [figure.met for figure in fast] == [None, None, True]
