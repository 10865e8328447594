"""A model of five numbers is found again in what it made, and says when it does not fit."""

from __future__ import annotations

from dataclasses import astuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.scale.model import Job, Measured, Model, fit, off_by, shown

COSTS = st.floats(0, 1e-5) | st.just(0.0)
JOBS = [
    Job(rows, rows // spread, tasks, cores, keys)
    for keys in (100, 10_000)
    for rows in (1_000_000, 2_000_000, 4_000_000)
    for spread in (10, 1000)
    for tasks, cores in ((1, 2), (2, 2), (8, 2))
]


@given(st.floats(0.01, 2), COSTS, COSTS, COSTS, st.floats(0, 0.1))
def test_a_model_is_found_again_in_what_it_predicts(start, row, bit, result, task):
    made = Model(start, row, bit, result, task)
    found = fit([Measured(job, made.work(job)) for job in JOBS])
    unseen = Job(32_000_000, 40_000, 16, 4, 1_000)
    assert found.seconds(unseen) == pytest.approx(made.seconds(unseen), rel=1e-3, abs=1e-3)


def test_a_little_noise_moves_a_prediction_a_little():
    made, random = Model(0.4, 5e-8, 1e-9, 2e-7, 0.04), np.random.default_rng(3)
    found = fit([Measured(job, made.work(job) * random.normal(1, 0.03)) for job in JOBS])
    unseen = Measured(Job(8_000_000, 80_000, 8, 2), made.work(Job(8_000_000, 80_000, 8, 2)))
    assert abs(off_by(found, unseen)) < 0.1


def test_what_the_model_cannot_say_shows_as_an_error():
    squares = [Measured(Job(rows, 0, 1, 1), (rows / 1e6) ** 2) for rows in (1_000_000, 2_000_000, 4_000_000)]
    assert abs(off_by(fit(squares), Measured(Job(16_000_000, 0, 1, 1), 256.0))) > 0.2


def test_no_part_is_negative_even_where_that_would_fit_better():
    falling = [Measured(Job(rows, 0, 1, 1), 2 - rows / 1e7) for rows in (1_000_000, 2_000_000, 4_000_000)]
    found = fit(falling)
    assert min(astuple(found)) >= 0


def test_more_cores_than_tasks_do_not_help():
    model = Model(0.0, 1e-6, 0.0, 0.0, 0.0)
    assert model.seconds(Job(1_000_000, 0, 2, 2)) == model.seconds(Job(1_000_000, 0, 2, 64)) == 0.5


def test_a_model_is_printed_in_units_people_know():
    made = shown(Model(0.5, 1e-7, 1e-9, 2e-6, 0.04))
    rows = "100.0 ns a row + 1.00 ns a row and doubling of keys"
    assert made == f"0.50 s + {rows} + 2000 ns a result + 40 ms a task"
