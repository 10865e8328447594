"""Slices of time take exactly the row groups that times and halo touch, in their order."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from penstock.physical.choose_strategy import Halo
from penstock.sources.fragment import Fragment
from penstock.spark.slices import Piece, time_slices


@st.composite
def pieces(draw):
    made = []
    for number in range(draw(st.integers(0, 12))):
        first, length = draw(st.integers(-50, 50)), draw(st.integers(0, 30))
        fragment = Fragment(
            "a", "parquet", (number, number + 1), draw(st.integers(0, 5)), first, first + length
        )
        made.append(Piece(draw(st.sampled_from(["x", "y"])), fragment, number))
    return made


def plainly(given, low, high, halo):
    return tuple(
        piece
        for piece in given
        if piece.fragment.rows
        and (low is None or piece.fragment.time_max >= low - halo.past)
        and (high is None or piece.fragment.time_min < high + halo.future)
    )


@given(pieces(), st.builds(Halo, st.integers(0, 20), st.integers(0, 20)), st.integers(1, 6))
def test_a_slice_has_what_the_definition_says(given, halo, tasks):
    parts = time_slices(given, halo, tasks)
    for part in parts:
        assert part.pieces == plainly(given, part.low, part.high, halo)
    assert parts[0].low is None and parts[-1].high is None
    assert all(before.high == after.low for before, after in pairwise(parts))
