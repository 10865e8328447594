"""What an engine assumes: pinned choices of aggregations, and how a live query shows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as pk
from penstock.errors import EngineError
from penstock.operators.pane_aggregate.stage import WindowStage

STREAM = pk.stream("rows", {"t": "int64", "k": "int64", "v": "int64"}, time="t")
QUERY = (
    STREAM.filter((pk.col("v") > 2) & (pk.col("k") != 5))
    .window(1_000, by="k")
    .agg(s=pk.sum("v"), n=pk.count("v"))
)
ROWS = 500


def batch(number: int) -> pa.RecordBatch:
    rng = np.random.default_rng(number)
    times = number * 900 + np.sort(rng.integers(0, 900, ROWS))
    return pa.record_batch({"t": times, "k": rng.integers(0, 30, ROWS), "v": rng.integers(-5, 50, ROWS)})


ASSUMED: dict[str, tuple[Mapping[str, Any], str]] = {
    "a hash table": ({"key table": "hash"}, "key table: hash"),
    "wide sums": ({"sums": "128 bits"}, "128-bit sums"),
    "null flags": ({"null flags": "all"}, "null flags for k, v"),
    "an order": ({"filter order": [[1], [0]]}, "filter order: 1, then 0"),
    "one table for all": ({"key table shared": "partitioned"}, "key table shared: partitioned"),
    "atomic operations": ({"key table shared": "shared"}, "key table shared: shared"),
}


@pytest.mark.parametrize("name", ASSUMED)
def test_what_is_assumed_runs_and_changes_no_answer(name: str) -> None:
    assume, shown = ASSUMED[name]
    engine = pk.Engine(threads=2, task_bytes=512, assume=assume)
    with QUERY.open(engine=engine) as live:
        made = [out for number in range(3) for out in live.push(batch(number))]
        plan = live.explain()
        made += live.finish()
    assert shown in plan
    table = pa.Table.from_batches([batch(number) for number in range(3)])
    order = [("window_start", "ascending"), ("k", "ascending")]
    wanted = QUERY.collect(rows=table, engine=pk.Engine(threads=1, backend="interpret"))
    assert pa.Table.from_batches(made).sort_by(order) == wanted.sort_by(order)


def test_floats_are_never_shared() -> None:
    query = STREAM.window(1_000, by="k").agg(s=pk.std("v"))
    engine = pk.Engine(threads=2, task_bytes=512, assume={"key table shared": "shared"})
    with query.open(engine=engine) as live:
        live.push(batch(0))
        assert "shared: shared" not in live.explain()


def test_an_order_of_other_conjuncts_is_left_alone() -> None:
    with QUERY.open(engine=pk.Engine(assume={"filter order": [[2], [0, 1]]})) as live:
        live.push(batch(0))
        assert "filter order" not in live.explain()


def test_a_pinned_choice_gives_way_to_rows_only() -> None:
    session = QUERY.compiled().open(pk.Engine(threads=1, assume={"key table": "hash"}), bounded=False)
    (stage,) = (stage for stage in session._stages.values() if isinstance(stage, WindowStage))
    assert stage.adaptation.pinned == {"key table"}


def test_a_live_query_explains_what_has_changed() -> None:
    with QUERY.open(engine=pk.Engine(threads=1)) as live:
        live.push(batch(0))
        assert "adaptations:\n  none\nsensors" in live.explain()
        live.push([{"t": 1_900, "k": 1 << 60, "v": 5}])
        assert "key table dense → hash" in live.explain()
        assert "key table: hash" in live.explain()


@pytest.mark.parametrize(
    "assume",
    [
        {"key table": "tree"},
        {"colour": "blue"},
        {"filter order": "1, 0"},
        {"filter order": [[0], [0]]},
        {"filter order": []},
        {"filter order": [[1]]},
        {"sums": 64},
        ["key table"],
        {3: "hash"},
    ],
    ids=repr,
)
def test_unknown_assumptions_are_refused_by_name(assume: Any) -> None:
    with pytest.raises(EngineError, match="assume"):
        pk.Engine(assume=assume)
