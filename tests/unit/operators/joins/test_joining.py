"""The drivers of the join algorithms: splits, interleavings, threads, memory that grows and is used again."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.algorithms.joins import eager
from penstock.algorithms.joins import joiner as memory
from penstock.algorithms.joins import joiner as window_keys
from penstock.algorithms.joins.eager import ProgressiveMerge
from penstock.algorithms.joins.joiner import PairsOut, check_size, portions, survey
from penstock.errors import EngineError
from penstock.loop.abi import MOST_SORTED_RUNS
from tests.unit.algorithms.joins.kernels.joining import (
    EAGER,
    LAZY,
    codes,
    eagerly,
    expected,
    lazily,
    listed,
    native,
)

CODES = st.integers(0, 6) | st.sampled_from([-(1 << 63), (1 << 63) - 1, 1 << 40])
LEFT, RIGHT = [3, 1, 3, 2], [2, 3, 3, 9]


def test_eager_joins_give_the_same_for_every_interleaving() -> None:
    want = expected(codes(LEFT), codes(RIGHT))
    for name in EAGER:
        joiner = EAGER[name](native)
        for lefts in itertools.combinations(range(8), 4):
            sides = [0 if place in lefts else 1 for place in range(8)]
            rows = (iter(LEFT), iter(RIGHT))
            run = joiner.open(1)
            found = [run.push(side, codes([next(rows[side])])) for side in sides]
            found.append(run.close())
            assert sorted(pair for pairs in found for pair in listed(pairs)) == want, (name, sides)


@given(st.lists(st.tuples(st.integers(0, 1), st.lists(CODES, max_size=9)), max_size=12), st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_eager_joins_give_the_same_for_every_split(pieces, threads) -> None:
    arrivals = [(side, codes(piece)) for side, piece in pieces]
    left, right = (np.concatenate([codes([]), *(p for s, p in arrivals if s == side)]) for side in (0, 1))
    want = expected(left, right)
    for name in EAGER:
        assert eagerly(name, arrivals, threads) == (len(want), want), name


def test_symmetric_hash_gives_each_pair_with_its_later_row() -> None:
    for name in ("shj_jm", "shj_jb"):
        run = EAGER[name](native).open(1)
        found = [len(run.push_left(codes([1, 2]))[0]), len(run.push_right(codes([2, 2]))[0])]
        found += [len(run.push_left(codes([2]))[0]), len(run.close()[0])]
        assert found == [0, 2, 2, 0]


def test_progressive_merge_gives_pairs_of_a_run_before_the_window_ends() -> None:
    run = EAGER["pmj_jm"](native).open(1)  # of 9 rows
    run.push_left(codes([1, 2, 3, 4]))
    assert listed(run.push_right(codes([4, 9, 9, 9, 3]))) == [(2, 4), (3, 0)]
    assert listed(run.push_left(codes([9]))) == []
    assert listed(run.close()) == [(4, 1), (4, 2), (4, 3)]


@pytest.mark.parametrize("group", [1, 2, 4])
def test_groups_of_workers_of_any_size_agree(group, monkeypatch) -> None:
    monkeypatch.setattr(eager, "ROWS_FOR_ONE_THREAD", 0)
    rng = np.random.default_rng(group)
    left, right = rng.integers(0, 40, 300), rng.integers(0, 40, 200)
    joiner = eager.Eager(
        "pmj_jb", native, lambda *given: ProgressiveMerge(*given, step=64), True, group, copies=group == 2
    )
    run = joiner.open(4)
    found = [run.push_left(left[:100]), run.push_right(right), run.push_left(left[100:]), run.close()]
    assert sorted(pair for pairs in found for pair in listed(pairs)) == expected(left, right)


def test_a_thousand_duplicates_make_outputs_grow() -> None:
    left, right = np.zeros(1000, np.int64), np.zeros(60, np.int64)
    for name in LAZY:
        count, pairs = lazily(name, left, right)
        assert count == len(set(pairs)) == len(pairs) == 60_000, name
    for name in EAGER:
        count, pairs = eagerly(name, [(0, left[:500]), (1, right), (0, left[500:])])
        assert count == len(set(pairs)) == len(pairs) == 60_000, name


def test_memory_of_one_window_does_not_show_in_the_next() -> None:
    rng = np.random.default_rng(3)
    for name in (*LAZY, *EAGER):
        lazy = name in LAZY
        joiner = (LAZY if lazy else EAGER)[name](native)
        for span in (5, 1 << 40, 3000, 5):
            left, right = rng.integers(-span, span, 250), rng.integers(-span, span, 180)
            want = expected(left, right)
            if lazy:
                assert listed(joiner.join(left, right, "pairs", 2)) == want, name
                continue
            run = joiner.open(2)
            found = [run.push_left(left), run.push_right(right), run.close()]
            assert sorted(pair for pairs in found for pair in listed(pairs)) == want, name


def test_two_windows_of_a_joiner_may_be_open_at_once() -> None:
    for name in EAGER:
        joiner = EAGER[name](native)
        first, second = joiner.open(2), joiner.open(2)
        found = [run.push_left(codes([key, key])) for run, key in ((first, 1), (second, 2))]
        found += [run.push_right(codes([1])) for run in (first, second)] + [first.close(), second.close()]
        assert sorted(pair for pairs in found for pair in listed(pairs)) == [(0, 0), (1, 0)], name


def test_a_swapped_window_gives_pairs_the_right_way_round() -> None:
    few, many = codes([1, 2]), codes([2, 2, 2])
    for name in LAZY:
        assert lazily(name, few, many)[1] == [(1, 0), (1, 1), (1, 2)]
        assert lazily(name, many, few)[1] == [(0, 1), (1, 1), (2, 1)]


def test_without_partitions_pairs_come_in_order_from_one_thread() -> None:
    rng = np.random.default_rng(8)
    left, right = rng.integers(0, 40, 300), rng.integers(0, 40, 500)
    for spread in (1, 1 << 40):
        pairs = LAZY["npj"](native).join(left * spread, right * spread, "pairs", 1)
        assert list(zip(pairs[0].tolist(), pairs[1].tolist(), strict=True)) == listed(pairs)


def test_columns_with_gaps_between_their_values_are_taken() -> None:
    left, right = np.arange(20)[::2], np.arange(20)[::5]
    for name in LAZY:
        assert lazily(name, left, right)[1] == expected(left, right)
    for name in EAGER:
        assert eagerly(name, [(0, left), (1, right)])[1] == expected(left, right)


@pytest.mark.parametrize(
    ("left", "right", "wide", "dense"),
    [
        ([5, 6, 7], [5], False, True),
        ([0, 10**6], [1], False, False),
        ([0, 1 << 32], [1], True, False),
        ([0, (1 << 32) - 1], [1], False, False),
        ([-(1 << 63)], [(1 << 63) - 1], True, False),
    ],
)
def test_words_are_as_narrow_as_the_codes_allow(left, right, wide, dense) -> None:
    spec = survey(native, codes(left), codes(right), pairs=True, threads=1).spec
    assert (spec.wide, spec.dense) == (wide, dense)


def test_few_rows_are_joined_on_one_thread() -> None:
    assert survey(native, codes([1]), codes([1]), pairs=True, threads=8).threads == 1


def test_an_output_keeps_its_pairs_when_it_grows() -> None:
    out = PairsOut(2)
    given_ = out.arguments
    given_["out_left"][:], given_["out_right"][:], out.head[6] = [1, 2], [3, 4], 2
    out.grow()
    assert (out.arguments["out_capacity"], listed(out.taken)) == (4, [(1, 3), (2, 4)])


def test_portions_cover_all_rows_once() -> None:
    assert portions(10, 3) == [(0, 3), (3, 6), (6, 10)]
    assert portions(1, 3) == [(0, 0), (0, 0), (0, 1)]


def test_more_rows_than_32_bits_number_are_refused() -> None:
    with pytest.raises(EngineError, match="shorter window"):
        check_size(1, memory.MOST_SIDE_ROWS + 1)


def test_more_runs_than_a_tree_has_room_for_are_merged_in_groups(monkeypatch) -> None:
    rng = np.random.default_rng(9)
    left, right = rng.integers(0, 50, 40), rng.integers(0, 50, 30)
    monkeypatch.setattr("penstock.algorithms.joins.eager.MOST_SORTED_RUNS", 2)
    monkeypatch.setattr("penstock.algorithms.joins.eager.SHARE", 1 << 40)
    joiner = eager.Eager("pmj_jm", native, lambda *given: ProgressiveMerge(*given, step=4), False)
    run = joiner.open(1)
    pieces = [(0, left[at : at + 4]) for at in range(0, 40, 4)] + [
        (1, right[at : at + 4]) for at in range(0, 30, 4)
    ]
    found = [run.push(side, piece) for side, piece in pieces] + [run.close()]
    assert sorted(pair for pairs in found for pair in listed(pairs)) == expected(left, right)


def test_a_column_is_never_cut_into_more_runs_than_a_merge_takes() -> None:
    joiner = LAZY["mway"](native)
    joiner._run_rows = 1
    left, right = np.arange(3 * MOST_SORTED_RUNS), np.arange(0, 3 * MOST_SORTED_RUNS, 7)
    assert joiner.join(left, right, "count", 1) == len(right)


@pytest.mark.parametrize("threads", [2, 5])
@pytest.mark.parametrize("name", LAZY)
def test_more_threads_than_rows_make_no_difference(name, threads, monkeypatch) -> None:
    monkeypatch.setattr(window_keys, "ROWS_FOR_ONE_THREAD", 0)
    assert lazily(name, codes([1, 2]), codes([2, 1, 1]), threads) == (3, [(0, 1), (0, 2), (1, 0)])
