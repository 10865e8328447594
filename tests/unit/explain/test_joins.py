"""What `explain` says about the algorithm of a join."""

import pyarrow as pa
import pytest

import penstock as pk
from penstock.algorithms.joins.adapt.tree import TREES, Leaf, Split, save_trees

SCHEMA = {"t": "int64", "k": "int64", "v": "int64"}


@pytest.fixture(autouse=True)
def no_calibration(monkeypatch, tmp_path):
    monkeypatch.setenv("PENSTOCK_CACHE_DIR", str(tmp_path))


def explained(**options):
    left, right = (pk.stream(name, SCHEMA, time="t") for name in ("a", "b"))
    return left.join(right, on="k", window=pk.tumbling(10), **options).explain()


def test_an_algorithm_that_was_asked_for_is_named():
    assert "pairs by mway, as requested" in explained(algorithm="mway")


def test_auto_shows_the_tree_of_its_target():
    shown = explained(optimise="latency")
    assert "for latency (supplied with the package" in shown
    assert "rate < 55,000?" in shown
    assert "yes: shj_jm" in shown
    assert "rate <" not in explained()


def test_a_calibrated_tree_is_shown_instead(tmp_path):
    from penstock.operators.joins.build_algorithms import machine_name

    save_trees(
        tmp_path, machine_name(), dict.fromkeys(TREES, Split("rows", 77.0, Leaf("npj"), Leaf("mpass")))
    )
    shown = explained()
    assert "calibrated here" in shown
    assert "rows < 77?" in shown


def test_a_join_without_a_choice_of_algorithms_shows_none():
    left, right = (pk.stream(name, SCHEMA, time="t") for name in ("a", "b"))
    assert "by what a tree picks" not in left.join(right, on="k", within=(-5, 5)).explain()


def test_after_a_run_the_path_of_windows_is_summarised():
    rows = pa.table({"t": range(40), "k": [1, 2] * 20, "v": range(40)})
    left, right = (pk.stream(name, SCHEMA, time="t") for name in ("a", "b"))
    query = left.join(right, on="k", window=pk.tumbling(8), algorithm="prj")
    assert "so far" not in query.explain()
    query.collect(a=rows, b=rows)
    assert "so far: 5 windows (prj 5), 80 rows, 160 pairs" in query.explain()


def test_eager_algorithms_are_said_to_give_pairs_as_rows_arrive():
    assert "pairs as rows arrive" in explained(algorithm="shj_jm")
    assert "pairs as rows arrive" in explained(optimise="progress")
    assert "pairs as rows arrive" not in explained(algorithm="prj")


def test_after_a_run_the_path_through_the_tree_is_marked_for_the_last_window(tmp_path):
    from penstock.operators.joins.build_algorithms import machine_name

    tree = Split("duplicates", 2.0, Leaf("npj"), Split("rows", 1e6, Leaf("mpass"), Leaf("prj")))
    save_trees(tmp_path, machine_name(), dict.fromkeys(TREES, tree))
    left, right = (pk.stream(name, SCHEMA, time="t") for name in ("a", "b"))
    query = left.join(right, on="k", window=pk.tumbling(5000))
    assert "*" not in query.explain().split("runs as")[1]
    keys = [*range(5000), *(number // 4 for number in range(5000))]
    rows = pa.table({"t": range(10_000), "k": keys, "v": keys})
    metrics = pk.Metrics()
    query.collect(a=rows, b=rows, metrics=metrics)
    (report,) = metrics.joins.values()
    assert report.paths == {"npj": 1, "mpass": 1}
    assert report.why.endswith("≥ 2, rows = 10,000 < 1,000,000: mpass")
    assert report.chosen.seen["rate"] > 1e6
    shown = query.explain()
    for line in ("* duplicates < 2?", "* no: rows < 1,000,000?", "* yes: mpass"):
        assert line in shown


def test_windows_that_overlap_or_lie_across_each_other_are_said_to_be_joined_in_lanes():
    left, right = (pk.stream(name, SCHEMA, time="t") for name in ("a", "b"))
    assert "given for every window" in left.join(right, on="k", window=pk.sliding(10, every=4)).explain()
    assert "across each other" in left.join(right, on="k", window=pk.session(4)).explain()


def test_a_choice_of_rows_says_that_no_pair_is_made():
    assert "no pair is made" in explained(how="semi")
