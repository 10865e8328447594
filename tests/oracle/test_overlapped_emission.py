"""Windows emitted while the native loop goes on folding give the results of direct pushes, in the same order.

In these tests every emission that may overlap does: at once in the thread that pushes, or as late as possible, when all
rows up to the next complete window have been folded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Thread, get_ident
from time import sleep
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from penstock.api.native_queue import NativeQueue
from penstock.api.native_runner import NativeRunner, Overlapped
from penstock.ir.interpret import interpret
from penstock.ir.samples import to_rows
from penstock.operators.pane_aggregate import stage
from penstock.runtime.ring import IDLE, LEFT, PATIENCE, REASON, Ring
from penstock.translate import to_ir
from tests.oracle.effort import effort
from tests.oracle.test_native_loop import (
    PLAIN,
    QUERIES,
    SCHEMA,
    TICKS,
    Step,
    batch_of,
    directly,
    paused,
)
from tests.unit.runtime.queries import reported

pytestmark = pytest.mark.filterwarnings("ignore::penstock.LateRowsWarning")
WINDOWS = [name for name in QUERIES if name not in ("filter", "select", "passes")]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("push"), TICKS, PLAIN),
        st.tuples(st.just("push"), TICKS, PLAIN),
        st.tuples(st.just("commit"), TICKS, PLAIN),
        st.tuples(st.sampled_from(["advance", "flush", "held", "restart"]), TICKS, PLAIN),
    ),
    min_size=3,
    max_size=30,
)
RISING = st.lists(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3), st.integers(0, 9)), min_size=1, max_size=5),
    min_size=1,
    max_size=20,
)


@contextmanager
def overlapping(late: bool = False) -> Iterator[list[Overlapped]]:
    """Let every emission overlap, and yield those that were prepared; `late`: each when the loop stops for the next time."""
    prepared: list[Overlapped] = []
    settle = NativeRunner._settle

    def noted(self: NativeRunner, overlaps: bool) -> Overlapped | None:
        ends = self.queue.words[REASON] in (IDLE, LEFT)
        found = settle(self, not ends if late else overlaps)
        if found is not None:
            prepared.append(found)
        return found if overlaps else None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage, "CELLS_WORTH_DEPARTING", 0)
        patch.setattr(NativeRunner, "_settle", noted)
        if late:
            patch.setattr(NativeRunner, "_emit", lambda self, departing: None)
        yield prepared


def in_background(query: Any, steps: Sequence[Step], threads: int) -> tuple[list[str], dict[str, int]]:
    """Push steps into a background run of several threads, whose results another thread takes."""
    engine, made = pk.Engine(threads=threads), []

    def opened(**options: Any) -> tuple[Any, Any, Thread]:
        live = query.open(engine=engine, background=True, max_delay="0s", **options)
        taker = Thread(target=lambda: made.extend(live))
        taker.start()
        return live, live.writer(capacity=6), taker

    (live, writer, taker), begin = opened(), 0
    for step, ticks, rows in steps:
        begin += ticks
        match step:
            case "advance":
                live.advance(begin)
            case "flush":
                live.flush()
            case "held":
                assert all(size.rows >= 0 for size in live.metrics.held.values())
            case "restart":
                live.flush()
                while live._worker.results and taker.is_alive():
                    sleep(0)
                state = live.state()
                live.close()
                taker.join()
                live, writer, taker = opened(state=state)
            case "commit":
                batch = batch_of(begin, rows)
                for name, target in writer.items():
                    target[: len(rows)] = batch[name].to_numpy()
                writer.commit(len(rows))
            case _:
                live.push(batch_of(begin, rows))
    live.finish()
    taker.join()
    return reported(made), {**live.metrics.counts, "batches": 0}


def in_order(query: Any, steps: Sequence[Step]) -> tuple[list[str], dict[str, int]]:
    """The results of direct pushes, in the order in which they are complete."""
    live, made, begin = query.open(engine=pk.Engine(threads=1)), [], 0
    for step, ticks, rows in steps:
        begin += ticks
        if step == "advance":
            made += live.advance(begin)
        elif step in ("push", "commit"):
            made += live.push(batch_of(begin, rows))
    made += live.finish()
    return reported(made), {**live.metrics.counts, "batches": 0}


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("threads", [2, 4])
@effort(12)
@given(steps=STEPS)
def test_results_and_their_order_are_those_of_direct_pushes(
    name: str, threads: int, steps: list[Step]
) -> None:
    with overlapping():
        found = in_background(QUERIES[name], steps, threads)
    assert found == in_order(QUERIES[name], steps)


@pytest.mark.parametrize("name", WINDOWS)
@effort(25)
@given(steps=STEPS)
def test_results_may_be_computed_when_later_rows_have_been_folded(name: str, steps: list[Step]) -> None:
    with overlapping(late=True):
        found = in_background(QUERIES[name], steps, 2)
    assert found == in_order(QUERIES[name], steps)


@pytest.mark.parametrize("name", ["tumbling", "sliding", "having"])
@effort(25)
@given(batches=RISING)
def test_results_are_those_of_the_interpreter(name: str, batches: list[list[tuple[int, int, int]]]) -> None:
    query, time, steps = QUERIES[name], 0, []
    for batch in batches:
        rows = []
        for ticks, key, value in batch:
            time += ticks
            rows.append((time, key, value, float(value)))
        steps.append(("push", 0, rows))
    table = pa.Table.from_batches([batch_of(0, rows) for _, _, rows in steps], SCHEMA)
    program = to_ir(query.plan)
    expected = interpret(program, {"rows": to_rows(table)})
    with overlapping(late=True):
        found, _ = in_background(query, steps, 2)
    assert len(found) == len(expected)
    assert sorted(found) == sorted(directly(query, steps)[0])


@pytest.mark.parametrize("name", ["tumbling", "sliding", "windows of windows"])
def test_many_windows_overlap_with_the_loop(name: str) -> None:
    """A thread that waits for room helps a loop that waits long enough for it."""
    steps: list[Step] = [
        ("push", 1, [(0, number % 7, 4, 1.0), (1, number % 5, 5, 2.5)]) for number in range(2_000)
    ]
    made: list[pa.RecordBatch] = []
    opened = QUERIES[name].open(engine=pk.Engine(threads=2), background=True, queue_rows=64)
    with overlapping() as overlapped, opened as live:
        taker = Thread(target=lambda: made.extend(live))
        taker.start()
        live._native.words[PATIENCE] = 10**9
        begin = 0
        for _, ticks, rows in steps:
            begin += ticks
            live.push(batch_of(begin, rows))
        live._native.words[PATIENCE] = 1_000
        live.finish()
        taker.join()
    assert len(overlapped) > 20
    assert reported(made) == in_order(QUERIES[name], steps)[0]


def test_a_failing_emission_leaves_the_batches_that_the_loop_reads() -> None:
    """The thread that emits fails while the loop goes on in another one."""
    opened = QUERIES["tumbling"].open(engine=pk.Engine(threads=2), background=True, queue_rows=64)
    dropped: list[bool] = []
    drop = Ring.drop

    def noted(self: Ring) -> int:
        dropped.append(opened._worker.runner in (None, get_ident()))
        return drop(self)

    def failing(self: NativeQueue, departure: object) -> None:
        raise ZeroDivisionError("emission")

    with overlapping(), pytest.MonkeyPatch.context() as patched:
        patched.setattr(Ring, "drop", noted)
        patched.setattr(NativeQueue, "depart", failing)
        opened._native.words[PATIENCE] = 10**9

        def push_many() -> None:
            for number in range(100_000):
                opened.push(batch_of(number, [(0, number % 7, 4, 1.0)]))

        with pytest.raises((ZeroDivisionError, pk.StateError)):
            push_many()
        opened._worker.thread.join(60)
    assert dropped and all(dropped)
    assert not opened._native.waiting and opened.metrics.queue_rows >= 0


def test_a_kernel_may_stop_where_emitted_panes_were_the_last() -> None:
    """A filtered row completes all windows; the next row needs a pane in a table that is gone by then."""
    made: list[pa.RecordBatch] = []
    query = QUERIES["tumbling"]
    first, rest = [(6, 0, 5, 1.0)], [[(18, 2, 9, 1.0), (24, 0, 0, 1.0)], [(30, 2, 9, 1.0)]]
    with overlapping(late=True) as prepared:
        live = query.open(engine=pk.Engine(threads=2), background=True, max_delay="0s", on_result=made.append)
        live.push(batch_of(0, first))
        live.flush()
        with paused(live):
            for rows in rest:
                live.push(batch_of(0, rows))
        live.finish()
        assert prepared
    steps: list[Step] = [("push", 0, rows) for rows in (first, *rest)]
    assert (reported(made), {**live.metrics.counts, "batches": 0}) == in_order(query, steps)
