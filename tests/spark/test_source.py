"""`spark.read.format("penstock")`, and what is refused before a job starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as pk
from penstock.spark.source import PenstockSource
from penstock.spark.streaming.backfill import BackfillSource
from penstock.spark.streaming.files import FileSource
from penstock.spark.streaming.kafka import KafkaSource
from tests.spark.agree import assert_same
from tests.spark.lakes import events, lake

TABLE = events()
EVENTS = pk.stream("events", TABLE.schema, time="ts", sequence="n")
QUERY = EVENTS.filter(pk.col("v") > 0).window("10s", every="2s", by="k").agg(t=pk.sum("v"), n=pk.count())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return lake(tmp_path_factory.mktemp("source") / "lake", TABLE)


def test_a_query_and_paths_as_options_make_a_dataframe(spark: Any, folder: str) -> None:
    expected = QUERY.collect(TABLE)
    plain = spark.read.format("penstock").option("query", QUERY.to_json()).load(f"{folder}/*.parquet")
    assert [field.nullable for field in plain.schema.fields] == [False, False, True, True, True]
    assert_same(expected, plain.toArrow(), "a glob")
    cut = spark.read.format("penstock").option("query", QUERY.to_json())
    cut = (
        cut.option("paths", json.dumps({"events": [folder]})).option("strategy", "slices").option("tasks", 3)
    )
    frame = cut.load()
    assert frame.rdd.getNumPartitions() == 3
    assert_same(expected, frame.toArrow(), "slices")


def source(**options: str) -> PenstockSource:
    return PenstockSource(options)


def test_what_needs_a_shuffle_runs_in_one_task(folder: str) -> None:
    query = EVENTS.window(pk.session("200ms"), by="k").agg(n=pk.count())
    reader = source(query=query.to_json(), path=folder, tasks="4").reader(None)
    assert len(reader.partitions()) == 1
    results = list(reader.read(reader.partitions()[0]))
    assert_same(query.collect(TABLE), pa.Table.from_batches(results), "one task")


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({}, pk.PlanError, "'query' is missing"),
        ({"query": "{}"}, pk.PlanError, "not a plan"),
        ({"query": QUERY.to_json()}, pk.BindingError, "no paths"),
        ({"query": QUERY.to_json(), "path": "nowhere/*.parquet"}, pk.SourceError, "nowhere"),
        ({"query": QUERY.to_json(), "paths": '{"others": "x"}'}, pk.BindingError, "'events'"),
        ({"query": QUERY.to_json(), "path": "x", "strategy": "keys"}, pk.EngineError, "to_spark"),
        ({"query": "[" * 9_999}, pk.PlanError, "not a plan"),
        ({"query": QUERY.to_json(), "path": "x", "strategy": ""}, pk.EngineError, "'slices' and 'one'"),
        ({"query": QUERY.to_json(), "path": "x", "format": "xml"}, pk.SourceError, "no format 'xml'"),
        ({"query": QUERY.to_json(), "path": "x", "task": "3"}, pk.EngineError, "no option 'task'; there are"),
        *(
            ({"query": QUERY.to_json(), "path": "x", "tasks": tasks}, pk.EngineError, "whole number from 1")
            for tasks in ("many", "3.5", "", "0", "-1", "9" * 30, "\N{ARABIC-INDIC DIGIT THREE}")
        ),
    ],
)
def test_wrong_options_are_refused_before_a_job_starts(
    options: dict[str, str], error: type[Exception], words: str, folder: str
) -> None:
    given = {**options, "path": folder} if options.get("path") == "x" else options
    with pytest.raises(error, match=words):
        source(**given).reader(None)


STREAMING = {
    "nothing": {},
    "no JSON": {"scatter": "x", "stream": "events", "identity": "{}"},
    "another shape": {"scatter": "[]", "stream": "events", "identity": "{}"},
    "no such stream": {
        "scatter": '{"senders": {}, "labels": [], "fold": null}',
        "stream": "events", "identity": "{}", "files": "{}", "secret": "{}", "tasks": "1",
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", [FileSource, KafkaSource, BackfillSource])
@pytest.mark.parametrize("case", STREAMING)
def test_sources_of_streams_say_that_they_are_not_for_users(kind: Any, case: str) -> None:
    with pytest.raises(pk.PlanError, match=r"query\.to_spark\(spark\)"):
        kind(STREAMING[case]).streamReader(None)


def test_a_file_without_a_column_gives_nulls_and_one_of_another_type_is_named(
    tmp_path: Path, spark: Any
) -> None:
    pq.write_table(TABLE, tmp_path / "a.parquet")
    pq.write_table(TABLE.drop_columns(["v"]), tmp_path / "b.parquet")
    query = pk.scan(str(tmp_path), time="ts").window("10s").agg(t=pk.sum("v"))
    assert_same(query.collect(), query.to_spark(spark).toArrow(), "nulls")
    texts = TABLE.drop_columns(["v"]).append_column("v", TABLE["s"])
    pq.write_table(texts, tmp_path / "c.parquet")
    with pytest.raises(pk.SchemaMismatchError, match=r"'v'.*c\.parquet.*string"):
        source(query=QUERY.to_json(), path=str(tmp_path)).reader(None)
    with pytest.raises(pk.SchemaMismatchError, match=r"'v'.*c\.parquet.*string"):
        pk.scan(str(tmp_path), time="ts").window("10s").agg(t=pk.sum("v")).to_spark(spark)


def test_columns_in_another_order_and_further_ones_are_read(tmp_path: Path, spark: Any) -> None:
    half = TABLE.num_rows // 2
    pq.write_table(TABLE.slice(0, half), tmp_path / "a.parquet")
    turned = TABLE.slice(half).select(TABLE.column_names[::-1]).append_column("more", TABLE.slice(half)["v"])
    pq.write_table(turned, tmp_path / "b.parquet")
    pq.write_table(TABLE.slice(0, 0), tmp_path / "c.parquet")
    query = pk.scan(str(tmp_path), time="ts").window("10s", by="k").agg(t=pk.sum("v"))
    assert_same(
        query.collect(), query.to_spark(spark, strategy="fragments", tasks=2).toArrow(), "mixed files"
    )


def test_only_needed_columns_and_row_groups_are_read(folder: str) -> None:
    """The plan names columns, and files are asked for those alone."""
    query = pk.scan(folder, time="ts").filter(pk.col("n") < 100).window("10s").agg(t=pk.sum("v"))
    compiled = query.compiled()
    assert compiled.columns["stream_1"] == ("ts", "n", "v")
    assert "stream_1" in compiled.predicates
