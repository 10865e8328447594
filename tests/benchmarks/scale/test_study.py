"""The study runs from end to end, on little data; the planner is the one of Spark jobs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from benchmarks.scale import measure
from benchmarks.scale.model import Model
from benchmarks.scale.processors import FamilyClock, worked
from benchmarks.scale.study import SCENES, simulated, study


def test_three_sizes_are_fitted_and_a_fourth_is_kept_unseen(tmp_path):
    way = measure.in_process(2)
    found = study(way, 80_000, tmp_path, 2, lambda text: None)
    assert {measured.job.keys for measured in found.unseen} == set(measure.KEYS)
    assert sorted({measured.job.rows for measured in found.fitted}) == [10_000, 20_000, 40_000]
    assert {measured.job.rows for measured in found.unseen} == {80_000}
    assert {measured.job.tasks for measured in found.unseen} == {1, 2}
    assert min(measured.clock for measured in found.fitted) > 0 and found.worst >= 0


def test_overlap_makes_more_results(tmp_path):
    lake = measure.write_lake(tmp_path, 8_000, 100)
    counts = [measure.query(lake, overlap).collect().num_rows for overlap in (1, 10)]
    assert counts[1] > 5 * counts[0] > 0


def test_every_scene_is_planned_and_reads_all_rows():
    outcomes = simulated(Model(1.0, 1e-8, 1e-10, 1e-7, 0.05), terabytes=0.5, cores=50)
    assert [scene for scene, _ in outcomes] == list(SCENES)
    for scene, made in outcomes:
        assert made.read_again >= 1.0
        assert made.tasks <= 50 * scene.waves
    ordered = outcomes[0][1]
    assert ordered.read_again == 1.0
    assert abs(ordered.seconds / ordered.predicted - 1) < 0.25


def test_the_work_of_children_counts_when_they_have_ended():
    burn = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
    family = FamilyClock()
    before = family()
    subprocess.run([sys.executable, "-c", burn], check=True)
    assert family() - before >= 0.2  # of 0.3, in ticks of 0.01 for each of two clocks


def processes(folder, used):
    """Write what the system says of processes: by number, the parent and the ticks it has used."""
    (folder / "self").mkdir(exist_ok=True)
    for pid, (parent, own) in used.items():
        (folder / str(pid)).mkdir(exist_ok=True)
        fields = ["S", str(parent), *["0"] * 9, str(own), "0", "0", "0", *["0"] * 4, str(pid)]
        (folder / str(pid) / "stat").write_text(f"{pid} (a b) {' '.join(fields)}")


def test_time_does_not_run_back_when_a_process_ends_that_nobody_waited_for(tmp_path):
    processes(tmp_path, {7: (1, 100), 8: (7, 50)})
    family = FamilyClock(7, tmp_path)
    before = family()
    (tmp_path / "8" / "stat").unlink()
    assert family() == before > 0


def test_waiting_is_no_work_and_the_work_of_all_processes_counts(tmp_path):
    tick = 1 / os.sysconf("SC_CLK_TCK")
    processes(tmp_path, {7: (1, 100), 8: (7, 50)})
    clock, work = worked(lambda: None, FamilyClock(7, tmp_path))
    assert clock > 0 and work == tick
    _, work = worked(lambda: processes(tmp_path, {7: (1, 103), 8: (7, 54)}), FamilyClock(7, tmp_path))
    assert work == pytest.approx(7 * tick)
