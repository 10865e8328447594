"""Figures and reports from known outcomes."""

import json
from dataclasses import replace

import pytest
from rich.console import Console

from benchmarks.figures import Case, Figure, fastest, lap_by_lap, rivals, speed_figures
from benchmarks.measure import Outcome
from benchmarks.plot import save_plot
from benchmarks.report import print_case, save_json, to_json
from benchmarks.suites import hot_figures, string_figures


def outcome(name, group, threads, seconds, **more):
    return Outcome(
        name, group, threads, seconds=[seconds, seconds * 2], cpu_seconds=[seconds], **{"agrees": True} | more
    )


OUTCOMES = (
    outcome("C++ 1 thread", "c++", 1, 1.0),
    outcome("C++ 2 threads", "c++", 2, 0.5),
    outcome("C++ reading alone, 1 thread", "reading", 1, 0.6),
    outcome("C++ reading alone, 2 threads", "reading", 2, 0.4),
    outcome("Penstock 1 thread", "penstock", 1, 0.8),
    outcome("Penstock 2 threads", "penstock", 2, 0.5),
    outcome("Polars streaming", "peer", 2, 2.0),
    outcome("DuckDB on Arrow", "peer", 2, 1.5),
    outcome("pandas", "peer", 1, 0.1),
)
CASE = Case("ysb-keyed", 1_000, 10, OUTCOMES, speed_figures(OUTCOMES, (1, 2), rival_target=2.5))


def test_speed_figures_are_ratios_within_the_run():
    assert {figure.name: figure.value for figure in CASE.figures} == {
        "Penstock / C++, 1 thread(s)": pytest.approx(1.25),
        "Penstock / C++, 1 thread(s), lap by lap": pytest.approx(1.25),
        "Penstock / C++, 1 thread(s), by processor time": pytest.approx(1.25),
        "Penstock / C++, 2 thread(s)": pytest.approx(1.0),
        "Penstock / C++, 2 thread(s), lap by lap": pytest.approx(1.0),
        "Penstock / C++, 2 thread(s), by processor time": pytest.approx(1.0),
        "Penstock 2 threads / best of Polars and DuckDB": pytest.approx(3.0),
        "Penstock 2 threads / 1": pytest.approx(1.6),
        "C++ 2 threads / 1": pytest.approx(2.0),
        "C++ that reads the same columns and does nothing, 2 threads / 1": pytest.approx(1.5),
    }


def test_lap_by_lap_is_the_median_of_pairs_and_none_where_one_is_wrong():
    theirs = Outcome("C++ 1 thread", "c++", 1, seconds=[1.0, 9.0, 2.0], agrees=True)
    ours = Outcome("Penstock 1 thread", "penstock", 1, seconds=[2.0, 3.0, 2.0], agrees=True)
    assert lap_by_lap([theirs], [ours]) == 1.0
    assert lap_by_lap([theirs], []) is None
    assert lap_by_lap([replace(theirs, agrees=False)], [ours]) is None


def test_pandas_is_no_rival_however_fast():
    assert {found.name for found in rivals(OUTCOMES)} == {"Polars streaming", "DuckDB on Arrow"}


@pytest.mark.parametrize("spoilt", [{"agrees": False}, {"error": "boom"}])
def test_wrong_or_failed_outcomes_do_not_count_as_fast(spoilt):
    assert fastest([outcome("wrong", "peer", 1, 0.1, **spoilt), outcome("right", "peer", 1, 1.0)]) == 1.0


@pytest.mark.parametrize(
    ("figure", "met"),
    [
        (Figure("f", 2.0, 1.7), True),
        (Figure("f", 1.0, 1.7), False),
        (Figure("f", 1.0, 1.7, at_least=False), True),
        (Figure("f", 2.0, 1.7, at_least=False), False),
        (Figure("f", None, 1.7), None),
        (Figure("f", 1.0), None),
    ],
)
def test_a_figure_knows_whether_it_is_met(figure, met):
    assert figure.met is met


def test_a_missing_contender_leaves_its_figures_empty():
    without = [found for found in OUTCOMES if found.group != "penstock"]
    figures = speed_figures(without, (1, 2), rival_target=2.5)
    assert [figure.value for figure in figures] == [*[None] * 8, pytest.approx(2.0), pytest.approx(1.5)]


def test_strings_are_compared_with_integers():
    outcomes = [outcome("Penstock int", "penstock", 2, 1.0), outcome("Penstock string", "penstock", 2, 1.5)]
    assert string_figures(outcomes)[0].value == pytest.approx(1.5)


def test_a_hot_key_is_compared_with_uniform_keys():
    outcomes = [outcome("Penstock uniform", "penstock", 2, 2.0), outcome("Penstock hot", "penstock", 2, 1.0)]
    assert hot_figures(outcomes)[0].met


def printed(case):
    console = Console(width=120)
    with console.capture() as captured:
        print_case(console, case)
    return captured.get()


def test_the_table_shows_speed_and_ratios():
    row = next(line for line in printed(CASE).splitlines() if "Penstock 1 thread " in line)
    cells = [cell.strip() for cell in row.strip("│ ").split("│")]
    assert cells == ["Penstock 1 thread", "1", "800.0", "800.0", "0.0", "1.25", "1.88", "agrees"]


def test_the_table_says_who_failed_and_why():
    broken = Outcome("Penstock", "penstock", 1, error="ValueError: [red]no[/red]")
    text = printed(Case("c", 1, 1, (broken,)))
    assert "Penstock failed: ValueError: [red]no[/red]" in text


def test_ratios_are_not_taken_across_questions():
    other = outcome("Penstock hot", "penstock", 2, 1.0, question="hot")
    row = next(
        line for line in printed(Case("c", 1, 1, (*OUTCOMES, other))).splitlines() if "Penstock hot" in line
    )
    assert [cell.strip() for cell in row.strip("│ ").split("│")][-3:-1] == ["-", "-"]


def test_a_run_is_saved_as_json_that_reads_back(tmp_path):
    document = to_json("ysb", "now", {"cpu": "x"}, [CASE], [Figure("import", 0.1, 0.2, at_least=False)])
    save_json(tmp_path / "run.json", document)
    read = json.loads((tmp_path / "run.json").read_text())
    assert read == document
    assert read["cases"][0]["outcomes"][0]["rows_per_second"] == 1_000
    assert read["figures"][0]["met"] is True


def test_a_run_with_a_sweep_is_drawn_as_a_picture(tmp_path):
    pytest.importorskip("matplotlib")
    swept = [Case(f"keys {keys}", 1_000, keys, OUTCOMES, sweep="keys", point=keys) for keys in (1, 10)]
    named = [
        Case(name, 1_000, 1, OUTCOMES, sweep="aggregates", point=at) for at, name in enumerate(("sum", "min"))
    ]
    save_plot(tmp_path / "run.png", to_json("ysb", "now", {"cpu": "x"}, [CASE, *swept, *named], []))
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")
