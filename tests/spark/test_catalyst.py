"""What Spark's optimiser may ask of a query: fewer columns, fewer rows, the same plan twice."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import penstock as pk
from penstock.spark import source
from penstock.spark.predicates import penstock_filter
from tests.spark.agree import assert_same
from tests.spark.lakes import events, lake

PUSHED = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(lake(tmp_path_factory.mktemp("catalyst") / "lake", events()))


def _windows(folder: str) -> pk.Stream:
    scanned = pk.scan(folder, time="ts", name="events")
    return scanned.window("10s", by="k").agg(t=pk.sum("v"), n=pk.count())


def test_only_the_columns_asked_for_are_computed(spark: Any, folder: str) -> None:
    query = _windows(folder)
    frame = query.to_spark(spark, columns=["n", "k"])
    assert frame.columns == ["n", "k"]
    assert_same(query.collect().select(["n", "k"]), frame.toArrow(), "two columns")
    assert "v" not in query.select("n", "k").compiled().columns["events"]


@pytest.mark.parametrize("columns", ["n", []])
def test_columns_are_a_list_of_names(spark: Any, folder: str, columns: Any) -> None:
    with pytest.raises(pk.EngineError, match="columns= takes a list"):
        _windows(folder).to_spark(spark, columns=columns)
    with pytest.raises(pk.UnknownColumnError):
        _windows(folder).to_spark(spark, columns=["nobody"])


def test_filters_on_keys_and_bounds_reach_the_scan(
    spark: Any, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = _windows(folder)
    source.register(spark)
    whole = query.collect()
    key, bound = 1, whole["window_start"][whole.num_rows // 2].as_py()
    previous = spark.conf.get(PUSHED, "false")
    spark.conf.set(PUSHED, "true")
    try:
        read = (
            spark.read.format("penstock")
            .option("query", query.to_json())
            .option("filters", "pushed")
            .load(folder)
        )
        found = read.filter(read.k == key).filter(read.window_start >= bound).toArrow()
    finally:
        spark.conf.set(PUSHED, previous)
    expected = query.filter(pk.col("k") == key, pk.col("window_start") >= bound).collect()
    assert expected.num_rows and expected.num_rows < whole.num_rows
    assert_same(expected, found, "filtered")


def test_a_pushed_filter_narrows_the_query_and_stays_with_spark(folder: str) -> None:
    query = _windows(folder)
    options = {"query": query.to_json(), "path": folder, "filters": "pushed"}
    reader = source.PenstockSource(options).reader(None)  # type: ignore[arg-type]
    assert isinstance(reader, source.FilteringReader)
    given = [EqualTo(("k",), 1), GreaterThan(("t",), 0), EqualTo(("no such column",), 1), Unknown(("k",), 1)]
    assert reader.pushFilters(given) == given
    parts = reader.partitions()
    narrowed = reader.work.task.given.compiled()
    assert "k" in str(narrowed.predicates["events"])  # rows of other keys are not read
    made = [batch for part in parts for batch in reader.read(part)]
    expected = query.filter(pk.col("k") == 1, pk.col("t") > 0).collect()
    assert sum(batch.num_rows for batch in made) == expected.num_rows


class _Filter:
    def __init__(self, attribute: tuple[str, ...], value: object) -> None:
        self.attribute, self.value = attribute, value


class EqualTo(_Filter):
    pass


class GreaterThan(_Filter):
    pass


class In(_Filter):
    pass


class Unknown(_Filter):
    pass


SCHEMA = pa.schema({"i": pa.int32(), "f": pa.float64(), "s": pa.string(), "b": pa.bool_()})


@pytest.mark.parametrize(
    ("given", "pushed"),
    [
        (EqualTo(("i",), 3), True),
        (EqualTo(("i",), 1 << 40), False),
        (EqualTo(("i",), None), False),
        (EqualTo(("i",), True), False),
        (EqualTo(("i",), 3.0), False),
        (EqualTo(("f",), 3.0), False),
        (GreaterThan(("s",), "a"), True),
        (EqualTo(("s", "field"), "a"), False),
        (In(("i",), [1, 2]), True),
        (In(("i",), [1, None]), False),
        (In(("i",), []), False),
        (EqualTo(("b",), True), True),
    ],
)
def test_only_filters_that_both_evaluate_alike_are_pushed(given: _Filter, pushed: bool) -> None:
    assert (penstock_filter(given, SCHEMA) is not None) == pushed


def test_results_may_be_cached_checkpointed_and_joined(spark: Any, folder: str) -> None:
    query = _windows(folder)
    frame = query.to_spark(spark)
    cached = frame.cache()
    assert cached.count() == cached.count() == query.collect().num_rows
    kept = frame.localCheckpoint()
    joined = kept.join(frame, ["k", "window_start"])
    assert joined.count() == query.collect().num_rows - query.filter(pk.col("k").is_null()).collect().num_rows
    cached.unpersist()


def _estimate(frame: Any) -> int:
    """Return the size that Catalyst takes a DataFrame to have."""
    return int(str(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))


def test_catalyst_takes_a_result_to_be_as_large_as_it_may_be(spark: Any, folder: str) -> None:
    """A row for each task would be a small table, which a join would broadcast, however many rows a task returns."""
    rows = pk.scan(folder, time="ts", name="events")
    few = rows.window("100s").agg(n=pk.count()).to_spark(spark, strategy="slices", tasks=2)
    many = rows.select("k", "v").to_spark(spark, tasks=2)
    assert many.count() == 3_000
    assert _estimate(many) >= 3_000 * 16
    assert _estimate(few) < 1_000
    small = int(1e4)
    previous = spark.conf.get("spark.sql.autoBroadcastJoinThreshold")
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", small)
    try:
        other = spark.range(10_000_000).withColumnRenamed("id", "v")
        assert "BroadcastHashJoin" not in _physical(other.join(many, "v"))
        assert "BroadcastHashJoin" in _physical(other.join(few.withColumnRenamed("n", "v"), "v"))
    finally:
        spark.conf.set("spark.sql.autoBroadcastJoinThreshold", previous)


def _physical(frame: Any) -> str:
    return str(frame._jdf.queryExecution().sparkPlan().toString())


def test_a_query_over_the_result_of_another_is_one_query(spark: Any, folder: str) -> None:
    def rest(rows: pk.Stream) -> pk.Stream:
        return rows.window("10s", by="k").agg(t=pk.sum("d"), n=pk.count())

    rows = pk.scan(folder, time="ts", name="events").filter(pk.col("v") > 0).with_columns(d=pk.col("v") * 2)
    expected = rest(rows).collect()
    first = rows.to_spark(spark)
    both = rest(pk.from_spark(first, time="ts", name="events")).to_spark(spark, tasks=2)
    assert_same(expected, both.toArrow(), "fused")
    assert _physical(both).count("MapInArrow") == 1
    # The order of rows of equal time is another in a DataFrame, and the rows of a cached one are at hand.
    firsts = pk.from_spark(first, time="ts").window("10s", by="k").agg(f=pk.first("d"))
    assert "Exchange" in _physical(firsts.to_spark(spark, tasks=2))
    cached = first.cache()
    again = rest(pk.from_spark(cached, time="ts", name="events")).to_spark(spark, tasks=2)
    assert_same(expected, again.toArrow(), "over the cache")
    assert _physical(again).count("InMemory") > 0
    cached.unpersist()


@pytest.mark.campaign  # the settings of a session cost a job each
def test_adaptive_execution_and_speculation_change_nothing(spark: Any, folder: str) -> None:
    query = pk.scan(folder, time="ts", sequence="n", name="events").window(pk.session("300ms"), by="k")
    sessions = query.agg(n=pk.count(), t=pk.sum("v"))
    expected = sessions.collect()
    for adaptive in ("true", "false"):
        spark.conf.set("spark.sql.adaptive.enabled", adaptive)
        for strategy in ("slices", "keys"):
            frame = sessions.to_spark(spark, strategy=strategy, tasks=3)
            assert_same(expected, frame.toArrow(), f"{strategy}, adaptive: {adaptive}")
            assert frame.groupBy("k").count().count() == 21
    spark.conf.set("spark.sql.adaptive.enabled", "true")
