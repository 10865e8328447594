"""Simulated jobs keep what any job must: all rows are read, and no core does two things at once."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.scale.model import Model
from benchmarks.scale.simulate import Lake, fragments, makespan, simulate


@given(st.lists(st.floats(0, 10), max_size=50), st.integers(1, 8))
def test_no_schedule_beats_the_longest_task_or_a_fair_share_and_none_idles(seconds, cores):
    took = makespan(seconds, cores)
    longest, share = max(seconds, default=0.0), sum(seconds) / cores
    assert max(longest, share) - 1e-9 <= took <= share + longest + 1e-9


def test_row_groups_follow_each_other_and_reach_back_as_far_as_asked():
    ordered = fragments(Lake(1_000, 10_000, burst=5.0))
    assert all(a.time_max < b.time_min for a, b in pairwise(ordered))
    mixed = fragments(Lake(1_000, 10_000, disorder=2.0))
    assert any(a.time_max >= b.time_min for a, b in pairwise(mixed))


def chunks(parts, tasks):
    step = -(-len(parts) // tasks)
    return [parts[begin : begin + step] for begin in range(0, len(parts), step)]


def test_a_simulated_job_reads_every_row_once_if_the_plan_does():
    parts = fragments(Lake(10_000, 1_000_000))
    outcome = simulate(parts, chunks, Model(1.0, 1e-7, 0.0, 0.0, 0.05), tasks=500, cores=100, per_row=0.0)
    assert outcome.read_again == pytest.approx(1.0)
    assert outcome.tasks == 500 and outcome.row_groups == 10_000
    assert 0 < outcome.busy <= 1
    assert outcome.seconds >= 0.9 * outcome.predicted


def test_one_task_leaves_all_cores_but_one_idle():
    parts = fragments(Lake(100, 1_000))
    outcome = simulate(parts, chunks, Model(0.0, 1e-6, 0.0, 0.0, 0.0), tasks=1, cores=10, per_row=0.0)
    assert outcome.busy == pytest.approx(0.1)


def test_slow_tasks_hold_a_job_up_less_the_more_there_are():
    parts = fragments(Lake(10_000, 1_000_000))
    model = Model(0.0, 1e-7, 0.0, 0.0, 0.01)
    took = [simulate(parts, chunks, model, tasks, 100, 0.0, unlucky=0.02).seconds for tasks in (300, 3_000)]
    assert took[1] < 0.9 * took[0]
