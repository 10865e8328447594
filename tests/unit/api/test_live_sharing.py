"""An open query that threads share: one call at a time, and no row is lost."""

from threading import Thread
from typing import Any

import pyarrow as pa
import pytest

import penstock as pk

EVENTS = pk.stream("e", {"t": "int64", "v": "int64"}, time="t", lateness=1_000_000)
TOTALS = EVENTS.window(10).agg(n=pk.count(), s=pk.sum("v"))


def batch(*times: int) -> pa.RecordBatch:
    return pa.record_batch({"t": list(times), "v": [1] * len(times)})


def test_threads_may_push_into_one_query() -> None:
    found: list[pa.RecordBatch] = []
    failures: list[BaseException] = []
    with TOTALS.open() as live:

        def work(begin: int) -> None:
            try:
                for time in range(begin, begin + 200):
                    found.extend(live.push(batch(time, time + 1)))
            except BaseException as error:  # noqa: BLE001 - handed to the thread that asserts
                failures.append(error)

        threads = [Thread(target=work, args=(begin,)) for begin in range(0, 8_000, 1_000)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found += live.finish()
    assert failures == []
    assert sum(sum(value.column("n").to_pylist()) for value in found) == 8 * 200 * 2
    assert live.metrics.accepted == 8 * 200 * 2


def test_no_thread_enters_while_another_is_inside() -> None:
    entered: list[bool] = []

    def from_elsewhere(_: pa.RecordBatch) -> None:
        def attempt() -> None:
            entered.append(live._step._lock.acquire(blocking=False))

        other = Thread(target=attempt)
        other.start()
        other.join()

    stream = pk.stream("e", {"t": "int64", "v": "int64"}, time="t", late_to=from_elsewhere)
    with stream.window(10).agg(n=pk.count()).open() as live:
        live.push(batch(5, 100))
        live.push(batch(6, 101))
    assert entered == [False]


def test_a_call_from_within_a_call_is_refused_plainly() -> None:
    messages: list[str] = []

    def pushes(late: pa.RecordBatch) -> None:
        with pytest.raises(pk.BindingError, match="push was called from within a call") as caught:
            live.push(late)
        messages.append(str(caught.value))

    stream = pk.stream("e", {"t": "int64", "v": "int64"}, time="t", late_to=pushes)
    with stream.window(10).agg(n=pk.count()).open() as live:
        live.push(batch(5, 100))
        live.push(batch(6, 101))
        assert live.push(batch(200))[0].column("n").to_pylist() == [2]
    assert len(messages) == 1


def test_a_call_that_fails_lets_others_in() -> None:
    with TOTALS.open() as live:
        with pytest.raises(pk.SourceError):
            live.push(object())
        with pytest.raises(pk.DurationError):
            live.advance(object())
        live.push(batch(1))
        assert live.finish()[0].column("n").to_pylist() == [1]


@pytest.mark.parametrize("given", [{"t": 1}, {"t": 1, "w": 2}, [{"t": 1}], {"t": [1, 2]}])
def test_rows_without_a_declared_column_are_refused(given: Any) -> None:
    with TOTALS.open() as live:
        with pytest.raises(pk.SchemaMismatchError, match="a batch of stream 'e' has no column 'v'"):
            live.push(given)
        assert live.push({"t": 1, "v": 2}) == []


@pytest.mark.parametrize(
    "run", [pk.Stream.collect, pk.Stream.run, lambda query, given: query.open().push(given)]
)
def test_columns_in_the_place_of_several_streams_are_refused(run: Any) -> None:
    one, other = (pk.stream(name, {"t": "int64"}, time="t") for name in "ab")
    with pytest.raises(pk.BindingError, match="'t' is a column of 'a': give rows or columns by the name"):
        run(one.union(other), {"t": [1]})
