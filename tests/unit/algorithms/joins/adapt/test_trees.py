"""Trees that pick a join algorithm: grown, decided by, shown, saved, refused when damaged."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.algorithms.joins.adapt.train_tree import Point, best_leaf, train_tree
from penstock.algorithms.joins.adapt.tree import (
    DEFAULT_TREES,
    FILE,
    TREE_ALGORITHMS,
    JoinChooser,
    Leaf,
    Split,
    chooser,
    decide,
    from_json,
    load_trees,
    save_trees,
    show,
    to_json,
)
from penstock.algorithms.joins.adapt.tree import TREES as NAMES
from penstock.algorithms.joins.adapt.window_statistics import (
    WINDOW_STATISTICS,
    Observed,
    WindowStatistics,
    observe,
)
from penstock.errors import EngineError, StateError

LEAVES = st.builds(Leaf, st.sampled_from(TREE_ALGORITHMS), st.floats(0, 5))
TREES = st.recursive(
    LEAVES,
    lambda trees: st.builds(Split, st.sampled_from(WINDOW_STATISTICS), st.floats(0, 1e12), trees, trees),
    max_leaves=8,
)
SEEN = st.builds(Observed, *[st.floats(0, 1e12)] * len(WINDOW_STATISTICS))


def at(**facts: float) -> Observed:
    return Observed(**{**dict.fromkeys(WINDOW_STATISTICS, 1.0), **facts})


def measured(seen: Observed, **costs: float) -> Point:
    return Point(seen, {**dict.fromkeys(TREE_ALGORITHMS, 1000.0), **costs})


@given(TREES)
def test_a_tree_comes_back_from_json_as_it_was(tree) -> None:
    assert from_json(json.loads(json.dumps(to_json(tree)))) == tree


@given(TREES, SEEN)
def test_the_path_shown_is_the_path_taken(tree, seen) -> None:
    decision = decide(tree, seen)
    marked = [line for line in show(tree, seen).splitlines() if line.lstrip().startswith("* ")]
    assert len(marked) == len(decision.path) + 1
    assert decision.algorithm in marked[-1]
    assert len(show(tree).splitlines()) == len(show(tree, seen).splitlines())


def test_a_tree_separates_what_differs() -> None:
    points = [
        measured(at(rows=10.0, rate=5.0), npj=1, shj_jm=5),
        measured(at(rows=10.0, rate=500.0), npj=1, shj_jm=9),
        measured(at(rows=1e6, rate=5.0), npj=9, shj_jm=1),
        measured(at(rows=1e6, rate=500.0), npj=3, prj=1),
    ]
    tree = train_tree(points)
    assert [decide(tree, point.seen).algorithm for point in points] == ["npj", "npj", "shj_jm", "prj"]


def test_a_question_is_asked_that_only_the_next_one_makes_worth_asking() -> None:
    """Large windows want prj where codes are scattered; neither fact tells anything alone."""
    points = [
        measured(at(rows=rows, spread=spread), **({"npj": 2, "prj": 1} if odd else {"npj": 1, "prj": 2}))
        for rows in (10.0, 1e6)
        for spread in (1.0, 50.0)
        for odd in [(rows > 10) == (spread > 1)]
    ]
    tree = train_tree(points)
    assert [decide(tree, point.seen).algorithm for point in points] == ["prj", "npj", "npj", "prj"]


def test_a_threshold_lies_where_both_choices_cost_the_same() -> None:
    """At 17 the eager one is fifty times the better, at 60 a hair's breadth behind: at 50 it is still the better."""
    points = [
        measured(at(rate=2.0), npj=70, shj_jm=1),
        measured(at(rate=17.0), npj=62, shj_jm=1.2),
        measured(at(rate=60.0), npj=65, shj_jm=71),
        measured(at(rate=500.0), npj=65, shj_jm=650),
    ]
    tree = train_tree(points)
    assert isinstance(tree, Split) and tree.feature == "rate"
    assert 50 < tree.threshold < 60


@given(st.lists(st.tuples(st.integers(1, 6), st.lists(st.floats(1, 50), min_size=8, max_size=8)), min_size=2))
def test_a_threshold_never_passes_a_point_that_it_was_learnt_from(given_points) -> None:
    points = [
        measured(at(rows=10.0**rows), **dict(zip(TREE_ALGORITHMS, costs, strict=True)))
        for rows, costs in given_points
    ]
    leaves = {}
    for point in points:
        leaves.setdefault(decide(train_tree(points, depth=1), point.seen).path, set()).add(point.seen.rows)
    assert sum(map(len, leaves.values())) == len({point.seen.rows for point in points})


def test_differences_that_noise_makes_do_not_make_a_tree_grow() -> None:
    points = [measured(at(rows=float(n)), npj=100 + n % 3, prj=102 - n % 2) for n in range(1, 20)]
    assert train_tree(points) == Leaf("npj", best_leaf(points)[0].regret)


def test_one_bad_mistake_weighs_more_than_many_small_ones() -> None:
    points = [measured(at(), npj=100, prj=110)] * 5 + [measured(at(), npj=200, prj=100)]
    assert best_leaf(points)[0].algorithm == "prj"


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {"algorithm": "bogo", "regret": 0},
        {"algorithm": "npj"},
        {"feature": "rows", "threshold": "1", "below": {}, "above": {}},
        {"feature": "__class__", "threshold": 1, "below": {"algorithm": "npj", "regret": 0}, "above": {}},
        {"feature": "rows", "threshold": 1, "below": {"algorithm": "npj", "regret": 0}, "above": {}},
    ],
)
def test_what_is_not_a_tree_is_refused(value) -> None:
    with pytest.raises(StateError, match="calibrate"):
        from_json(value)


def test_a_tree_that_never_ends_is_refused() -> None:
    value: dict[str, object] = {"algorithm": "npj", "regret": 0}
    for _ in range(40):
        value = {"feature": "rows", "threshold": 1, "below": value, "above": value}
    with pytest.raises(StateError):
        from_json(value)


def test_saved_trees_are_used_on_the_machine_they_were_measured_on(tmp_path) -> None:
    trees = dict.fromkeys(NAMES, Leaf("mway"))
    save_trees(tmp_path, "this one", trees)
    assert load_trees(tmp_path, "this one").trees == trees
    assert chooser(tmp_path, "this one").choose(at()).algorithm == "mway"
    with pytest.raises(StateError, match="another machine"):
        load_trees(tmp_path, "another one")
    assert chooser(tmp_path, "another one").trees is DEFAULT_TREES
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"version": 3}',
        '{"version": 3, "machine": "m", "trees": {}}',
        '{"version": 2, "machine": "m", "trees": {}}',
        '{"version": 1, "machine": "m"}',
    ],
)
def test_a_damaged_file_is_refused_and_not_used(tmp_path, text) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(StateError, match="calibrate"):
        load_trees(tmp_path, "m")
    assert chooser(tmp_path, "m").trees is DEFAULT_TREES


def test_without_a_folder_or_a_file_the_supplied_trees_are_used(tmp_path) -> None:
    assert chooser(None, "m").trees is chooser(tmp_path / "none", "m").trees is DEFAULT_TREES


def test_the_supplied_trees_answer_for_every_target() -> None:
    supplied = JoinChooser(DEFAULT_TREES)
    assert supplied.choose(at(rows=3e6, smaller=1.6e6, rate=3e3), "latency").algorithm.startswith("shj")
    assert supplied.choose(at(rows=3e6, smaller=1.6e6, rate=1e9), "throughput").algorithm in {"npj", "prj"}


def test_an_unknown_target_is_an_error_that_lists_them() -> None:
    with pytest.raises(EngineError, match="throughput, latency, progress"):
        JoinChooser(DEFAULT_TREES).choose(at(), "speed")


@pytest.mark.parametrize(("duplicates", "near"), [(1, 1.0), (10, 10.0), (1000, 1000.0)])
def test_duplicates_are_seen_in_a_sample(duplicates, near) -> None:
    rng = np.random.default_rng(duplicates)
    side = rng.permutation(np.arange(400_000) // duplicates)
    assert observe(side, side[:10]).duplicates == pytest.approx(near, rel=0.25)
    sample = rng.choice(side, 20_000, replace=False)
    assert observe(sample, sample[:10], rows=(400_000, 10)).duplicates == pytest.approx(near, rel=0.25)


def test_sizes_alone_make_no_difference_to_what_is_seen_of_unique_keys_at_rest() -> None:
    few, many = (observe(side, side) for side in (np.arange(2000), np.arange(100_000)))
    for name in ("rate", "slower_rate", "hottest", "duplicates"):
        assert few[name] == many[name], name


def test_codes_that_no_table_could_hold_are_all_equally_far_apart() -> None:
    near, far = (observe(np.arange(1000) * step, np.arange(10)) for step in (1 << 30, 1 << 52))
    assert (near.span, near.spread) == (far.span, far.spread)
    snapshot = WindowStatistics(np.arange(1000) << 52, np.arange(10), 0.0, 1)
    assert (snapshot["span"], snapshot["spread"]) == (far.span, far.spread)


def test_a_hot_key_is_seen() -> None:
    side = np.where(np.arange(50_000) % 4 == 0, 7, np.arange(50_000))
    assert observe(side, side).hottest == pytest.approx(0.25, rel=0.1)


def test_empty_sides_can_be_observed() -> None:
    nothing = np.empty(0, np.int64)
    seen = observe(nothing, nothing)
    assert (seen.rows, seen.duplicates, seen.hottest) == (0.0, 1.0, 0.0)
    assert observe(nothing, np.arange(5)).smaller == 0.0
