"""The join benchmark on a few rows: workloads, the clock that jumps, metrics, what is reported and drawn."""

import json

import numpy as np
import pytest
from rich.console import Console

from benchmarks.iawj import knobs, real, suite
from benchmarks.iawj.auto import Choice, auto_figures, choices
from benchmarks.iawj.plot import save_join_plot
from benchmarks.iawj.real import REAL
from benchmarks.iawj.report import document_of, print_report
from benchmarks.iawj.suite import JoinOptions, run_suite
from benchmarks.iawj.sweeps import Sweep, grid_in_order, sweeps
from penstock.algorithms.joins.adapt.tree import IN_ORDER, TREE_ALGORITHMS, TREES, JoinChooser, Leaf
from penstock.algorithms.joins.adapt.window_statistics import observe
from penstock.calibration.calibrate import calibration, calibration_in_order, trees_of
from penstock.calibration.simulate import Measured, SimulatedRun, measure, open_join_field
from penstock.calibration.workloads import Micro

TINY = Micro(4, 3, duplicates=2, window_ms=10)


@pytest.fixture(scope="module")
def field():
    return open_join_field(1)


def silent(text):
    pass


# -- workloads --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", REAL)
def test_a_workload_brings_all_its_rows_within_the_window(make):
    made = make(0.01)
    for value in (made.left, made.right):
        assert value.arrived[-1] == value.rows == len(value.codes)
        assert (np.diff(value.arrived) >= 0).all()
        assert len(value.arrived) == max(made.window_ms, 1)


def test_calibration_uses_none_of_the_points_that_are_tested():
    tested = {micro for sweep in sweeps() for _, micro in sweep.points}
    assert not tested & {micro for _, micro in calibration()}
    assert not {m.seed for m in tested} & {m.seed for _, m in calibration()}
    listed, learnt = ({micro for _, micro in make()} for make in (grid_in_order, calibration_in_order))
    assert not listed & learnt
    assert not {m.seed for m in listed} & {m.seed for m in learnt}


# -- auto ----------------------------------------------------------------------------------------------------


def pretended(**finished):
    runs = {name: SimulatedRun(name, "w", 100, finished=finished.get(name, 90.0)) for name in TREE_ALGORITHMS}
    return Measured("w", observe(np.arange(9), np.arange(9)), 0, runs)


def test_a_choice_is_judged_by_the_best_of_the_eight():
    made = list(choices(JoinChooser(dict.fromkeys(TREES, Leaf("prj"))), [pretended(npj=10.0, prj=12.0)]))
    throughput = made[0]
    assert (throughput.algorithm, throughput.best, throughput.ratio) == ("prj", "npj", 1.2)
    near = [Choice("w", "latency", "npj", "npj", ratio, ()) for ratio in (1.0, 1.1, 1.15, 3.0)]
    figures = {figure.name: figure for figure in auto_figures(near)}
    assert figures["auto, latency (4 points): within 15 % of the best"].value == 75.0
    assert figures["auto, latency (4 points): worst / best"].met is False


def test_trees_are_grown_for_every_target():
    trees = trees_of([pretended(mway=10.0)], [pretended(mpass=10.0)])
    assert trees["throughput"] == Leaf("mway", 0.0)
    assert trees[IN_ORDER] == Leaf("mpass", 0.0)
    assert set(trees) == set(TREES)


# -- the whole suite -----------------------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch):
    """A few rows and one point of each series."""
    monkeypatch.setattr(suite, "REST", (("tiny", Micro(5, 5, window_ms=10), 50.0),))
    monkeypatch.setattr(suite, "sweeps", lambda scale: [Sweep(9, "rate", ((1.0, TINY), (2.0, TINY)))])
    monkeypatch.setattr(suite, "bandwidth", lambda joins: 12.5e9)
    monkeypatch.setattr("penstock.calibration.calibrate.calibration", lambda scale: [("c", TINY)])
    monkeypatch.setattr("penstock.calibration.calibrate.calibration_in_order", lambda scale: [("o", TINY)])
    monkeypatch.setattr(real, "WINDOW_MS", 10)
    for name, value in (("STEPS", (0.5,)), ("GROUPS", (1, 2)), ("BITS", (0, 3))):
        monkeypatch.setattr(knobs, name, value)


def test_the_suite_prints_saves_and_draws_every_figure(small, field, tmp_path):
    report = run_suite(field, JoinOptions(scale=0.001, repeat=1), silent)
    console = Console(width=200)
    with console.capture() as captured:
        print_report(console, report)
    printed = captured.get()
    for text in (
        "data at rest",
        "figures 5, 6",
        "figure 7",
        "figure 9",
        "figure 15",
        "figure 18",
        "tree for latency",
        "pairs in order",
        "tree for in order",
    ):
        assert text in printed
    assert "DIFFER" not in printed
    document = json.loads(json.dumps(document_of(report, "now", {"cpu": "a test"})))
    assert {row["number"] for row in document["knobs"]} == {15, 16, 17, 18}
    assert {row["met"] for row in document["figures"] if "25 GB/s" in row["name"]} == {True}
    assert len(document["auto"]) == 2 * 3 + 2 + len(list(grid_in_order()))
    path = tmp_path / "joins.png"
    save_join_plot(path, document)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_bandwidth_is_measured_by_the_clock_of_the_joins(field):
    assert 1e8 < suite.bandwidth(field, megabytes=4) < 1e13


def test_the_figure_at_rest_is_scaled_to_a_core_that_reads_25_gb_a_second(field):
    measured = measure(field, TINY.make("t").at_rest(), 1)
    plain, scaled = suite.rest_figures("t", measured, 50.0, speed=12.5e9)
    assert scaled.value == pytest.approx(plain.value / 2)


def test_windows_are_scaled_and_rates_stay():
    whole, tenth = ([micro for sweep in sweeps(scale) for _, micro in sweep.points] for scale in (1.0, 0.1))
    for one, other in zip(whole, tenth, strict=True):
        assert (one.left_rate, one.right_rate) == (other.left_rate, other.right_rate)
        assert other.window_ms == one.window_ms // 10
