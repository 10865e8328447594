"""Latency, held state and Prometheus text."""

from __future__ import annotations

import math
import re

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from penstock.api.live import open_live
from penstock.runtime.metrics import Latency
from penstock.sources.live_files import Clock

EVENTS = pk.stream("events", {"t": "int64", "k": "string", "v": "int64"}, time="t")


@given(st.lists(st.floats(1e-8, 1e4), min_size=1, max_size=200), st.floats(0.01, 1.0))
def test_a_quantile_is_at_most_a_sixteenth_too_large(values: list[float], share: float) -> None:
    latency = Latency()
    for value in values:
        latency.add(value)
    exact = sorted(values)[max(math.ceil(share * len(values)) - 1, 0)]
    assert exact <= latency.quantile(share) * (1 + 1e-12) <= exact * (1 + 1 / 16) * (1 + 1e-9)
    assert latency.count == len(values) and latency.most == max(values)


def test_extremes_are_counted() -> None:
    latency = Latency()
    for value in (0.0, 1e-300, 1e300):
        latency.add(value)
    assert latency.count == 3 and latency.p99 == 1e300
    assert Latency().p99 == 0 and repr(Latency()) == "Latency(count=0)"


def test_the_latency_of_a_result_is_measured_by_the_clock_of_the_run() -> None:
    now = [0.0]

    def tick() -> float:
        now[0] += 0.25
        return now[0]

    live = open_live(EVENTS.window(10).agg(n=pk.count()), None, None, Clock(tick, lambda seconds: None))
    live.push({"t": 1, "k": "a", "v": 1})
    assert live.metrics.latency.count == 0
    live.push({"t": 12, "k": "a", "v": 1})
    assert live.metrics.latency.count == 1
    assert 0.25 <= live.metrics.latency.most <= 1.0


@pytest.mark.parametrize("window", [pk.tumbling(10), pk.session(3), pk.rows(5)])
def test_held_state_is_measured_by_operator(window: object) -> None:
    query = EVENTS.window(window, by="k").agg(total=pk.sum("v"))
    with query.open() as live:
        assert sum(held.rows for held in live.metrics.held.values()) == 0
        live.push([{"t": t, "k": "abc"[t % 3], "v": t} for t in range(9)])
        held = live.metrics.held
        assert 0 < sum(value.rows for value in held.values()) <= 9
        assert sum(value.bytes for value in held.values()) > 0
        live.finish()
        assert live.metrics.held == {}
    metrics = live.metrics
    del live
    assert metrics.held == {}


def test_prometheus_text_has_every_metric_once_and_no_value_of_a_row() -> None:
    with EVENTS.window(10, by="k").agg(total=pk.sum("v")).open(background=True) as live:
        live.push([{"t": t, "k": "secret", "v": 4711} for t in range(25)])
        live.flush()
        text = live.metrics.prometheus('a "quoted"\nname\\')
        live.ready()
    lines = text.splitlines()
    assert "secret" not in text and "4711" not in text
    sample = re.compile(r'[a-z_]+\{query="a \\"quoted\\"\\nname\\\\"(,[a-z]+="[^"]*")?\} [-+0-9.e]+')
    names = []
    for line in lines:
        if line.startswith("# "):
            continue
        assert sample.fullmatch(line), line
        names.append(line.rsplit(" ", 1)[0])
    assert len(names) == len(set(names))
    declared = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(declared) == len(set(declared)) == 13
    assert 'penstock_rows_read_total{query="a \\"quoted\\"\\nname\\\\"} 25' in lines


def test_counts_compare_without_latency() -> None:
    with EVENTS.window(10).agg(n=pk.count()).open() as live:
        live.push(pa.table({"t": [1, 12], "k": ["a", "b"], "v": [1, 2]}))
        assert live.metrics == pk.Metrics(read=2, accepted=2, emitted=1, batches=1)
