"""The window benchmarks from the command line, on a few rows and few points."""

import json

import pytest

from penstock.bench import windows
from penstock.bench.swag import suite


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
