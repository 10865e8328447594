"""Joins of every pairing and kind, as by the plain twin."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from tests.oracle.effort import effort
from tests.unit.operators.twins import LEFT, RIGHT, Build, Rows, assert_as_its_twin, built, operators_of, rows

TEN = pk.tumbling(10)
KINDS = ("inner", "left", "right", "full", "semi", "anti")
QUERIES: dict[str, Build] = {
    **{f"{how} in windows": lambda how=how: LEFT.join(RIGHT, on="k", window=TEN, how=how) for how in KINDS},
    **{f"{how} within": lambda how=how: LEFT.join(RIGHT, on="k", within=(-4, 6), how=how) for how in KINDS},
    "in sliding windows": lambda: LEFT.join(RIGHT, on="k", window=pk.sliding(12, 4)),
    "in sessions": lambda: LEFT.join(RIGHT, on="k", window=pk.session(5)),
    "a condition": lambda: LEFT.join(RIGHT, on="k", window=TEN, where=pk.left("v") > pk.right("v")),
    "without keys": lambda: LEFT.join(RIGHT, window=TEN, where=pk.left("v") == pk.right("v")),
    "as-of": lambda: LEFT.join_asof(RIGHT, by="k", tolerance=12),
    "as-of, strictly before": lambda: LEFT.join_asof(RIGHT, by="k", tolerance=12, allow_exact_matches=False),
    "as-of forward": lambda: LEFT.join_asof(RIGHT, by="k", tolerance=12, direction="forward"),
    "rolling": lambda: LEFT.join_rolling(RIGHT, by="k", within=(-9, 0)).agg(n=pk.count(), s=pk.sum("v")),
}


@pytest.mark.parametrize("name", QUERIES)
@effort(12)
@given(left=rows(12), right=rows(12), size=st.integers(1, 6))
def test_joins_are_those_of_the_plain_twin(name: str, left: Rows, right: Rows, size: int) -> None:
    query = built(QUERIES[name])
    assert "Join" in operators_of(query)
    assert_as_its_twin(query, {"left": left, "right": right}, size)
