"""Unions of streams and of branches of one stream, as by the plain twin."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from tests.oracle.effort import effort
from tests.unit.operators.twins import LEFT, RIGHT, Build, Rows, assert_as_its_twin, built, operators_of, rows

QUERIES: dict[str, Build] = {
    "two streams": lambda: LEFT.union(RIGHT),
    "in windows": lambda: LEFT.union(RIGHT).window(pk.tumbling(10), by="k").agg(n=pk.count(), s=pk.sum("v")),
    "in order": lambda: LEFT.union(RIGHT).rolling(pk.rows(3), by="k").agg(last=pk.last("v")),
    "a branch of its own stream": lambda: LEFT.union(LEFT.filter(pk.col("v") > 0), RIGHT).distinct("k"),
}


@pytest.mark.parametrize("name", QUERIES)
@effort(12)
@given(left=rows(12), right=rows(12), size=st.integers(1, 6))
def test_rows_are_those_of_the_plain_twin(name: str, left: Rows, right: Rows, size: int) -> None:
    query = built(QUERIES[name])
    assert "Union" in operators_of(query)
    assert_as_its_twin(query, {"left": left, "right": right}, size)
