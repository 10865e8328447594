"""Shards log once that rows come too late, unless something was said about late rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import penstock as pk
from penstock.plan.schema import sources_of
from penstock.spark.streaming.late_and_malformed import log_late
from tests.spark.streaming.local import LocalStream


def logged(query: Any) -> LocalStream:
    """Run two batches with late rows as a worker of Spark does."""
    running = LocalStream(query, 1)
    for _ in range(2):
        running.batch([pa.table({"t": [100, 1], "k": [1, 1]})])
        shard = running.shard
        log_late(shard.compiled.plan, running.steps[-1].counts["late"], shard.query.text)
    return running


def views(name: str, **more: Any) -> Any:
    source = pk.stream(name, {"t": "int64", "k": "int64"}, time="t", **more)
    return source.window(10, by="k").agg(n=pk.count())


def test_late_rows_are_logged_once_with_the_stream_and_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    running = logged(views("disordered"))
    assert running.metrics.late == 1
    logged(views("disordered"))
    (record,) = caplog.records
    assert "'disordered'" in record.getMessage()
    assert "lateness=" in record.getMessage() and "late_to=" in record.getMessage()


def test_nothing_is_logged_where_lateness_is_given(caplog: pytest.LogCaptureFixture) -> None:
    query = views("given", lateness=0)
    assert all(source.edges.lateness_given for source in sources_of(query.plan))
    assert logged(query).metrics.late == 1
    assert caplog.records == []
