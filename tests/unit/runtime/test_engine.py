"""How rows are cut into tasks."""

from __future__ import annotations

from itertools import pairwise

import pytest

from penstock.runtime.engine import MOST_TASK_ROWS, Engine


@pytest.mark.parametrize("rows", [0, 1, 7, 100_000, 20_000_000, MOST_TASK_ROWS * 2 + 5])
@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("row_bytes", [0, 8, 10**9])
def test_tasks_are_all_rows_in_order_and_none_is_empty(rows: int, threads: int, row_bytes: int) -> None:
    tasks = list(Engine(threads=threads).slices(rows, row_bytes))
    bounds = [0, *(end for _, end in tasks)]
    assert tasks == list(pairwise(bounds)) and bounds[-1] == rows
    assert all(0 < end - begin <= MOST_TASK_ROWS for begin, end in tasks)


def test_a_thread_begins_with_half_of_its_rows_and_ends_with_few() -> None:
    sizes = [end - begin for begin, end in Engine(threads=2).slices(20_000_000, 28)]
    assert sizes == [5_000_000, *[625_000] * 8] * 2


def test_a_thread_that_is_alone_takes_all_rows_at_once() -> None:
    assert list(Engine(threads=1).slices(20_000_000, 28)) == [(0, 20_000_000)]


def test_small_tasks_are_as_small_as_asked_for() -> None:
    assert list(Engine(threads=1, task_bytes=16).slices(5, 8)) == [(0, 2), (2, 4), (4, 5)]
