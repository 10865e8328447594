"""The model of object stores: each limit bounds a job when it is the tightest."""

from __future__ import annotations

import pytest

from benchmarks.scale.model import Model
from benchmarks.scale.object_store import REQUESTS, Store, StoreOutcome, simulate_store
from benchmarks.scale.plan import cut_by_time
from benchmarks.scale.simulate import Lake, fragments

MODEL = Model(0.0, 1e-7, 0.0, 0.0, 0.0)


def _run(store: Store, row_bytes: float = 1.0, tasks: int = 400) -> StoreOutcome:
    parts = fragments(Lake(row_groups=2_000, rows=100_000))
    return simulate_store(parts, cut_by_time, MODEL, store, tasks, executors=25, cores=4, row_bytes=row_bytes)


def test_a_fast_store_costs_a_latency_for_each_round_of_tasks() -> None:
    found = _run(Store(latency=0.001, connection_rate=1e12, node_rate=1e12, requests=1e12))
    assert found.bound == "computing" and found.requests == 2_000 * REQUESTS
    assert found.seconds == pytest.approx(found.at_hand, rel=0.1)


@pytest.mark.parametrize(
    ("store", "bound"),
    [
        (Store(latency=10.0, connections=1), "reading"),
        (Store(connection_rate=1e3, connections=1), "reading"),
        (Store(node_rate=1e3), "reading"),
        (Store(requests=1.0, prefixes=1), "requests"),
    ],
)
def test_the_tightest_limit_bounds_a_job(store: Store, bound: str) -> None:
    found = _run(store)
    assert found.bound == bound and found.seconds > 10 * found.at_hand


def test_the_time_of_requests_is_their_number_over_the_rate() -> None:
    found = _run(Store(requests=100.0, prefixes=2))
    assert found.seconds == pytest.approx(found.requests / 200)


def test_fewer_bytes_of_a_row_are_read_sooner() -> None:
    slow = Store(node_rate=1e6)
    assert _run(slow, row_bytes=2.0).seconds == pytest.approx(2 * _run(slow).seconds, rel=0.05)
