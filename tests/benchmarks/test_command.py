"""The suites from the command line, on a few rows and few points."""

import json

import pytest

from benchmarks import run, windows
from benchmarks.iawj import command, knobs
from benchmarks.iawj import suite as join_suite
from benchmarks.iawj.sweeps import Sweep
from benchmarks.swag import suite
from penstock.calibration import calibrate
from penstock.calibration.workloads import Micro
from penstock.cli import bench


@pytest.fixture
def small(monkeypatch):
    """Keep one point of each sweep and one question: the points are tested on their own."""
    for name, value in (
        ("SIZES", (8,)),
        ("BARS", {16: 820.0}),
        ("UNEVEN", ((100, 7),)),
        ("OTHERS", ()),
        ("SECOND_SLIDES", (16,)),
        ("QUESTIONS", suite.QUESTIONS[3:4]),
    ):
        monkeypatch.setattr(suite, name, value)
    monkeypatch.setattr(windows, "OVERLAPS", (1, 10))
    monkeypatch.setattr(windows, "COUNTS", (10,))
    monkeypatch.setattr(windows, "AGGREGATES", {"sum": windows.AGGREGATES["sum"]})


def saved_run(penstock, tmp_path, *arguments):
    path = tmp_path / "run.json"
    result = penstock("bench", *arguments, "--rows", "20000", "--keys", "20", "--json", path)
    assert result.exit_code == 0, result.output
    return result.output, json.loads(path.read_text())


def answers(document):
    outcomes = [outcome for case in document["cases"] for outcome in case["outcomes"]]
    return {outcome["agrees"] for outcome in outcomes if outcome["error"] is None}


def test_the_sliding_window_benchmark_compares_sweeps_and_questions(penstock, small, tmp_path):
    output, document = saved_run(penstock, tmp_path, "swag", "--quick", "--repeat", "3")
    assert all(text in output for text in ("by slide", "spiky arrivals", "keyed sliding mean", "overlap"))
    assert answers(document) == {True}
    assert any("kernel at 25 GB/s" in figure["name"] for figure in document["figures"])


def test_the_matrix_of_windows_is_one_table_for_each_series(penstock, small, tmp_path):
    output, document = saved_run(penstock, tmp_path, "ysb", "--windows")
    assert all(text in output for text in ("sliding windows of 10 s", "count windows", "zipf keys"))
    assert answers(document) == {True}
    assert len(document["cases"]) == 5


def test_the_benchmark_saves_a_run_in_which_all_answers_agree(penstock, monkeypatch, tmp_path):
    for name in ("startup_figures", "memory_figures"):  # fresh interpreters, tested on their own
        monkeypatch.setattr(run, name, tuple)
    saved = tmp_path / "run.json"
    flags = ["--rows", "20000", "--keys", "50", "--repeat", "3", "--strings", "--hot", "--json", saved]
    result = penstock("bench", "ysb", *flags)
    assert result.exit_code == 0, result.output
    cases = json.loads(saved.read_text())["cases"]
    assert len(cases) == 3
    ours = [o for case in cases for o in case["outcomes"] if o["group"] == "penstock"]
    assert len(ours) == 8
    assert [o["error"] for o in ours] == [None] * 8
    assert all(o["agrees"] for case in cases for o in case["outcomes"] if o["error"] is None)


TINY = Micro(4, 3, window_ms=5)


@pytest.fixture
def small_joins(monkeypatch, tmp_path):
    monkeypatch.setattr(calibrate, "calibration", lambda scale: [("one", TINY)])
    monkeypatch.setattr(calibrate, "calibration_in_order", lambda scale: [("in order", TINY)])
    monkeypatch.setattr(join_suite, "REST", (("tiny", TINY, 50.0),))
    monkeypatch.setattr(join_suite, "REAL", join_suite.REAL[3:])
    monkeypatch.setattr(join_suite, "sweeps", lambda scale: [Sweep(9, "rate", ((1.0, TINY),))])
    monkeypatch.setattr(join_suite, "bandwidth", lambda joins: 25e9)
    monkeypatch.setattr(command, "QUICK", 0.001)
    for name in ("STEPS", "GROUPS", "BITS"):
        monkeypatch.setattr(knobs, name, getattr(knobs, name)[:1])
    monkeypatch.setenv("PENSTOCK_CACHE_DIR", str(tmp_path))


def test_the_join_benchmark_saves_a_run(penstock, small_joins, tmp_path):
    path = tmp_path / "run.json"
    result = penstock("bench", "iawj", "--quick", "--threads", "1", "--json", path)
    assert result.exit_code == 0, result.output
    document = json.loads(path.read_text())
    assert all(row["agree"] for row in (*document["real"], *document["at_rest"], *document["rest"]))
    assert any("within 15 %" in figure["name"] for figure in document["figures"])


def test_without_the_repository_the_command_says_where_the_benchmarks_are(penstock, monkeypatch, tmp_path):
    monkeypatch.setattr(bench, "is_repository", lambda folder: False)
    result = penstock("bench", "ysb")
    assert result.exit_code == 2
    assert "make bench SUITE=ysb" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_package_of_the_same_name_is_not_taken_for_the_benchmarks(tmp_path):
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "command.py").touch()
    assert not bench.is_repository(tmp_path)


def test_a_wrong_flag_of_a_suite_is_misuse(penstock):
    result = penstock("bench", "ysb", "--peers", "dbase")
    assert result.exit_code == 2
    assert "dbase" in result.stderr
