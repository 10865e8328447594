"""Who takes which rows."""

from __future__ import annotations

import pyarrow as pa

from penstock.algorithms.kernel_factory import BatchArguments
from penstock.loop.numbers import Morsels
from penstock.operators.pane_aggregate.tasks import Task, Tasks
from penstock.runtime.stage import TimedBatch

BATCH = pa.record_batch({"x": [1]})


def task(shares: int, shared: bool = True) -> Task:
    return Task(TimedBatch(BATCH), Morsels(0, shares, 1), BatchArguments(BATCH, {}) if shared else None)


def test_a_thread_takes_its_own_tasks_in_order_then_the_last_of_the_longest_other_stretch() -> None:
    all_of_them = [task(1) for _ in range(5)]
    tasks = Tasks.divided(all_of_them, 2)
    assert [tasks.next(0), tasks.next(0), tasks.next(0)] == [*all_of_them[:2], all_of_them[4]]
    assert [tasks.next(1), tasks.next(1)] == all_of_them[2:4]


def test_a_thread_that_has_nothing_left_helps_where_most_is_left() -> None:
    small, large = task(3), task(9)
    tasks = Tasks.divided([small, large], 2)
    assert (tasks.next(0), tasks.next(1)) == (small, large)
    assert tasks.next(0) is large
    while large.shares.next() is not None:
        pass
    assert tasks.next(1) is small
    while small.shares.next() is not None:
        pass
    assert tasks.next(0) is None


def test_nobody_helps_with_a_task_whose_texts_only_one_worker_numbers() -> None:
    tasks = Tasks.divided([task(1, shared=False)], 1)
    assert tasks.next(0) is not None
    assert tasks.next(0) is None
