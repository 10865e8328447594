"""The memory of a task: read from settings, predicted, kept to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as pk
from penstock.api.execute import bind_all
from penstock.spark.planning import planned
from penstock.spark.slices import Piece, in_turn
from penstock.spark.task_memory import LEAST, UNBOUNDED, WORKER, TaskMemory, from_settings
from tests.spark.agree import assert_same
from tests.spark.local import run_locally

ROWS = 40_000


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> pk.Stream:
    """A file in no order, in which one key has nine rows of ten."""
    random = np.random.default_rng(1)
    keys = np.where(random.random(ROWS) < 0.9, 0, random.integers(1, 30, ROWS))
    table = pa.table({"t": random.permutation(ROWS), "k": keys, "v": random.integers(0, 9, ROWS)})
    path = tmp_path_factory.mktemp("lake") / "events.parquet"
    pq.write_table(table, path, row_group_size=5_000)
    return pk.scan(str(path), time="t", name="events")


QUERIES = {
    "rows": lambda s: s.rolling(pk.rows(10), by="k").agg(n=pk.sum("v")),
    "look-back": lambda s: s.rolling(90, by="k").with_columns(m=pk.max("v")),
    "sessions": lambda s: s.window(pk.session(3), by="k").agg(n=pk.count(), m=pk.median("v")),
    "unkeyed signal": lambda s: s.signal("v").rolling(40).mean().to_stream("made"),
    "trend": lambda s: (
        s.signal("v", by="k").rolling(40).mean() - s.signal("v", by="k").rolling(90).mean()
    ).to_stream("made"),
    "as-of": lambda s: s.join_asof(s.filter(pk.col("v") > 5).rename({"v": "w"}), by="k"),
    "first": lambda s: s.window(pk.unbounded(), by="k").agg(f=pk.first("v"), l=pk.last("v")),
}


@pytest.mark.parametrize("name", QUERIES)
def test_tasks_that_spill_give_the_answer_of_collect(events: pk.Stream, name: str) -> None:
    query = QUERIES[name](events)
    expected = query.collect()
    for strategy in ("one", "keys"):
        if strategy == "keys" and name in ("unkeyed signal", "first"):
            continue
        found = run_locally(query, strategy, 2, memory=TaskMemory(200_000))
        assert_same(expected, found, f"{name} in {strategy}")


def test_a_task_is_refused_that_needs_more_than_it_was_given(events: pk.Stream) -> None:
    query = events.window(pk.unbounded(), by="k").agg(m=pk.median("v"))
    with pytest.raises(pk.MemoryLimitError, match="the windows over sorted rows"):
        run_locally(query, "one", 2, memory=TaskMemory(200_000, "memory=", strict=True))
    assert_same(query.collect(), run_locally(query, "one", 2, memory=TaskMemory(200_000)), "not strict")


@pytest.mark.parametrize(
    ("settings", "limit"),
    [
        ({}, UNBOUNDED.limit),
        ({"spark.executor.pyspark.memory": "2g"}, (2 << 30) - WORKER),
        ({"spark.executor.pyspark.memory": "2048"}, (2 << 30) - WORKER),
        ({"spark.executor.memoryOverhead": "4g", "spark.executor.cores": "2"}, (2 << 30) - WORKER),
        (
            {"spark.executor.memoryOverhead": "4g", "spark.executor.cores": "4", "spark.task.cpus": "2"},
            (2 << 30) - WORKER,
        ),
        ({"spark.executor.memoryOverhead": "384m", "spark.executor.cores": "4"}, LEAST),
        ({"spark.executor.memoryOverhead": "much"}, UNBOUNDED.limit),
    ],
)
def test_the_settings_of_a_session_bound_a_task(settings: dict[str, str], limit: int) -> None:
    found = from_settings(settings.get)
    assert found.limit == limit and found.strict == (found.limit != UNBOUNDED.limit)


def test_explain_says_what_a_task_needs(events: pk.Stream) -> None:
    query = QUERIES["rows"](events)
    physical = planned(query.compiled(), bind_all(query, None, {}), "keys", 2)
    text = physical.described(TaskMemory(1_000_000, "memory="))
    assert (
        "the look-back holds up to 20000 rows" in text and "spilled; its budget is 1.0 MB (memory=)" in text
    )
    assert "no operator holds rows" in events.filter(pk.col("v") > 3).explain("spark")


def test_parts_in_turn_are_those_whose_rows_do_not_wait(events: pk.Stream, tmp_path: Path) -> None:
    for number in range(3):
        pq.write_table(pa.table({"t": [2 * number, 2 * number + 1]}), tmp_path / f"{number}.parquet")
    query = pk.scan(str(tmp_path), time="t").rolling(1).agg(n=pk.count())
    (part,) = planned(query.compiled(), bind_all(query, None, {}), "one", 1).parts
    large = replace(part, pieces=tuple(map(_large, part.pieces)))
    assert in_turn(part) and in_turn(large)
    assert not in_turn(replace(large, pieces=large.pieces[::-1]))


def _large(piece: Piece) -> Piece:
    return replace(piece, fragment=replace(piece.fragment, rows=3_000_000))
