"""The adaptive loop without an operator: when a task is profiled, which choices wait, what the record says."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.runtime.adapt.controller import Controller, Policy
from penstock.runtime.adapt.history import MOST_KEPT, Adaptation, record
from penstock.runtime.adapt.machine import Machine, this_machine
from penstock.runtime.adapt.sensor import Sensor

TASK = 10_000
BY_HAND = Policy(patience=0, task=TASK, every=4, wait=100, clock=lambda: 0)


def controller(policy: Policy = BY_HAND, adaptive: bool = True) -> Controller:
    return Controller("views", policy, [], adaptive)


def test_nothing_is_profiled_before_so_many_rows() -> None:
    slow = controller(Policy(patience=3 * TASK, clock=lambda: 0))
    dues = []
    for _ in range(3):
        slow.folded(TASK, TASK, TASK)
        dues.append(slow.due)
    assert dues == [False, False, True]


def test_small_pushes_that_are_not_sensed_count_too() -> None:
    slow = controller(Policy(patience=3 * TASK, clock=lambda: 0))
    slow.folded(10, 10, 10, unsensed=3 * TASK)
    assert slow.due and slow.rows == 3 * TASK + 10


def test_without_changes_profiles_become_rare() -> None:
    loop, gaps = controller(), []
    for _ in range(7):
        tasks = 0
        while not loop.due:
            loop.folded(TASK, TASK, TASK)
            tasks += 1
        gaps.append(tasks)
        loop.profiled(changed=False)
    assert gaps == [0, 8, 16, 32, 64, 64, 64]


def test_a_change_beyond_noise_asks_for_a_profile_at_once() -> None:
    loop = controller()
    loop.profiled(changed=False)
    for _ in range(6):
        loop.folded(TASK, TASK, TASK)
    assert not loop.due
    for _ in range(2):
        loop.folded(TASK, TASK, 3 * TASK)
    assert loop.due


def test_a_run_that_does_not_adapt_is_never_due() -> None:
    loop = controller(adaptive=False)
    loop.folded(TASK, TASK, 10**12)
    assert not loop.due


def test_a_choice_that_failed_waits_twice_as_long_each_time() -> None:
    loop, waits = controller(), []
    for _ in range(4):
        loop.give_way("key table", "dense", "hash", "keys lie apart")
        before = loop.rows
        while not loop.may("key table"):
            loop.folded(10, 10, 10)
        waits.append(loop.rows - before)
        assert loop.may("sums")
    assert waits == [100, 200, 400, 800]


def test_workers_that_meet_the_same_obstacle_report_it_once() -> None:
    loop = controller()
    for _ in range(2):
        loop.give_way("sums", "64 bits", "128 bits", "a sum left 64 bits")
    assert len(loop.adaptations) == 1


def test_the_gain_of_a_change_is_measured() -> None:
    loop = controller()
    for cost in (4, 4, 4, 4):
        loop.folded(TASK, TASK, cost * TASK)
    loop.change("key table", "hash", "dense", "keys lie together")
    for _ in range(4):
        loop.folded(TASK, TASK, 2 * TASK)
    (change,) = loop.adaptations
    assert change.gain == pytest.approx(2.0)
    assert (change.row, change.operator) == (4 * TASK, "views")


def test_noise_is_no_change() -> None:
    sensor = Sensor()
    costs = [100, 130, 90, 110, 120, 80, 105, 125, 95] * 5
    assert not any(sensor.take(TASK, TASK // 2, cost * TASK) for cost in costs)


def test_other_rows_are_a_change_even_at_the_same_cost() -> None:
    sensor = Sensor()
    found = [sensor.take(TASK, accepted, TASK) for accepted in [9_000] * 6 + [2_000] * 2]
    assert found == [False] * 7 + [True]


def test_the_record_is_bounded() -> None:
    kept: list[Adaptation] = []
    for row in range(3 * MOST_KEPT):
        record(kept, Adaptation("views", row, 0.0, "sums", "64 bits", "128 bits", "why"))
    assert len(kept) <= MOST_KEPT and kept[-1].row == 3 * MOST_KEPT - 1


def test_caches_are_read_from_the_system(tmp_path: Path) -> None:
    for number, (level, size) in enumerate([("1", "32K"), ("2", "512K"), ("3", "8M")]):
        entry = tmp_path / f"index{number}"
        entry.mkdir()
        (entry / "level").write_text(level)
        (entry / "size").write_text(f"{size}\n")
    assert this_machine(3, tmp_path) == Machine(3, 512 << 10, 8 << 20)
    assert this_machine(3, tmp_path / "none") == Machine(3)
