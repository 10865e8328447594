"""`penstock bench iawj` and `penstock doctor --calibrate`, on a few rows."""

import json

import pytest

from penstock.algorithms.joins.adapt.choose_join import FILE, load_trees
from penstock.algorithms.joins.adapt.default_trees import DEFAULT_TREES
from penstock.bench.iawj import calibrate, knobs, suite
from penstock.bench.iawj.sweeps import Sweep
from penstock.bench.iawj.workloads import Micro
from penstock.cli import joins
from penstock.operators.joins.build_algorithms import join_chooser, machine_name

TINY = Micro(4, 3, window_ms=5)


@pytest.fixture
def small(monkeypatch, tmp_path):
    monkeypatch.setattr(
        calibrate, "calibration", lambda scale: [("one", TINY), ("two", Micro(50, 50, window_ms=5))]
    )
    monkeypatch.setattr(calibrate, "calibration_in_order", lambda scale: [("in order", TINY)])
    monkeypatch.setattr(suite, "REST", (("tiny", TINY, 50.0),))
    monkeypatch.setattr(suite, "REAL", suite.REAL[3:])
    monkeypatch.setattr(suite, "sweeps", lambda scale: [Sweep(9, "rate", ((1.0, TINY),))])
    monkeypatch.setattr(suite, "bandwidth", lambda joins: 25e9)
    monkeypatch.setattr(joins, "QUICK", 0.001)
    for name in ("STEPS", "GROUPS", "BITS"):
        monkeypatch.setattr(knobs, name, getattr(knobs, name)[:1])
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


def test_the_join_benchmark_saves_a_run(penstock, small, tmp_path):
    path = tmp_path / "run.json"
    result = penstock("bench", "iawj", "--quick", "--threads", "1", "--json", path)
    assert result.exit_code == 0, result.output
    document = json.loads(path.read_text())
    assert all(each["agree"] for each in (*document["real"], *document["at_rest"], *document["rest"]))
    assert any("within 15 %" in figure["name"] for figure in document["figures"])
