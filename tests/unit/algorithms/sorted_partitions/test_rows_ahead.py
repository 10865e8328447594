"""Rows ahead of the watermark leave in order of time, then of arrival, however they came."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.algorithms.kernel_factory import KernelFactory
from penstock.algorithms.sorted_partitions.build import sorter
from penstock.algorithms.sorted_partitions.rows import Rows
from penstock.algorithms.sorted_partitions.rows_ahead import MOST_CHAINS, RowsAhead
from penstock.loop.interpret import Interpreted

SCHEMA = pa.schema({"t": pa.int64(), "n": pa.int64()})
SORTER = sorter(KernelFactory(Interpreted))


def rows_of(times: list[int], first: int) -> Rows:
    numbers = range(first, first + len(times))
    batch = pa.record_batch([pa.array(times, pa.int64()), pa.array(numbers, pa.int64())], schema=SCHEMA)
    return Rows(batch, np.array(times, np.int64), None, None, np.ones(len(times), np.bool_))


def pairs(rows: Rows) -> list[tuple[int, int]]:
    return list(zip(rows.batch["t"].to_pylist(), rows.batch["n"].to_pylist(), strict=True))


@given(st.lists(st.lists(st.integers(-20, 20), max_size=6), max_size=30), st.integers(1, 4))
def test_released_rows_are_those_before_the_time_in_order(pushes: list[list[int]], step: int) -> None:
    ahead, waiting, number = RowsAhead(SCHEMA, SORTER), [], 0
    for place, times in enumerate(pushes):
        ahead.add(rows_of(times, number))
        waiting += [(time, number + index) for index, time in enumerate(times)]
        number += len(times)
        assert len(ahead.chains) <= MOST_CHAINS
        watermark = -20 + step * place
        assert pairs(ahead.release(watermark)) == sorted(row for row in waiting if row[0] < watermark)
        waiting = [row for row in waiting if row[0] >= watermark]
        assert sorted(pairs(ahead.rows())) == sorted(waiting)


def test_rows_in_order_of_time_extend_one_chain() -> None:
    ahead = RowsAhead(SCHEMA, SORTER)
    for first in range(0, 1000, 10):
        ahead.add(rows_of(list(range(first, first + 10)), first))
        assert len(ahead.chains) == 1
    ahead.release(500)
    assert sum(map(len, ahead.chains[0])) == 500
