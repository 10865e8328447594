"""Queries in the background: order, bounds, errors, threads, coroutines and the end of the process."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import textwrap
import weakref
from threading import Event, Thread, get_ident
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as pk
from penstock.api.background import Background
from penstock.api.background_worker import BackgroundWorker
from penstock.api.live import open_live
from penstock.sources.live_files import Clock

EVENTS = pk.stream("events", {"t": "int64", "v": "int64"}, time="t", lateness=1_000_000)
TOTALS = EVENTS.window(10).agg(n=pk.count(), s=pk.sum("v"))
IN_ORDER = pk.stream("events", {"t": "int64", "v": "int64"}, time="t").window(10).agg(n=pk.count())


def rows(*times: int) -> pa.RecordBatch:
    return pa.record_batch({"t": list(times), "v": [1] * len(times)})


def counts(batches: Any) -> list[int]:
    return [n for batch in batches for n in batch.column("n").to_pylist()]


def by_worker(query: pk.Stream, queue_rows: int, on_result: Any) -> Background:
    """Run a query whose tasks the worker thread runs at once: by its clock no rows are ever overdue for a push."""
    still = Clock(lambda: 0.0, lambda seconds: None)
    return Background(open_live(query, None, None, still), 0.0, queue_rows, on_result)


class Blocking:
    """A function of results that waits until it is let go."""

    def __init__(self) -> None:
        self.entered, self.go = Event(), Event()
        self.taken: list[pa.RecordBatch] = []

    def __call__(self, batch: pa.RecordBatch) -> None:
        self.taken.append(batch)
        self.entered.set()
        assert self.go.wait(60)


def test_results_can_be_iterated_over_while_another_thread_pushes() -> None:
    live = IN_ORDER.open(background=True)

    def produce() -> None:
        for t in range(1000):
            live.push({"t": t, "v": 1})
        live.finish()

    producer = Thread(target=produce)
    producer.start()
    assert counts(live) == [10] * 100
    producer.join()
    assert live.metrics.accepted == 1000
    assert live.metrics.queue_rows == 0


def test_threads_may_push_into_one_query() -> None:
    live = TOTALS.open(background=True, queue_rows=100)

    def work(begin: int) -> None:
        for time in range(begin, begin + 200):
            live.push(rows(time, time + 1))

    threads = [Thread(target=work, args=(begin,)) for begin in range(0, 8_000, 1_000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    live.finish()
    assert sum(counts(live)) == 8 * 200 * 2 == live.metrics.accepted


def test_a_push_waits_while_the_queue_is_full_and_goes_on_when_there_is_room() -> None:
    blocking, pushed = Blocking(), Event()
    with by_worker(IN_ORDER, 2, blocking) as live:
        live.push(rows(1, 12))
        assert blocking.entered.wait(60)
        live.push(rows(13, 14))
        assert live.metrics.queue_rows == 2

        def push() -> None:
            live.push(rows(15))
            pushed.set()

        waiting = Thread(target=push)
        waiting.start()
        assert not pushed.is_set()
        blocking.go.set()
        waiting.join()
        live.finish()
    assert counts(blocking.taken) == [1, 4]


def test_what_waits_is_one_task_of_neighbouring_batches() -> None:
    blocking = Blocking()
    with by_worker(IN_ORDER, 1_000, blocking) as live:
        live.push(rows(1, 12))
        assert blocking.entered.wait(60)
        for t in range(13, 18):
            with live._worker.lock:  # as another thread would push while the worker is busy
                live._put([("events", rows(t))], 0.0)
        blocking.go.set()
        live.flush()
        assert live.metrics.batches == 2
        live.finish()
    assert counts(blocking.taken) == [1, 6]


def test_results_that_nobody_takes_are_an_error_of_the_push_that_would_wait_for_ever(
    monkeypatch: Any,
) -> None:
    monkeypatch.setattr("penstock.api.background_worker.WAITING_RESULT_ROWS", 4)
    live = EVENTS.filter(pk.col("v") > 0).open(background=True, queue_rows=4, max_delay="0s")

    def push_on() -> None:
        for t in range(1000):
            live.push(rows(t, t))

    with pytest.raises(pk.BindingError, match="rows of results have not been taken"):
        push_on()
    taken = sum(batch.num_rows for batch in live.ready())
    live.push(rows(1))
    live.finish()
    left = sum(batch.num_rows for batch in live)
    assert taken + left == live.metrics.accepted == live.metrics.read


def test_an_error_in_a_batch_is_raised_by_its_push_and_harms_nothing() -> None:
    with IN_ORDER.open(background=True) as live:
        live.push(rows(1))
        for wrong in (pa.record_batch({"t": ["x"], "v": [1]}), {"t": 1.5, "v": 1}, {"t": 1}, 3):
            with pytest.raises(pk.PenstockError):
                live.push(wrong)
        with pytest.raises(pk.DurationError):
            live.advance(object())
        live.finish()
    assert counts(live) == [1]


def test_an_error_of_a_task_is_raised_by_the_next_call_and_then_the_query_refuses() -> None:
    def fail(batch: pa.RecordBatch) -> None:
        raise RuntimeError("the sink is gone")

    live = IN_ORDER.open(background=True, max_delay="0s", on_result=fail)
    live.push(rows(1, 12))
    with pytest.raises(RuntimeError, match="the sink is gone"):
        live.flush()
    for call in (lambda: live.push(rows(1)), live.state, live.flush, lambda: next(live), live.close):
        with pytest.raises(pk.StateError, match="halfway"):
            call()


def test_an_error_of_a_task_tells_how_many_rows_behind_it_are_not_processed() -> None:
    release = Event()

    def fail(batch: pa.RecordBatch) -> None:
        assert release.wait(60)
        raise RuntimeError("the sink is gone")

    live = by_worker(IN_ORDER, 1_000, fail)
    live.push(rows(1, 12))
    with live._worker.lock:
        while live._worker.runner is None:
            live._worker.change.wait(60)
        live._put([("events", rows(13, 14, 15))], 0.0)
    release.set()
    with pytest.raises(RuntimeError) as caught:
        live.close()
    assert caught.value.__notes__ == ["3 rows that were pushed behind it have not been processed"]


def test_an_error_ends_an_iteration_after_the_results_before_it() -> None:
    overflow = EVENTS.window(10).agg(s=pk.sum("v"))
    live = overflow.open(background=True)
    live.push(pa.record_batch({"t": [1, 2], "v": [1, 2]}))
    live.advance(10)
    live.flush()
    live.push(pa.record_batch({"t": [11, 12], "v": [2**63 - 1, 2**63 - 1]}))
    live._call(live._live.finish)
    taken = next(live)
    assert taken["s"].to_pylist() == [3]
    with pytest.raises(pk.OverflowError):
        next(live)


def test_a_warning_that_is_an_error_is_raised_and_the_run_goes_on(recwarn: Any) -> None:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("error", pk.LateRowsWarning)
        live = IN_ORDER.open(background=True, max_delay="0s")
        live.push(rows(1, 25))
        live.flush()
        live.push(rows(2))
        with pytest.raises(pk.LateRowsWarning):
            live.flush()
        live.push(rows(26))
        live.finish()
    assert counts(live) == [1, 2]


def test_a_function_of_results_may_push_and_close_but_not_wait() -> None:
    messages: list[str] = []

    def feed(batch: pa.RecordBatch) -> None:
        try:
            live.flush()
        except pk.BindingError as error:
            messages.append(str(error))
        if batch["window_start"][0].as_py() < 30:
            live.push(rows(batch["window_end"][0].as_py() + 12))

    with IN_ORDER.open(background=True, max_delay="0s", queue_rows=1, on_result=feed) as live:
        live.push(rows(1, 12))
        live.flush()
    assert live.metrics.accepted >= 3
    assert messages and "cannot wait" in messages[0]


def test_coroutines_push_and_take_results_while_the_queue_is_small() -> None:
    async def main() -> list[int]:
        async with IN_ORDER.open(background=True, max_delay="0s", queue_rows=3) as live:

            async def produce() -> None:
                for t in range(500):
                    await live.push_async({"t": t, "v": 1})
                await live.finish_async()

            producer = asyncio.create_task(produce())
            found = [n async for batch in live for n in batch["n"].to_pylist()]
            await producer
            return found

    assert asyncio.run(main()) == [10] * 50


def test_a_closed_query_refuses_rows_and_still_gives_its_results_and_its_state() -> None:
    with IN_ORDER.open(background=True, max_delay="1h") as live:
        live.push(rows(1, 12, 13))
    with pytest.raises(pk.BindingError, match="closed"):
        live.push(rows(14))
    assert counts(live) == [1]
    with IN_ORDER.open(state=live.state()) as rest:
        assert counts(rest.finish()) == [2]
    live.close()


def test_results_not_taken_would_be_lost_with_a_state() -> None:
    with IN_ORDER.open(background=True) as live:
        live.push(rows(1, 12))
        with pytest.raises(pk.StateError, match="1 batches of results"):
            live.state()


def test_closing_while_pushes_wait_for_room_processes_what_was_taken() -> None:
    blocking = Blocking()
    live = by_worker(IN_ORDER, 1, blocking)
    outcome: list[str] = []
    live.push(rows(1, 12))
    assert blocking.entered.wait(60)
    live.push(rows(13))

    def push() -> None:
        try:
            live.push(rows(14))
            outcome.append("taken")
        except pk.BindingError:
            outcome.append("refused")

    waiting = Thread(target=push)
    waiting.start()
    live.shut(final=False)
    blocking.go.set()
    waiting.join()
    live.close()
    assert live.metrics.accepted == (4 if outcome == ["taken"] else 3)


def test_an_interrupted_push_makes_later_ones_refuse_and_loses_nothing_before_it(monkeypatch: Any) -> None:
    live = IN_ORDER.open(background=True, max_delay="1h")
    live.push(rows(1, 2))

    def interrupt(self: BackgroundWorker) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(BackgroundWorker, "own", interrupt)
        with pytest.raises(KeyboardInterrupt):
            live.push(rows(3))
    with pytest.raises(pk.StateError, match="interrupted"):
        live.push(rows(4))
    live.close()
    assert live.metrics.accepted == 2


def test_an_interrupt_in_a_task_that_a_push_runs_fails_the_query(monkeypatch: Any) -> None:
    live = IN_ORDER.open(background=True, max_delay="1h")
    live.push(rows(1, 2))

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(live._live, "feed", interrupt)
        with live._worker.lock:
            task = live._worker._begin()
        with pytest.raises(KeyboardInterrupt):
            live._worker._process(*task)
    with pytest.raises(KeyboardInterrupt):
        live.push(rows(3))
    with pytest.raises(pk.StateError, match="halfway"):
        live.close()


def test_a_push_runs_a_task_that_is_overdue() -> None:
    now = [0.0]
    live = open_live(IN_ORDER, None, None, Clock(lambda: now[0], lambda seconds: None))
    threads: list[int] = []
    run = Background(live, 3600.0, 1 << 20, lambda batch: threads.append(get_ident()))
    run.push(rows(1, 12))
    assert threads == []
    now[0] = 1801.0
    run.push(rows(13))
    assert threads == [get_ident()]
    run.close()


def test_a_query_that_is_dropped_processes_what_was_pushed_and_ends() -> None:
    taken: list[pa.RecordBatch] = []
    live = IN_ORDER.open(background=True, max_delay="1h", on_result=taken.append)
    live.push(rows(1, 12))
    thread, dropped = live._worker.thread, weakref.ref(live)
    del live
    gc.collect()
    thread.join(60)
    assert dropped() is None and not thread.is_alive()
    assert counts(taken) == [1]


def script(body: str) -> subprocess.CompletedProcess[str]:
    setting = """
        import os, sys, penstock as pk
        query = pk.stream("e", {"t": "int64"}, time="t").window(10).agg(n=pk.count())
        """
    text = textwrap.dedent(setting) + textwrap.dedent(body)
    return subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=120, check=False
    )


def test_the_exit_of_the_interpreter_processes_what_waits() -> None:
    done = script("""
        live = query.open(background=True, max_delay="1h", on_result=lambda b: print(b["n"].to_pylist()))
        for t in range(25):
            live.push({"t": t})
        """)
    assert (done.stdout.split("\n")[:2], done.returncode) == (["[10, 10]", ""], 0), done.stderr


def test_an_error_that_no_call_raised_is_shown_at_exit() -> None:
    done = script("""
        def fail(batch):
            raise RuntimeError("the sink is gone")
        live = query.open(background=True, max_delay="1h", on_result=fail)
        live.push([{"t": 1}, {"t": 12}])
        """)
    assert "the sink is gone" in done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_fork_refuses_the_query_of_its_parent_and_ends() -> None:
    done = script("""
        live = query.open(background=True, max_delay="1h")
        live.push({"t": 1})
        with live._worker.lock:
            child = os.fork()
        if not child:
            try:
                live.push({"t": 2})
            except pk.StateError as error:
                print("another process" in str(error), flush=True)
            sys.exit(0)
        print(os.waitpid(child, 0)[1], flush=True)
        live.finish()
        print([b["n"].to_pylist() for b in live])
        """)
    assert done.stdout.split() == ["True", "0", "[[1]]"], done.stderr


def test_options_of_the_background_go_with_it() -> None:
    for options in ({"max_delay": "1ms"}, {"queue_rows": 3}, {"on_result": print}):
        with pytest.raises(pk.BindingError, match="background=True"):
            IN_ORDER.open(**options)  # type: ignore[call-overload]
    with pytest.raises(pk.DurationError):
        IN_ORDER.open(background=True, max_delay=1)
    with pytest.raises(pk.ExpressionTypeError):
        IN_ORDER.open(background=True, queue_rows=0)
    with pytest.raises(pk.BindingError, match="on_result"):
        IN_ORDER.open(background=True, on_result=3)  # type: ignore[arg-type]


def test_a_run_with_a_delay_gives_the_results_of_a_run() -> None:
    def feed() -> Any:
        yield from ({"t": t, "v": 1} for t in range(1000))

    run = IN_ORDER.run(feed(), max_delay="1ms")
    assert counts(run) == [10] * 100
    assert run.metrics.accepted == 1000


def test_the_error_of_an_iterator_is_raised_after_the_results_before_it() -> None:
    def feed() -> Any:
        yield rows(1, 12, 25)
        raise OSError("the line is dead")

    run = IN_ORDER.run(feed(), max_delay="0s")
    assert counts([next(run)]) == [1, 1]
    with pytest.raises(OSError, match="the line is dead"):
        next(run)


def test_an_error_of_a_task_is_raised_where_results_of_a_run_are_taken() -> None:
    def feed() -> Any:
        yield pa.record_batch({"t": [1, 2], "v": [2**63 - 1, 2**63 - 1]})
        while True:
            yield rows(3_000_000)  # completes the window of the rows before

    run = EVENTS.window(10).agg(s=pk.sum("v")).run(feed(), max_delay="0s")
    with pytest.raises(pk.OverflowError):
        next(run)


def test_a_run_with_a_delay_has_a_state_at_its_end() -> None:
    run = IN_ORDER.run(iter([rows(1, 12)]), max_delay="0s", final=False)
    assert counts(run) == [1]
    with IN_ORDER.open(state=run.state()) as live:
        assert counts(live.finish()) == [1]


def test_a_run_that_is_dropped_reads_no_further() -> None:
    asked, go = Event(), Event()

    def feed() -> Any:
        yield rows(1)
        asked.set()
        assert go.wait(60)
        yield rows(2)
        raise AssertionError("read on")

    run = IN_ORDER.run(feed(), max_delay="0s")
    assert asked.wait(60)
    reader, thread = run._reader, run._thread  # type: ignore[attr-defined]
    del run
    gc.collect()
    go.set()
    thread.join(60)
    assert not thread.is_alive() and reader.error is None


def test_writers_of_two_streams_keep_the_order_of_their_commits() -> None:
    one, other = (pk.stream(name, {"t": "int64", "v": "int64"}, time="t") for name in ("one", "other"))
    query = one.union(other).window(10).agg(s=pk.sum("v"))
    live = query.open(background=True)
    writers = [live.writer(2, stream=name) for name in ("one", "other")]
    for t in range(100):
        for writer in writers:
            writer["t"][:] = [t, t]
            writer["v"][:] = [t, 1]
            writer.commit(1 + t % 2)
    live.finish()
    expected = np.array([t + (t % 2) for t in range(100)]).reshape(10, 10).sum(axis=1) * 2
    assert [s for batch in live for s in batch["s"].to_pylist()] == expected.tolist()
    assert live.metrics.late == 0
