"""Calibration: workloads by their keys and arrivals, and runs of join algorithms on a clock that skips waiting."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest

from penstock.algorithms.joins.adapt.tree import TARGETS, TREE_ALGORITHMS
from penstock.calibration.simulate import (
    EmittedMatches,
    SimulatedRun,
    cost,
    later_rows,
    measure,
    open_join_field,
    simulate,
)
from penstock.calibration.workloads import Micro, Workload, WorkloadSide

TINY = Micro(4, 3, duplicates=2, window_ms=10)


@pytest.fixture(scope="module")
def field():
    return open_join_field(1)


def side(codes, arrived):
    return WorkloadSide(np.array(codes), np.array(arrived))


def clock_of(step):
    """A clock that goes on by some seconds each time it is read."""
    ticks = count()
    return lambda: next(ticks) * step


def test_micro_keys_have_the_duplicates_and_skews_asked_for():
    unique, tenfold = (Micro(100, 100, duplicates=n, window_ms=10).make("").left.codes for n in (1, 10))
    assert len(np.unique(unique)) == 1000
    assert set(np.unique(tenfold, return_counts=True)[1]) == {10}
    skewed = Micro(100, 100, key_skew=1.6, window_ms=10).make("")
    hottest = [int(np.bincount(value.codes).argmax()) for value in (skewed.left, skewed.right)]
    assert hottest[0] == hottest[1]
    early = Micro(100, 100, time_skew=1.6, window_ms=10).make("").left.arrived
    assert early[0] > 500


def test_scattered_keys_are_the_same_keys_far_apart():
    near, far = (
        Micro(10, 10, duplicates=2, window_ms=10, scatter=flag).make("").left.codes for flag in (False, True)
    )
    assert len(np.unique(near)) == len(np.unique(far))
    assert int(far.max()) - int(far.min()) > 1 << 60


def test_matches_are_counted_by_the_tick_of_their_later_row(field):
    made = Workload("", side([1, 2, 3], [1, 1, 3]), side([3, 1, 9], [1, 2, 3]), 3)
    assert later_rows(field.joiners["shj_jm"], made).tolist() == [0, 1, 1]


def test_an_eager_run_jumps_over_waiting_and_a_lazy_one_waits_for_the_window(field):
    made = Workload("", side([1, 2], [1, 1, 1, 2]), side([1, 2], [1, 1, 1, 2]), 4)
    later = later_rows(field.joiners["shj_jm"], made)
    eager = simulate(field.joiners["shj_jm"], made, later, clock=clock_of(0.0001))
    assert (eager.matches, eager.latency()) == (2, pytest.approx(0.1))
    assert eager.finished == pytest.approx(3.1)
    lazy = simulate(field.joiners["npj"], made, later, clock=clock_of(0.0001))
    assert lazy.matches == 2
    assert lazy.finished == pytest.approx(4.1)
    assert lazy.latency() == pytest.approx(4.1)
    assert lazy.phases["wait"] == 4


def test_an_eager_run_that_is_too_slow_falls_behind(field):
    rows = np.arange(40)
    made = Workload("", WorkloadSide(rows, np.arange(1, 41)), WorkloadSide(rows, np.arange(1, 41)), 40)
    slow = simulate(
        field.joiners["shj_jm"], made, later_rows(field.joiners["shj_jm"], made), clock=clock_of(0.05)
    )
    assert slow.finished > 90
    assert slow.latency() > 40


def test_metrics_of_a_run_are_those_of_its_emissions():
    run = SimulatedRun("npj", "w", rows=100, matches=4, finished=20.0)
    run.emissions = [
        EmittedMatches(4.0, 5.0, np.array([1, 4]), np.array([1, 1])),
        EmittedMatches(10.0, 20.0, np.array([0]), np.array([2])),
    ]
    assert run.throughput == 5.0
    assert (run.latency(0.25), run.latency(0.5), run.latency(0.95)) == (1.0, 4.0, 20.0)
    assert (run.time_to(0.5), run.time_to(0.75)) == (5.0, 15.0)
    assert [cost(run, target) for target in TARGETS] == [20.0, 20.0, 5.0]


def test_a_run_without_matches_has_metrics():
    run = SimulatedRun("npj", "w", rows=10, finished=5.0)
    assert (run.latency(), run.time_to(0.5), run.throughput) == (0.0, 5.0, 2.0)


def test_all_algorithms_find_the_same_matches(field):
    for made in (TINY.make("streaming"), TINY.make("resting").at_rest()):
        measured = measure(field, made, 1)
        assert measured.agree and measured.matches > 0
        assert tuple(measured.runs) == TREE_ALGORITHMS


def test_on_one_thread_both_schemes_of_distribution_are_one_program(field):
    runs = measure(field, TINY.make("tiny"), 1).runs
    assert field.threads == 1
    for name in ("shj", "pmj"):
        one, other = runs[f"{name}_jm"], runs[f"{name}_jb"]
        assert (one.busy, one.finished) == (other.busy, other.finished)
        assert (one.algorithm, other.algorithm) == (f"{name}_jm", f"{name}_jb")
