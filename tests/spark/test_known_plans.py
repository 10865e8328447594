"""Tasks begin with the plans of earlier tasks, which reach other processes and the driver with results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as pk
from penstock.plan.codec import encode
from penstock.runtime.adapt.known_plan import KnownPlan
from penstock.spark.known_plans import PLANS, KnownPlans, known_plans, plans_sent, without_plans
from tests.spark.agree import assert_same

ROWS = 20_000


def events(seed: int) -> pa.Table:
    """Keys that begin close together, and are far apart after the rows that choose the first key table."""
    random = np.random.default_rng(seed)
    keys = random.integers(0, 50, ROWS)
    keys[17_000:] = random.integers(0, 1 << 60, ROWS - 17_000)
    times = pa.array(seed * ROWS + np.arange(ROWS)).cast(pa.timestamp("us"))
    values = pa.array(random.integers(0, 9, ROWS), mask=random.random(ROWS) < 0.01)
    return pa.table({"ts": times, "k": keys, "v": values})


@pytest.fixture(scope="module")
def query(tmp_path_factory: pytest.TempPathFactory) -> pk.Stream:
    folder = tmp_path_factory.mktemp("lake")
    for number in range(4):
        pq.write_table(events(number), folder / f"{number}.parquet")
    stream = pk.scan(str(folder / "*.parquet"), time="ts", name="events")
    return stream.window("10ms", by="k").agg(n=pk.count(), s=pk.sum("v"))


@pytest.mark.parametrize("strategy", ["fragments", "slices"])
def test_tasks_report_their_plans_and_later_queries_begin_with_them(
    spark: Any, query: pk.Stream, strategy: str
) -> None:
    known_plans.cache_clear()
    expected = query.collect()
    assert_same(expected, query.to_spark(spark, strategy=strategy, tasks=4).toArrow(), "nothing known")
    text = encode(query.plan)[0]
    (plan,) = known_plans().of(text).values()
    assert (plan.key_table, plan.nullable) == ("hash", ("v",))
    assert plan.changes > 0
    assert_same(expected, query.to_spark(spark, strategy=strategy, tasks=4).toArrow(), "known")
    (later,) = known_plans().of(text).values()
    assert later.rows > plan.rows
    assert later.changes <= plan.changes + 4  # tasks that began with it changed nothing more
    assert "key table hash, null flags for v" in str(query.explain("spark"))


def test_plans_of_micro_batches_reach_the_driver(spark: Any, tmp_path: Path) -> None:
    known_plans.cache_clear()
    folder = tmp_path / "in"
    folder.mkdir()
    tables = [events(number) for number in range(3)]
    for number, table in enumerate(tables):
        pq.write_table(table, folder / f"{number}.parquet")
    stream = pk.scan_stream(str(folder / "*.parquet"), time="ts", name="events", max_files=1)
    query = stream.window("10ms", by="k").agg(n=pk.count(), s=pk.sum("v"))
    heard = pk.StreamingMetrics()
    spark.streams.addListener(heard)
    frame = query.to_spark(spark, tasks=2)
    writer = (
        frame.writeStream.format("memory")
        .queryName("known")
        .option("checkpointLocation", str(tmp_path / "c"))
    )
    running = writer.trigger(availableNow=True).start()
    try:
        running.awaitTermination()
    finally:
        running.stop()
        spark.streams.removeListener(heard)
    (plan,) = known_plans().of(encode(query.plan)[0]).values()
    assert plan.key_table == "hash"
    assert plan.runs >= 2
    assert "key table hash" in str(query.explain("spark"))
    whole = pa.concat_tables(tables)
    expected = (
        pk.from_arrow(whole, time="ts").window("10ms", by="k").agg(n=pk.count(), s=pk.sum("v")).collect()
    )
    found = spark.table("known").toArrow()
    complete = expected.filter(pa.compute.less(expected["window_end"], whole["ts"][-1]))
    assert_same(
        complete, found.select(complete.column_names).cast(complete.schema), "windows that are complete"
    )


def test_the_plans_of_queries_used_least_are_forgotten() -> None:
    known = KnownPlans(most=2)
    plan = {"views": KnownPlan(rows=1, runs=1)}
    for query in ("a", "b", "a", "c"):
        known.learn(query, plan)
    assert len(known) == 2
    assert known.of("a")
    assert not known.of("b")


def test_the_plan_that_rests_on_more_rows_is_kept() -> None:
    known, other = KnownPlans(), KnownPlans()
    known.learn("a", {"views": KnownPlan(rows=10, runs=1, key_table="hash")})
    known.take(other.learn("a", {"views": KnownPlan(rows=9, runs=1, key_table="dense")}))
    assert known.of("a")["views"].key_table == "hash"
    known.take(other.learn("a", {"views": KnownPlan(rows=11, runs=1, key_table="dense")}))
    assert known.of("a")["views"].key_table == "dense"


def test_payloads_of_plans_are_taken_out() -> None:
    known_plans.cache_clear()
    found = KnownPlans().learn("a", {"views": KnownPlan(rows=10, runs=1, key_table="hash")})
    payloads = [*plans_sent(found, 0, 1), *plans_sent("", 0, 1)]
    assert [payload.name for payload in payloads] == [PLANS]
    assert list(without_plans(payloads)) == []
    assert known_plans().of("a")["views"].key_table == "hash"


def test_a_damaged_report_is_ignored() -> None:
    known = KnownPlans()
    for text in ("", "3", '["a"]', '["a", "no json"]', '["a", "{\\"views\\": 3}"]'):
        known.take(text)
    assert len(known) == 0
