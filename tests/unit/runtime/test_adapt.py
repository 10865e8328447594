"""The adaptive loop without an operator: when a task is profiled, which choices wait, what the record says."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from penstock.runtime.adapt.controller import (
    MOST_KEPT,
    Adaptation,
    Controller,
    Machine,
    Policy,
    Sensor,
    record,
    this_machine,
)
from penstock.runtime.adapt.counters import SoftwareCounters, open_counters

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


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("probe length", 1.2, 3.0),
        ("merge ns", 0.5, 4.0),
        ("branch misses", 0.02, 0.4),
        ("cache misses", 0.1, 0.5),
    ],
)
def test_other_sensors_ask_for_a_profile_as_well(name: str, before: float, after: float) -> None:
    sensor = Sensor()
    found = [sensor.take(TASK, TASK, TASK, {name: value}) for value in [before] * 6 + [after] * 2]
    assert found == [False] * 7 + [True]


@pytest.mark.parametrize("name", ["occupancy", "page faults", "preemptions"])
def test_what_grows_by_itself_is_only_shown(name: str) -> None:
    sensor = Sensor()
    assert not any(sensor.take(TASK, TASK, TASK, {name: value}) for value in [0.0] * 6 + [9.0] * 6)
    assert name in sensor.show()


class Stepping:
    """Counters that grow by `by` at each reading."""

    def __init__(self, by: int) -> None:
        self.by, self.count = by, 0

    def read(self) -> dict[str, int]:
        self.count += self.by
        return {"branch misses": self.count}


def test_counters_are_read_in_one_task_of_sixteen_and_ask_for_a_profile() -> None:
    counters = Stepping(TASK // 10)
    loop = controller(
        Policy(patience=0, task=TASK, every=1 << 20, clock=lambda: 0, counters=lambda: counters)
    )
    loop.profiled(changed=False)
    dues = []
    for task in range(16 * 12):
        counters.by = TASK // 10 if task < 16 * 8 else TASK
        loop.begin()
        loop.folded(TASK, TASK, TASK)
        dues.append(loop.due)
    assert counters.count == (8 * TASK // 10 + 4 * TASK) * 2
    assert dues.index(True) == 16 * 10 - 1  # the second reading beyond noise
    assert loop.sensor.mean("branch misses") == 1.0


def test_counters_fall_back_to_those_of_the_kernel() -> None:
    read, write = os.pipe()
    os.close(write)
    opened = iter([read, -1])  # the second hardware counter is missing
    found = open_counters(lambda event, leader: next(opened))
    assert isinstance(found, SoftwareCounters)
    assert set(found.read()) == {"page faults", "preemptions"}
    with pytest.raises(OSError):
        os.close(read)  # the first one was closed


def test_a_group_of_hardware_counters_is_read_at_once() -> None:
    read, write = os.pipe()
    spare = os.dup(read)
    opened = iter([read, spare])
    counters = open_counters(lambda event, leader: next(opened))
    os.write(write, struct.pack("=3Q", 2, 11, 7))
    assert dict(counters.read()) == {"branch misses": 11, "cache misses": 7}
    os.close(write)


def test_the_system_opens_counters_or_says_no() -> None:
    assert all(count >= 0 for count in open_counters().read().values())


def test_merges_are_counted_with_the_next_task() -> None:
    loop = controller()
    loop.merged(5 * TASK)
    loop.folded(TASK, TASK, TASK)
    loop.folded(TASK, TASK, TASK)
    assert loop.sensor.mean("merge ns") == 5.0


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
