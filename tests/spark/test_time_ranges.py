"""Rows shuffled by time: queries without keys in common over files in any order, and over DataFrames, run in several tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as pk
from penstock.physical.choose_strategy import Halo
from penstock.plan.schema import sources_of
from penstock.spark.planning import planned
from penstock.spark.slices import Part
from penstock.spark.time_ranges import TimeRanges, time_ranges, times_in_files
from tests.spark.agree import assert_same
from tests.spark.lakes import events, lake
from tests.spark.local import run_locally

TABLE = events()


def queries(stream: Any) -> dict[str, Any]:
    """Queries whose results reach a known length of time, and have no keys."""
    few = stream.filter(pk.col("v") > 300)
    return {
        "median": stream.window("2s").agg(m=pk.median("x"), n=pk.count()),
        "attached": stream.window("2s").with_columns(t=pk.sum("v")).select("n", "t"),
        "look-back": stream.rolling("2s").agg(t=pk.sum("v"), c=pk.count()),
        "trend": (stream.signal("v").rolling("1s").mean() - stream.signal("v").rolling("2s").mean()).to_stream(),
        "top": stream.window("2s", by="k").agg(t=pk.sum("v")).top_k(2, by="t", ties="all"),
        "join, then windows": stream.join(few, on="k", window="1s").window("2s").agg(c=pk.count()),
        "by conditions": stream.filter(pk.col("v") > 400)
        .join(few, window="1s", where=pk.left("v") > pk.right("v"))
        .select("n", "n_right"),
        "band": stream.join_rolling(few, within=("-2s", "1s")).agg(t=pk.sum("v"), c=pk.count()),
        "as of": stream.join_asof(few, tolerance="2s", direction="nearest").select("n", "v_right"),
    }  # fmt: skip


NAMES = tuple(queries(pk.stream("events", TABLE.schema, time="ts", sequence="n")))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = tmp_path_factory.mktemp("times")
    return lake(path / "lake", TABLE, files=3, shuffled=True)


def in_process(name: str) -> Any:
    return queries(pk.from_arrow(TABLE, time="ts", sequence="n", name="events"))[name].collect()


def scanned(folder: str, name: str) -> Any:
    return queries(pk.scan(folder, time="ts", sequence="n", name="events"))[name]


@pytest.mark.parametrize("name", NAMES)
def test_they_are_shuffled_by_time_and_give_the_one_answer(
    folder: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.spark.planning.LEAST_ROWS_PER_TASK", 100)
    query = scanned(folder, name)
    assert planned(query.compiled(), query.data, None, 4).choice.strategy == "times"
    for seed in range(3):  # seeds in which several shards come to one task
        assert_same(in_process(name), run_locally(query, "times", 5, seed), name)


SLICE = ("trend", "join, then windows")


@pytest.mark.parametrize(
    "name", [name if name in SLICE else pytest.param(name, marks=pytest.mark.campaign) for name in NAMES]
)
def test_spark_shuffles_files_and_data_frames_by_time(spark: Any, folder: str, name: str) -> None:
    over_files = scanned(folder, name).to_spark(spark, strategy="times", tasks=3)
    assert over_files.rdd.getNumPartitions() == 3
    assert_same(in_process(name), over_files.toArrow(), f"{name} over files")
    frame = pk.from_spark(spark.read.parquet(folder), time="ts", sequence="n", name="events")
    shuffled = queries(frame)[name].to_spark(spark, tasks=3)
    assert shuffled.rdd.getNumPartitions() == 3
    assert_same(in_process(name), shuffled.toArrow(), f"{name} over a DataFrame")


def test_ranges_hold_about_equally_many_rows(folder: str) -> None:
    """Times are dense at the end: equal lengths would not do."""
    query = scanned(folder, "look-back")
    pieces = planned(query.compiled(), query.data, "one", 1).pieces
    (source,) = sources_of(query.plan)
    ranges = time_ranges(Halo(10, 0), times_in_files(pieces, {"events": source}), 4)
    times = TABLE["ts"].combine_chunks().cast("int64").to_numpy()
    shares = np.histogram(times, [-np.inf, *ranges.cuts, np.inf])[0] / len(times)
    assert ranges.shards == 4
    assert max(shares) < 0.35


def test_a_long_reach_makes_fewer_ranges() -> None:
    times = [np.arange(1_000)]
    assert time_ranges(Halo(100, 0), times, 16).shards == 4
    assert time_ranges(Halo(900, 0), times, 16).shards == 1
    assert time_ranges(Halo(0, 0), [], 16).shards == 1


def test_results_outside_the_range_of_a_task_are_left_out() -> None:
    ranges = TimeRanges((10, 20), 5, 5)
    assert [ranges.part(label) for label in ranges.labels] == [
        Part((), None, 10),
        Part((), 10, 20),
        Part((), 20, None),
    ]
