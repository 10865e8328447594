"""The join benchmark on a few rows: workloads, the clock that jumps, metrics, what is reported and drawn."""

import json
from itertools import count

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
from penstock.algorithms.joins.adapt.choose_join import JoinChooser
from penstock.algorithms.joins.adapt.tree import IN_ORDER, TARGETS, TREE_ALGORITHMS, TREES, Leaf
from penstock.algorithms.joins.adapt.window_statistics import observe
from penstock.calibration.calibrate import trees_of
from penstock.calibration.field import Measured, cost, measure, open_join_field
from penstock.calibration.ordered import calibration_in_order
from penstock.calibration.points import calibration
from penstock.calibration.simulate import EmittedMatches, SimulatedRun, later_rows, simulate
from penstock.calibration.workloads import Micro, Workload, WorkloadSide

TINY = Micro(4, 3, duplicates=2, window_ms=10)


@pytest.fixture(scope="module")
def field():
    return open_join_field(1)


def silent(text):
    pass


def side(codes, arrived):
    return WorkloadSide(np.array(codes), np.array(arrived))


def clock_of(step):
    """A clock that goes on by some seconds each time it is read."""
    ticks = count()
    return lambda: next(ticks) * step


# -- workloads --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", REAL)
def test_a_workload_brings_all_its_rows_within_the_window(make):
    made = make(0.01)
    for value in (made.left, made.right):
        assert value.arrived[-1] == value.rows == len(value.codes)
        assert (np.diff(value.arrived) >= 0).all()
        assert len(value.arrived) == max(made.window_ms, 1)


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


def test_calibration_uses_none_of_the_points_that_are_tested():
    tested = {micro for sweep in sweeps() for _, micro in sweep.points}
    assert not tested & {micro for _, micro in calibration()}
    assert not {m.seed for m in tested} & {m.seed for _, m in calibration()}
    listed, learnt = ({micro for _, micro in make()} for make in (grid_in_order, calibration_in_order))
    assert not listed & learnt
    assert not {m.seed for m in listed} & {m.seed for m in learnt}


# -- the clock and the metrics --------------------------------------------------------------------------------


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


def test_on_one_thread_both_schemes_of_distribution_are_one_program(field):
    runs = measure(field, TINY.make("tiny"), 1).runs
    assert field.threads == 1
    for name in ("shj", "pmj"):
        one, other = runs[f"{name}_jm"], runs[f"{name}_jb"]
        assert (one.busy, one.finished) == (other.busy, other.finished)
        assert (one.algorithm, other.algorithm) == (f"{name}_jm", f"{name}_jb")
