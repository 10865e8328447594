"""What is asked of the streams, as Penstock asks it and as Spark does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import penstock as pk
from benchmarks.on_spark.questions import window_answer
from benchmarks.workloads import VIEW
from penstock.spark.baseline import windowed

OURS, SPARK = "Penstock on Spark", "Spark Structured Streaming"


@dataclass(frozen=True, slots=True)
class Question:
    """Views by campaign in windows of ten seconds; how many times as fast as Spark's own way they must be.

    A batch that counts has so many times `--rows` rows that Spark's own way is at work for seconds, as it is in a query that
    is triggered every ten: what a batch costs whatever is in it must not be what is compared.
    """

    name: str
    every: str
    target: float
    batch: int = 1


QUESTIONS = (
    Question("tumbling 10 s", "10 seconds", 5.0, batch=3),
    Question("sliding 10 s, 10 at a time", "1 seconds", 30.0),
)


def ours(question: Question, path: str, files: int) -> Any:
    """Ask Penstock, whose tasks read the files."""
    events = pk.scan_stream(path, time="ts", name="events", max_files=files)
    every = question.every.replace(" seconds", "s")
    views = events.filter(pk.col("event_type") == VIEW).window("10s", every=every, by="campaign_id")
    return views.agg(total=pk.sum("value"))


def theirs(question: Question, spark: Any, path: str, files: int) -> Any:
    """Ask Spark, whose own reader reads the files."""
    schema = spark.read.parquet(path).schema
    frame = spark.readStream.schema(schema).option("maxFilesPerTrigger", files).parquet(path)
    # Spark's watermarks want a time with a zone; the session's is UTC, in which they are the same numbers.
    views = frame.filter(f"event_type = {VIEW}").withColumn("ts", frame["ts"].cast("timestamp"))
    views = views.withWatermark("ts", "0 seconds")
    return windowed(views, "ts", "10 seconds", question.every, "campaign_id", {"total": "sum(value)"})


def complete(answer: pa.Table, upto: int) -> pa.Table:
    """Keep the windows that both ways have given: Spark's may lag a batch behind."""
    found = window_answer(answer)
    return found.filter(pc.less_equal(found["window_start"], upto))


def last_start(answers: list[pa.Table]) -> int:
    """Tell the last window that all have given; every one must have given some."""
    starts = [pc.max(window_answer(answer)["window_start"]).as_py() for answer in answers]
    return int(min(starts))
