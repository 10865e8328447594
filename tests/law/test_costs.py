"""Costs that do not depend on the machine: Python calls, compiled kernels and bytes kept. A gate against creeping cost.

A limit is what is measured plus a little. Who exceeds one looks for the cause first, and raises the limit with a reason.
"""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as pk
from penstock.codegen.tiers import TieredKernel
from penstock.compile import Compiled
from penstock.loop.interpret import Interpreted
from penstock.loop.nodes import Kernel

SCHEMA = {"ts": "timestamp[us]", "campaign": "int64", "kind": "int64", "value": "int64"}
EVENTS = pk.stream("events", SCHEMA, time="ts")
VIEWS = EVENTS.filter(pk.col("kind") == 1)
ONE_THREAD = pk.Engine(threads=1)
TIMED = TieredKernel._spend.__code__

TUMBLING = VIEWS.window("1h", by="campaign").agg(total=pk.sum("value"))
SLIDING = VIEWS.window("1h", every="1m", by="campaign").agg(low=pk.min("value"))
PROJECTION = VIEWS.select("campaign", double=pk.col("value") * 2)


def rows(begin: int, many: int = 100) -> pa.RecordBatch:
    numbers = np.arange(begin, begin + many)
    times = pa.array((3 * numbers).astype("M8[us]"))
    return pa.record_batch(
        {"ts": times, "campaign": numbers % 97, "kind": numbers % 2, "value": numbers % 11}
    )


def fewest_calls(work: Callable[[Any], object], arguments: Sequence[Any]) -> int:
    """Count the calls of one run; of several runs, the fewest.

    The garbage collector, and the compiler of a kernel that has proved busy, run Python functions too, at any time.
    """
    return min(_calls(work, argument) for argument in arguments)


def _calls(work: Callable[[Any], object], given: Any) -> int:
    """Count the calls of Python functions, generators and comprehensions included.

    Whether a kernel still adds up the time it takes depends on how long it has run, so that is not counted.
    """
    count = 0

    def called(frame: Any, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call" and frame.f_code is not TIMED

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        work(given)
    finally:
        sys.setprofile(before)
    return count


SESSIONS = EVENTS.window(pk.session("1h"), by="campaign").agg(total=pk.sum("value"))
COUNTS = EVENTS.window(pk.rows(1 << 20), by="campaign").agg(total=pk.sum("value"))
LOOK_BACK = EVENTS.rolling("1h", by="campaign").agg(mean=pk.mean("value"))
SIGNAL = EVENTS.signal("value", by="campaign").rolling("1h").mean()
PUSHES = {
    "tumbling": (TUMBLING, 40),
    "sliding": (SLIDING, 50),
    "filter and select": (PROJECTION, 65),
    # Kernels over states per key read batches through pyarrow. Look-backs and windows of rows let rows wait for the watermark.
    "session": (SESSIONS, 85),
    "windows of rows": (COUNTS, 200),
    "look-back": (LOOK_BACK, 200),
    "signal": (SIGNAL, 165),  # ends of intervals are results
}


@pytest.mark.parametrize("name", PUSHES)
def test_a_small_push_makes_few_python_calls(name: str) -> None:
    query, most = PUSHES[name]
    with query.open(engine=ONE_THREAD) as live:
        for begin in range(0, 2_000, 100):
            live.push(rows(begin))
        batches = [rows(begin) for begin in range(2_000, 2_500, 100)]
        assert fewest_calls(live.push, batches) <= most


def test_a_single_row_makes_few_python_calls() -> None:
    with TUMBLING.open(engine=ONE_THREAD) as live:
        for tick in range(20):
            live.push({"ts": tick, "campaign": 1, "kind": 1, "value": 1})
        single = [{"ts": tick, "campaign": 1, "kind": 1, "value": 1} for tick in range(21, 26)]
        assert fewest_calls(live.push, single) <= 100


def test_a_commit_of_a_writer_makes_few_python_calls() -> None:
    with TUMBLING.open(background=True, max_delay="1h") as live:
        writer = live.writer(100)
        for tick in range(20):
            writer["ts"][:] = tick
            writer.commit(100)
        live.flush()  # from now on the native loop takes commits
        assert fewest_calls(writer.commit, [100] * 5) <= 10


def test_pushes_that_complete_nothing_keep_no_memory() -> None:
    with TUMBLING.open(engine=ONE_THREAD) as live:
        for begin in range(0, 2_000, 100):
            live.push(rows(begin))
        batches = [rows(begin) for begin in range(2_000, 12_000, 100)]
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            while batches:  # a batch keeps what is read of it
                live.push(batches.pop(0))
            kept = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        assert kept <= 4_000


# An aggregation makes the controller of its adaptation and senses each task: 3 calls.
COLLECTS = {"tumbling": (TUMBLING, 428), "sliding": (SLIDING, 480), "filter and select": (PROJECTION, 240)}


@pytest.mark.parametrize("name", COLLECTS)
def test_a_collect_of_few_rows_makes_few_python_calls(name: str) -> None:
    query, most = COLLECTS[name]
    table = pa.Table.from_batches([rows(0)])
    for _ in range(3):
        query.collect(table, engine=ONE_THREAD)
    assert fewest_calls(lambda given: query.collect(given, engine=ONE_THREAD), [table] * 5) <= most


KERNELS = {"tumbling": (TUMBLING, 2), "sliding": (SLIDING, 2), "filter and select": (PROJECTION, 1)}


@pytest.mark.parametrize("name", KERNELS)
def test_a_query_compiles_few_kernels(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    query, most = KERNELS[name]
    made: list[Kernel] = []

    def compiled(kernel: Kernel) -> Interpreted:
        made.append(kernel)
        return Interpreted(kernel)

    monkeypatch.setattr("penstock.compile.backend_named", lambda name: compiled)
    known = query.compiled()
    anew = Compiled(known.plan, known.raw, known.program, known.trace)
    session = anew.open(ONE_THREAD, bounded=False)
    for begin in range(0, 300, 100):
        session.push("events", rows(begin, 10).select(anew.columns["events"]))
    session.finish()
    assert 0 < len(made) <= most, [kernel.name for kernel in made]
