"""Late rows of sessions in micro-batches: judged by the watermark before the batch, whatever their order in it."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from penstock.ir.windows import LATE, fates
from penstock.types.windows import Session
from tests.oracle.effort import effort
from tests.spark.streaming.local import LocalStream

Batch = list[tuple[int, int]]
START_OF_TIME = -(1 << 63)


def sessions(gap: int, lateness: int | None = None) -> Any:
    source = pk.stream("s", {"t": "int64", "k": "int64"}, time="t", lateness=lateness)
    return source.window(pk.session(gap), by="k").agg(rows=pk.list("t"))


def table_of(batch: Batch) -> pa.Table:
    times, keys = [time for time, _ in batch], [key for _, key in batch]
    return pa.table({"t": pa.array(times, pa.int64()), "k": pa.array(keys, pa.int64())})


def expected_late(batches: list[Batch], gap: int, lateness: int) -> int:
    """Judge the rows of a batch by the watermark before it, from the latest to the earliest."""
    reached, arrivals = START_OF_TIME, []
    for batch in batches:
        arrivals += [(time, key, reached) for time, key in sorted(batch, reverse=True)]
        reached = max([reached, *(time - lateness for time, _ in batch)])
    return fates(Session(gap), arrivals).count(LATE)


@effort(60)
@given(
    batches=st.lists(
        st.lists(st.tuples(st.integers(-40, 40), st.integers(0, 2)), min_size=1, max_size=8), max_size=6
    ),
    gap=st.integers(1, 10),
    lateness=st.integers(0, 15),
    shards=st.integers(1, 3),
    seed=st.randoms(use_true_random=False),
)
def test_late_rows_of_sessions_do_not_depend_on_the_order_within_a_batch(
    batches: list[Batch], gap: int, lateness: int, shards: int, seed: Any
) -> None:
    batches = [[(time + 10 * turn, key) for time, key in batch] for turn, batch in enumerate(batches)]
    given_order, shuffled = (LocalStream(sessions(gap, lateness), shards) for _ in range(2))
    for batch in batches:
        mixed = seed.sample(batch, len(batch))
        made = [
            sorted(
                tuple(map(str, row.values()))
                for table in running.batch([table_of(rows)])
                for row in table.to_pylist()
            )
            for running, rows in ((given_order, batch), (shuffled, mixed))
        ]
        assert made[0] == made[1]
    assert given_order.metrics == shuffled.metrics
    assert given_order.metrics.late == expected_late(batches, gap, lateness)


def test_a_row_in_an_open_session_is_accepted_in_every_order_of_its_batch() -> None:
    for order in itertools.permutations([(30, 0), (12, 1), (5, 1)]):
        running = LocalStream(sessions(10), 2)
        running.batch([table_of([(9, 0)])])
        running.batch([table_of(list(order))])
        assert (running.metrics.accepted, running.metrics.late) == (4, 0)
