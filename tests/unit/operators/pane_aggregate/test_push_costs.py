"""Costs of a push that do not depend on the machine: Python calls, and arrays that are made anew."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as pk
from penstock.operators.pane_aggregate.stage import WindowStage

STREAM = pk.stream("s", {"t": "int64", "k": "int64", "v": "int64"}, time="t")
QUERIES = {
    "tumbling": STREAM.filter(pk.col("v") > 0).window(1_000, by="k").agg(x=pk.sum("v")),
    "sliding": STREAM.window(1_000, every=10, by="k").agg(x=pk.min("v")),
    "rows": STREAM.filter(pk.col("v") > 0).select("t", "k", double=pk.col("v") * 2),
}
MOST_CALLS = {"tumbling": 36, "sliding": 36, "rows": 54}  # of a push that completes no window


def batch(first: int) -> pa.RecordBatch:
    return pa.record_batch({"t": first + np.arange(4) // 2, "k": np.arange(4), "v": np.arange(4)})


def calls(push: Any, given: pa.RecordBatch) -> int:
    found = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal found
        found += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        push("s", given)
    finally:
        sys.setprofile(before)
    return found


@pytest.mark.parametrize("query", QUERIES)
def test_a_push_that_completes_no_window_makes_few_calls(query: str) -> None:
    with QUERIES[query].open(engine=pk.Engine(threads=1)) as live:
        push = live._session.push
        for first in (0, 100, 2_000):
            push("s", batch(first))
        push("s", batch(2_004))  # small pushes are bound at the second one
        assert calls(push, batch(2_006)) <= MOST_CALLS[query]


def test_windows_that_end_leave_the_kernel_bound() -> None:
    """A pane leaves by writing the arrays in place, so the next push binds nothing anew."""
    with QUERIES["sliding"].open(engine=pk.Engine(threads=1)) as live:
        (stage,) = (stage for stage in live._session._stages.values() if isinstance(stage, WindowStage))
        for first in range(0, 3_000, 10):
            live.push(batch(first))
        bound, table, cursor = stage._bound, stage.workers[0].table, stage.workers[0].sliding
        for first in range(3_000, 3_300, 10):
            assert sum(result.num_rows for result in live.push(batch(first))) == 4
        assert bound is not None and bound is stage._bound
        assert table is not None and table is stage.workers[0].table
        assert cursor is not None and cursor is stage.workers[0].sliding


def test_nulls_are_seen_in_a_column_of_which_only_they_are_read() -> None:
    query = STREAM.window(1_000, by="k").agg(n=pk.count(where=pk.col("v").is_null()))
    with query.open(engine=pk.Engine(threads=1)) as live:
        for first in (0, 10, 20):
            live.push(batch(first))
        rows = batch(30)
        live.push(rows.set_column(2, "v", pa.array([1, None, None, 4])))
        live.push(batch(40))
        (found,) = live.finish()
    assert dict(zip(found["k"].to_pylist(), found["n"].to_pylist(), strict=True)) == {0: 0, 1: 1, 2: 1, 3: 0}
