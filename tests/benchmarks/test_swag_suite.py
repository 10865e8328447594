"""The sliding-window suites on a few rows: who takes part, whose answers are checked, what is reported."""

from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from benchmarks import windows
from benchmarks.answers import agree, normalise
from benchmarks.figures import Case, Figure
from benchmarks.measure import Outcome, compare
from benchmarks.options import SuiteOptions
from benchmarks.reference import NoCompilerError
from benchmarks.reference.swag import load_swag
from benchmarks.swag import sweeps
from benchmarks.swag.catalogue import QUESTIONS, overlap_case
from benchmarks.swag.questions import Peer, question_case, question_contenders
from benchmarks.swag.subjects import MAIN, Shape, numbers, spiky
from benchmarks.swag.suite import BY_SIZE, flat_figures, points
from benchmarks.sweep_report import print_cases, summary
from benchmarks.workloads import YsbKeyed

ROWS = 40_000
POINT = sweeps.Point("by slide", "16", 16, 1024, 16)
BAR = 100.0


def silent(text):
    pass


@pytest.fixture(scope="module")
def reference():
    found = load_swag()
    if isinstance(found, NoCompilerError):
        pytest.skip(f"THE C++ REFERENCE IS NOT TESTED: {found}")
    return found


def printed(cases):
    console = Console(width=200)
    with console.capture() as captured:
        print_cases(console, cases)
    return captured.get()


@pytest.mark.parametrize("subject", MAIN, ids=str)
def test_a_point_compares_the_kernel_with_both_forms_of_the_reference(reference, subject):
    data = numbers(Shape.RANDOM, subject.dtype, ROWS)
    case = sweeps.count_case(subject, data, replace(POINT, bar=BAR), reference, 3, silent)
    kernels = [
        candidate for candidate in case.outcomes if candidate.name not in (sweeps.READ, sweeps.COLLECT)
    ]
    assert [(outcome.name, outcome.agrees) for outcome in kernels] == [
        (sweeps.CPP, True),
        (sweeps.PAPER, True),
        (sweeps.KERNEL, True),
    ]
    named = [figure.name for figure in case.figures]
    assert named == ["kernel / C++", "collect() / kernel", "kernel at 25 GB/s"]
    assert all(figure.value > 0 for figure in case.figures)


def test_a_contender_that_writes_nothing_into_the_recycled_buffer_is_found_out(reference):
    data = numbers(Shape.RANDOM, "int32", ROWS)
    honest, *_ = sweeps.count_contenders(MAIN[0], data, replace(POINT, whole=False), reference)
    out = np.empty(sweeps.windows_of(ROWS, POINT.size, POINT.every), np.int64)
    right = sweeps.recycled("right", lambda: reference.count("int32 sum", data, 1024, 16, out), out, "c++")
    lazy = sweeps.recycled("lazy", lambda: out.size, out, "penstock")
    assert [outcome.agrees for outcome in compare([honest, right, lazy], 3)] == [True, True, False]


@pytest.mark.parametrize(("gigabytes", "scaled"), [(25.0, 60.0), (12.5, 120.0)])
def test_speeds_are_scaled_to_a_core_that_reads_25_gb_a_second(gigabytes, scaled):
    data = np.zeros(60_000_000, np.int32)
    outcomes = [outcome(sweeps.KERNEL, 1.0), outcome(sweeps.READ, data.nbytes / gigabytes / 1e9)]
    _, figure = sweeps.count_figures(outcomes, data, BAR)
    assert figure.value == pytest.approx(scaled)
    assert figure.met is (scaled > BAR)


def test_without_a_compiler_the_kernel_is_still_measured():
    data = numbers(Shape.RANDOM, "int32", ROWS)
    case = sweeps.count_case(MAIN[0], data, POINT, NoCompilerError("no compiler"), 3, silent)
    fates = {outcome.name: outcome.error for outcome in case.outcomes}
    assert fates[sweeps.CPP] == "NoCompilerError: no compiler"
    assert fates[sweeps.KERNEL] is None
    assert case.figures[0].value is None


def test_time_windows_over_spiky_arrivals_agree_with_the_reference(reference):
    case = sweeps.time_case(spiky(ROWS), 64, 16, reference, 3, silent)
    assert [outcome.agrees for outcome in case.outcomes] == [True, True]


@pytest.mark.parametrize("asked", QUESTIONS, ids=lambda asked: asked.name)
def test_peers_agree_on_every_question(asked):
    """They agree with Penstock, whose answer comes first, or among themselves if it has none."""
    for name in ("polars", "duckdb", "pandas"):
        pytest.importorskip(name)
    table = asked.table(20_000)
    same_rows = replace(asked, peers=tuple(replace(peer, part=1) for peer in asked.peers))
    contenders = question_contenders(same_rows, table, ("polars", "duckdb", "pandas"), 2)
    outcomes = compare(contenders, 3)
    theirs = [outcome for outcome in outcomes if outcome.group == "peer"]
    assert [(outcome.error, outcome.agrees) for outcome in theirs] == [(None, True)] * len(asked.peers)


def test_slow_peers_are_asked_about_part_of_the_rows_and_so_is_penstock_once_more():
    pytest.importorskip("polars")
    asked = replace(QUESTIONS[0], part=1)
    slow = replace(asked, peers=(replace(asked.peers[0], part=4), replace(asked.peers[0], part=1)))
    contenders = question_contenders(slow, asked.table(1_000), ("polars",), 2)
    assert [(contender.name, contender.rows) for contender in contenders] == [
        ("Penstock", 1_000),
        ("Polars", 1_000),
        ("Penstock, 1/4", 250),
        ("Polars, 1/4", 250),
    ]


def test_a_peer_that_is_not_installed_is_a_failed_row():
    def absent(table, threads):
        raise ImportError("no such package")

    asked = replace(QUESTIONS[0], peers=(Peer("Polars", absent),))
    case = question_case(asked, 2_000, ("polars",), 1, 3, silent)
    assert case.outcomes[-1].error == "ImportError: no such package"
    assert case.figures[0].value is None


def test_overlap_is_compared_with_tumbling():
    case = overlap_case(ROWS, 3, 2, 3, silent)
    assert [outcome.error for outcome in case.outcomes] == [None, None]
    assert case.figures[0].value > 0


def test_a_quick_run_leaves_out_points_but_no_bar():
    options = SuiteOptions(4_000_000)
    full, quick = (
        list(points(MAIN[0], suite_options)) for suite_options in (options, replace(options, quick=True))
    )
    assert len(quick) < len(full)
    assert [point.bar for point in quick if point.bar] == [170, 820, 2_600, 5_000, 4_900]
    assert {point.name for point in quick} <= {point.name for point in full}


def test_windows_longer_than_the_data_are_not_swept():
    assert max(point.size for point in points(MAIN[0], SuiteOptions(2_000))) == 1024


def outcome(name, seconds, **more):
    return Outcome(name, "penstock", 1, seconds=[seconds], **{"agrees": True} | more)


def swept(name, seconds, *figures):
    return Case(name, 1_000, 1, (outcome(sweeps.KERNEL, seconds),), figures, sweep=f"{BY_SIZE}, int32 SUM")


def test_flatness_is_the_slowest_point_against_the_fastest():
    (figure,) = flat_figures([swept("8", 1.0), swept("16", 3.0), swept("32", 2.0)])
    assert figure.value == pytest.approx(3.0)
    assert not figure.met


def test_the_summary_gives_the_worst_point_of_a_sweep():
    ratios = [Figure("kernel / C++", value, 1.0) for value in (1.2, 0.9, None)]
    cases = [swept(name, 1.0, figure) for name, figure in zip("abc", ratios, strict=True)]
    (figure,) = summary([*cases, Case("other", 1, 1, (), (Figure("no target", 1.0),))])
    assert figure.name == f"{BY_SIZE}, int32 SUM: kernel / C++, worst at b"
    assert figure.value == 0.9


def test_a_sweep_is_one_table_with_a_line_for_each_point():
    lines = printed([swept("8", 1e-3, Figure("kernel / C++", 1.25, 1.0)), swept("16", 1e-4)]).splitlines()
    row = next(line for line in lines if "│ 8 " in line)
    assert [cell.strip() for cell in row.strip("│ ").split("│")] == ["8", "1.0", "1.25 x >= 1 x met", "agree"]
    row = next(line for line in lines if "│ 16 " in line)
    assert [cell.strip() for cell in row.strip("│ ").split("│")] == ["16", "10.0", "-", "agree"]


@pytest.mark.parametrize(
    ("spoilt", "cell", "line"),
    [
        ({"error": "not available: comes later"}, "n/a", "kernel: not available: comes later"),
        ({"error": "ValueError: boom"}, "failed", "kernel: ValueError: boom"),
        ({"agrees": False}, "differs", "8: the answer of kernel differs"),
    ],
)
def test_a_sweep_says_why_a_speed_is_missing(spoilt, cell, line):
    case = replace(swept("8", 1.0), outcomes=(outcome(sweeps.KERNEL, 1.0, **spoilt),))
    text = printed([case])
    assert f" {cell} " in text
    assert line in text


def test_a_case_outside_a_sweep_is_printed_on_its_own():
    assert "contender" in printed([replace(swept("8", 1.0), sweep="")])


def asked_of_ysb():
    spec = YsbKeyed(rows=60_000, keys=20)
    series = (windows.sliding_questions, windows.count_questions, windows.aggregate_questions)
    return [asked for several in series for _, _, asked in several(spec)]


@pytest.mark.parametrize("asked", asked_of_ysb(), ids=lambda asked: asked.name)
def test_peers_agree_on_every_window_of_ysb(asked):
    for name in ("polars", "duckdb"):
        pytest.importorskip(name)
    table = asked.table(30_000)
    made = (peer.make(table, 2) for peer in asked.peers)
    first, *others = [normalise(to_table(run())) for run, to_table in made]
    assert all(agree(answer, first) for answer in others)


def test_the_matrix_has_every_window_and_every_aggregate():
    names = [asked.name for asked in asked_of_ysb()]
    assert len(names) == len(windows.OVERLAPS) + len(windows.COUNTS) + 2 * len(windows.AGGREGATES)
    assert names[0] == "1 at a time, 20 keys"


def test_more_overlapping_windows_have_fewer_keys_so_that_results_fit():
    *_, last = windows.sliding_questions(YsbKeyed())
    assert last[2].keys < YsbKeyed().keys
