"""Metrics of a join while it runs."""

from __future__ import annotations

import pytest

from penstock.algorithms.joins.adapt.auto_join import WatchedRun
from penstock.runtime.metrics import JoinMetrics
from tests.unit.algorithms.joins.kernels.joining import EAGER, codes, expected, listed, native


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def watched(name: str) -> tuple[WatchedRun, Clock]:
    clock = Clock()
    return WatchedRun(EAGER[name](native).open(1), clock), clock


def test_latency_counts_from_the_later_row() -> None:
    run, clock = watched("shj_jm")
    clock.now = 1.0
    run.push_left(codes([1, 2]))
    clock.now = 5.0
    assert listed(run.push_right(codes([1]))) == [(0, 0)]
    assert run.metrics.latency() < 1e-5
    assert (run.metrics.rows, run.metrics.pairs, run.metrics.seconds) == (3, 1, 5.0)
    assert run.metrics.throughput == 3 / 5


def test_pairs_given_at_the_end_have_waited_for_it() -> None:
    run, clock = watched("pmj_jm")  # of 9 rows
    run.push_left(codes([1, 2]))
    run.push_right(codes([1]))
    clock.now = 8.0
    assert listed(run.close()) == [(0, 0)]
    assert 8.0 <= run.metrics.latency() <= 8.0 * 1.5
    assert run.metrics.time_to(0.5) == 8.0


def test_progress_is_the_number_of_pairs_over_time() -> None:
    run, clock = watched("shj_jb")
    run.push_left(codes([1, 1, 2]))
    for clock.now, key in ((1.0, 1), (2.0, 3), (4.0, 2), (9.0, 1)):
        run.push_right(codes([key]))
    run.close()
    assert run.metrics.progress == [(1.0, 2), (4.0, 3), (9.0, 5)]
    assert [run.metrics.time_to(part) for part in (0.4, 0.6, 1.0)] == [1.0, 4.0, 9.0]


@pytest.mark.parametrize("name", EAGER)
def test_a_watched_run_gives_what_the_run_inside_gives(name) -> None:
    run, _ = watched(name)
    left, right = codes([3, 1, 3, 2]), codes([2, 3, 3, 9])
    found = [run.push_left(left[:2]), run.push_right(right), run.push_left(left[2:]), run.close()]
    pairs = sorted(pair for batch in found for pair in listed(batch))
    assert pairs == expected(left, right)
    assert run.metrics.pairs == len(pairs)


def test_a_window_without_rows_has_metrics() -> None:
    metrics = JoinMetrics()
    assert (metrics.throughput, metrics.latency(), metrics.time_to(0.5)) == (0.0, 0.0, 0.0)
