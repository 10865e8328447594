"""Nexmark on Spark: batch over Parquet and streaming over its files give the answers of this process."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from benchmarks.answers import agree, normalise
from benchmarks.nexmark.generator import Nexmark, generate
from benchmarks.nexmark.queries import QUERIES
from benchmarks.nexmark.spark import ours, streamed, write
from benchmarks.nexmark.suite import spark_times

EVENTS = generate(Nexmark(events=40_000, rate=1_000))
OPEN_SECONDS = 10
CAMPAIGN = pytest.mark.campaign  # `make spark`


def answer(name: str, table: pa.Table) -> pa.Table:
    return normalise(QUERIES[name].answer(spark_times(table)))


def expected(name: str) -> pa.Table:
    query = QUERIES[name]
    return answer(name, query.declared("python").collect(**{s: EVENTS[s] for s in query.streams}))


def files(name: str, folder: Path) -> dict[str, str]:
    return write({stream: EVENTS[stream] for stream in QUERIES[name].streams}, str(folder), name)


CASES = [("q5", "sql"), *(pytest.param(name, "sql", marks=CAMPAIGN) for name in ("q1", "q2", "q7", "q8"))]


@pytest.mark.parametrize(("name", "form"), CASES)
def test_batch_gives_the_answer_of_this_process(spark: Any, name: str, form: str, tmp_path: Path) -> None:
    assert agree(answer(name, ours(QUERIES[name], form, spark, files(name, tmp_path))), expected(name))


@pytest.mark.parametrize(("name", "form"), [pytest.param("q5", "sql", marks=CAMPAIGN), ("q7", "python")])
def test_streams_give_the_windows_that_the_watermark_has_passed(
    spark: Any, name: str, form: str, tmp_path: Path
) -> None:
    found = streamed(QUERIES[name], form, spark, files(name, tmp_path / "in"), tmp_path / "checkpoint")
    last = pc.max(EVENTS["bid"]["ts"]).as_py()
    closed = expected(name)
    until = pc.add(closed["starttime"], pa.scalar(OPEN_SECONDS * 10**6, pa.duration("us")))
    closed = closed.filter(pc.less_equal(until, pa.scalar(last, pa.timestamp("us"))))
    assert agree(answer(name, found), closed)
    assert closed.num_rows > 2
