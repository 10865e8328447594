"""Calls of an open query: by several threads, from within each other, refused, and failed halfway."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import penstock as pk

SCHEMA = {"t": "int64", "v": "int64"}
WRONG = pa.record_batch({"t": ["one"], "v": [1]})


def rows(*times: int) -> pa.RecordBatch:
    return pa.record_batch({"t": list(times), "v": [1] * len(times)})


def totals(batches: list[pa.RecordBatch]) -> list[int]:
    return [total for batch in batches for total in batch.column("total").to_pylist()]


def windows(events: pk.Stream) -> pk.Stream:
    return events.window(10).agg(total=pk.sum("v"))


def test_threads_may_share_an_open_query() -> None:
    live = windows(pk.stream("events", SCHEMA, time="t", lateness=1_000)).open()
    found: list[int] = []

    def work() -> None:
        for time in range(100):
            found.extend(totals(live.push(rows(time))))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found + totals(live.finish()) == [40] * 10


def test_a_push_that_is_refused_before_it_changes_anything_leaves_the_query_open() -> None:
    live = windows(pk.stream("events", SCHEMA, time="t")).open()
    live.push(rows(1, 2))
    with pytest.raises(pk.PenstockError):
        live.push(WRONG)
    with pytest.raises(pk.BindingError):
        live.push(others=rows(3))
    assert totals(live.push(rows(3, 12))) == [3]
    assert totals(live.finish()) == [1]


def test_results_of_a_history_are_not_lost_with_a_push_that_is_refused() -> None:
    history = pk.from_arrow(pa.Table.from_batches([rows(1, 2, 12)]), time="t", name="events")
    live = windows(history.then(pk.stream("events", SCHEMA, time="t"), at=20)).open()
    with pytest.raises(pk.PenstockError):
        live.push(WRONG)
    assert totals(live.push(rows(25, 31))) == [2, 1, 1]


def test_a_push_of_two_streams_whose_second_is_refused_has_failed_halfway() -> None:
    left, right = (pk.stream(name, SCHEMA, time="t") for name in ("left", "right"))
    live = windows(left.union(right)).open()
    with pytest.raises(pk.PenstockError):
        live.push(left=rows(1), right=WRONG)
    refused(live, live.finish)


def test_a_function_of_late_rows_that_fails_ends_the_query_as_results_are_lost() -> None:
    def fail(late: pa.RecordBatch) -> None:
        raise RuntimeError("no room for late rows")

    events = pk.from_arrow(rows(1), time="t", name="events", late_to=fail)
    live = windows(events).open()
    live.push(rows(1, 12))
    with pytest.raises(RuntimeError, match="no room"):
        live.push(rows(2, 25))
    refused(live, lambda: live.push(rows(30)))


def test_a_call_from_within_a_call_is_refused_and_says_so() -> None:
    errors: list[str] = []

    def nested(late: pa.RecordBatch) -> None:
        with pytest.raises(pk.BindingError) as caught:
            live.push(rows(40))
        errors.append(str(caught.value))

    events = pk.from_arrow(rows(1), time="t", name="events", late_to=nested)
    live = windows(events).open()
    live.push(rows(1, 12))
    assert totals(live.push(rows(2, 25))) == [1]
    assert len(errors) == 1 and "from within a call" in errors[0]
    assert totals(live.finish()) == [1]


def refused(live: Any, call: Callable[[], object]) -> None:
    with pytest.raises(pk.StateError, match="halfway"):
        call()
    with pytest.raises(pk.StateError, match="halfway"):
        live.state()
