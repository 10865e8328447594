"""Rows selected before they are ranked: the same rows leave, whatever the values and windows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import penstock as pk
from penstock.operators.topk import stage

ROWS = 4_000
VALUES = {
    "integers": lambda random: random.integers(-5, 5, ROWS),
    "limits": lambda random: random.choice([-(1 << 63), (1 << 63) - 1, 0], ROWS),
    "floats": lambda random: random.choice([-0.0, 0.0, 1.5, float("inf"), -float("inf")], ROWS),
    "nan": lambda random: random.choice([1.0, float("nan")], ROWS),
    "nulls": lambda random: pa.array(random.random(ROWS), mask=random.random(ROWS) < 0.5),
    "texts": lambda random: pa.array(random.choice(["a", "b", "c"], ROWS)),
}


@pytest.mark.parametrize("ties", ["first", "all"])
@pytest.mark.parametrize("k", [1, 3, 700])
@pytest.mark.parametrize("window", [pk.tumbling("1s"), pk.sliding("2s", "500ms"), pk.unbounded()])
@pytest.mark.parametrize("values", VALUES)
def test_rows_selected_near_the_top_are_those_of_a_whole_sort(values, window, k, ties, monkeypatch):
    random = np.random.default_rng(k)
    times = pa.array(np.sort(random.integers(0, 4_000, ROWS)), pa.timestamp("ms"))
    table = pa.table({"ts": times, "v": VALUES[values](random), "row": np.arange(ROWS)})
    query = pk.from_arrow(table, time="ts").window(window).top_k(k, by="v", ties=ties)
    found = query.collect()
    monkeypatch.setattr(stage, "RANKED_ROWS", 1 << 40)
    assert found.drop("v").equals(query.collect().drop("v"))  # NaN is not equal to itself
    assert found.num_rows >= k
