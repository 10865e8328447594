"""`penstock doctor --calibrate`, on a few rows."""

import pytest

from penstock.algorithms.joins.adapt.tree import DEFAULT_TREES, FILE, load_trees
from penstock.calibration import calibrate
from penstock.calibration.workloads import Micro
from penstock.operators.joins.build_algorithms import join_chooser, machine_name

TINY = Micro(4, 3, window_ms=5)


@pytest.fixture
def small(monkeypatch, tmp_path):
    monkeypatch.setattr(
        calibrate, "calibration", lambda scale: [("one", TINY), ("two", Micro(50, 50, window_ms=5))]
    )
    monkeypatch.setattr(calibrate, "calibration_in_order", lambda scale: [("in order", TINY)])
    monkeypatch.setenv("PENSTOCK_CACHE_DIR", str(tmp_path))


def test_a_calibration_is_saved_shown_and_used(penstock, small, tmp_path):
    assert join_chooser().trees is DEFAULT_TREES
    result = penstock("doctor", "--calibrate")
    assert result.exit_code == 0, result.output
    assert all(target in result.output for target in ("throughput", "latency", "progress"))
    trees = load_trees(tmp_path, machine_name()).trees
    assert join_chooser().trees == trees
    assert (tmp_path / FILE).stat().st_mode & 0o077 == 0


def test_without_a_cache_folder_a_calibration_is_only_shown(penstock, small, monkeypatch):
    monkeypatch.setenv("PENSTOCK_CACHE_DIR", "")
    result = penstock("doctor", "--calibrate")
    assert result.exit_code == 0, result.output
    assert "not saved" in result.output
