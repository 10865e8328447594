"""Fragments travel as text, and neighbours in a file can be read as one."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import SourceError
from penstock.sources.fragment import Fragment, joined

TIMES = st.none() | st.integers(-(2**63), 2**63 - 1)
FRAGMENTS = st.builds(
    Fragment,
    path=st.text(),
    format=st.sampled_from(["parquet", "arrow", "csv", "json"]),
    row_groups=st.none() | st.tuples(st.integers(0, 9), st.integers(0, 9)),
    rows=st.none() | st.integers(0, 2**40),
    time_min=TIMES,
    time_max=TIMES,
    ordered=st.sampled_from([None, True]),
    partition=st.lists(st.tuples(st.text(), st.none() | st.text())).map(tuple),
    size=st.none() | st.integers(0, 2**40),
    deletes=st.lists(st.text()).map(tuple),
    renamed=st.lists(st.tuples(st.text(), st.text())).map(tuple),
)


@given(FRAGMENTS)
def test_a_fragment_comes_back_from_its_text(fragment):
    assert Fragment.from_json(fragment.to_json()) == fragment


GOOD = json.loads(Fragment("a", "parquet", (0, 1), 3).to_json())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "{}",
        "[" * 100_000,
        json.dumps({**GOOD, "path": 3}),
        json.dumps({**GOOD, "format": "pickle"}),
        json.dumps({**GOOD, "row_groups": [1]}),
        json.dumps({**GOOD, "row_groups": ["a", "b"]}),
        json.dumps({**GOOD, "rows": "3"}),
        json.dumps({**GOOD, "partition": [["a"]]}),
        json.dumps({**GOOD, "partition": [["a", 3]]}),
        json.dumps({**GOOD, "deletes": [3]}),
        json.dumps({**GOOD, "renamed": [["a", None]]}),
        json.dumps({**GOOD, "more": 1}),
        json.dumps({name: value for name, value in GOOD.items() if name != "size"}),
    ],
)
def test_any_other_text_is_refused(text):
    with pytest.raises(SourceError, match="fragment"):
        Fragment.from_json(text)


def piece(number, rows=10, path="a", low=None, high=None, ordered=None):
    return Fragment(path, "parquet", (number, number + 1), rows, low, high, ordered, size=rows * 8)


def test_neighbours_are_joined_up_to_a_number_of_rows():
    parts = [piece(0), piece(1), piece(2), piece(4), piece(5, path="b"), Fragment("c", "csv")]
    assert [(fragment.path, fragment.row_groups, fragment.rows) for fragment in joined(parts, 20)] == [
        ("a", (0, 2), 20),
        ("a", (2, 3), 10),
        ("a", (4, 5), 10),
        ("b", (5, 6), 10),
        ("c", None, None),
    ]


def test_a_fragment_larger_than_asked_for_stays_alone():
    assert [fragment.rows for fragment in joined([piece(0, 50), piece(1, 5), piece(2, 5)], 20)] == [50, 10]


def test_joined_times_enclose_all_or_are_unknown():
    known = [piece(0, low=5, high=9), piece(1, low=1, high=3)]
    assert [(fragment.time_min, fragment.time_max, fragment.size) for fragment in joined(known, 99)] == [
        (1, 9, 160)
    ]
    assert [(fragment.time_min, fragment.time_max) for fragment in joined([*known, piece(2)], 99)] == [
        (None, None)
    ]


def test_joined_fragments_are_ordered_if_each_is_and_they_follow_each_other():
    rising = [piece(0, low=1, high=3, ordered=True), piece(1, low=3, high=9, ordered=True)]
    falling = [piece(0, low=4, high=6, ordered=True), piece(1, low=3, high=9, ordered=True)]
    assert [fragment.ordered for fragment in joined(rising, 99)] == [True]
    assert [fragment.ordered for fragment in joined(falling, 99)] == [None]


@given(st.lists(FRAGMENTS, max_size=8), st.integers(0, 100))
def test_joining_loses_nothing(parts, rows):
    made = list(joined(parts, rows))
    assert sum(fragment.rows or 0 for fragment in made) >= sum(
        part.rows or 0 for part in parts if part.row_groups is None
    )
    assert list(dict.fromkeys(fragment.path for fragment in made)) == list(
        dict.fromkeys(part.path for part in parts)
    )
