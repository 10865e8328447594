"""Small batches become larger ones: the same rows, in the same order."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.sources.conform import gathered


def batch(values, kind="int64"):
    return pa.record_batch({"v": pa.array(values, kind)})


@given(st.lists(st.lists(st.integers(0, 9), max_size=5)), st.integers(0, 3), st.integers(1, 7))
def test_rows_and_their_order_stay(parts, singly, enough):
    made = list(gathered([batch(part) for part in parts], singly, enough))
    assert [v for table in made for v in table["v"].to_pylist()] == [v for part in parts for v in part]
    assert len(made) <= len(parts)
    later = made[singly:]
    assert all(a.num_rows + b.num_rows > enough for a, b in itertools.pairwise(later))


def test_a_large_batch_is_not_copied():
    large = batch(range(10))
    assert [value is large for value in gathered([batch([1]), large, batch([2])], 0, 5)] == [
        False,
        True,
        False,
    ]


def test_batches_of_other_columns_are_left_apart():
    assert [
        table.num_rows for table in gathered([batch([1]), batch([1], "int32"), batch([2], "int32")], 0)
    ] == [1, 2]


def test_an_empty_batch_is_still_given():
    assert [table.num_rows for table in gathered([batch([]), batch([])], 0)] == [0]


@pytest.mark.parametrize("kind", [pa.string(), pa.dictionary(pa.int32(), pa.string())])
def test_texts_stay_what_they_are(kind):
    made = list(gathered([batch(["a", None], kind), batch(["b", "a"], kind)], 0))
    assert [table["v"].to_pylist() for table in made] == [["a", None, "b", "a"]]
