"""Cutting files into tasks: every row is read, and no more of them twice than windows need."""

from __future__ import annotations

import itertools
import json

from hypothesis import given
from hypothesis import strategies as st

from penstock.physical.choose_strategy import Halo
from penstock.sources.fragment import Fragment
from penstock.spark.slices import (
    Part,
    Piece,
    as_json,
    even_parts,
    from_json,
    joined_part,
    read_again,
    time_slices,
)


def piece(number: int, low: int, high: int, rows: int, path: str = "a") -> Piece:
    fragment = Fragment(path, "parquet", (number, number + 1), rows, low, high)
    return Piece("events", fragment, number * 1_000)


@st.composite
def pieces(draw: st.DrawFn) -> list[Piece]:
    spans = draw(
        st.lists(st.tuples(st.integers(-50, 50), st.integers(0, 30), st.integers(1, 9)), max_size=12)
    )
    return [piece(i, low, low + length, rows) for i, (low, length, rows) in enumerate(spans)]


@given(pieces(), st.integers(0, 20), st.integers(0, 20), st.integers(1, 6))
def test_every_slice_reads_all_that_its_results_need(
    given_pieces: list[Piece], past: int, future: int, tasks: int
) -> None:
    parts = time_slices(given_pieces, Halo(past, future), tasks)
    assert len(parts) <= tasks
    assert parts[0].low is None and parts[-1].high is None
    assert all(one.high == other.low for one, other in itertools.pairwise(parts))
    for part in parts:
        for given_piece in given_pieces:
            low, high = given_piece.fragment.time_min, given_piece.fragment.time_max
            assert low is not None and high is not None
            needed = (part.low is None or high >= part.low - past) and (
                part.high is None or low < part.high + future
            )
            assert (given_piece in part.pieces) == needed


@given(pieces(), st.integers(1, 30), st.integers(1, 30), st.integers(0, 29), st.integers(1, 6))
def test_slices_cut_at_the_ends_of_windows_read_all_that_windows_need(
    given_pieces: list[Piece], size: int, every: int, offset: int, tasks: int
) -> None:
    parts = time_slices(given_pieces, Halo(size - 1, 0, every, (offset + size) % every), tasks)
    for start in range(offset - 20 * every, 100, every):
        end = start + size
        (owner,) = (
            part
            for part in parts
            if (part.low is None or end - 1 >= part.low) and (part.high is None or end - 1 < part.high)
        )
        for given_piece in given_pieces:
            low, high = given_piece.fragment.time_min, given_piece.fragment.time_max
            assert low is not None and high is not None
            assert given_piece in owner.pieces or low >= end or high < start


def test_tumbling_windows_need_no_halo() -> None:
    ordered = [piece(i, 100 * i, 100 * i + 99, 1_000) for i in range(100)]
    parts = time_slices(ordered, Halo(999, 0, 1_000, 0), 5)
    assert [part.low for part in parts] == [None, 2_000, 4_000, 6_000, 8_000]
    assert read_again(parts, ordered) == 1.0


@given(pieces(), st.integers(1, 6))
def test_even_parts_hold_every_piece_once_and_in_order(given_pieces: list[Piece], tasks: int) -> None:
    parts = even_parts(given_pieces, tasks)
    assert [value for part in parts for value in part.pieces] == given_pieces
    assert len(parts) <= max(tasks, 1)


def test_ordered_files_are_hardly_read_twice() -> None:
    ordered = [piece(i, 100 * i, 100 * i + 99, 1_000) for i in range(100)]
    parts = time_slices(ordered, Halo(9, 0), 4)
    assert [part.low for part in parts] == [None, 2_500, 5_000, 7_500]
    assert read_again(parts, ordered) == 1.03
    assert read_again(time_slices(ordered, Halo(5_000, 0), 4), ordered) > 2


def test_files_without_order_are_read_again_by_most_slices() -> None:
    unordered = [piece(i, i % 3, 9_000 + i % 7, 1_000) for i in range(20)]
    parts = time_slices(unordered, Halo(9, 0), 4)
    assert read_again(parts, unordered) > 2


def test_a_part_travels_as_text() -> None:
    part = Part((piece(0, 1, 2, 3), piece(1, 2, 3, 4)), low=None, high=-5)
    assert from_json(json.loads(json.dumps(as_json(part)))) == part


def test_neighbours_are_joined_and_keep_the_number_of_their_first_row() -> None:
    part = joined_part(
        Part((piece(0, 1, 2, 3), piece(1, 2, 3, 4), piece(5, 1, 2, 3), piece(0, 1, 2, 3, "b")))
    )
    assert [(value.fragment.path, value.fragment.row_groups, value.first_row) for value in part.pieces] == [
        ("a", (0, 2), 0),
        ("a", (5, 6), 5_000),
        ("b", (0, 1), 0),
    ]
