"""The top rows of windows, as by the plain twin."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from tests.oracle.effort import effort
from tests.unit.operators.twins import LEFT, Build, Rows, assert_as_its_twin, built, operators_of, rows

QUERIES: dict[str, Build] = {
    "one of a tumbling window": lambda: LEFT.window(pk.tumbling(10)).top_k(1, by="v"),
    "two, with ties": lambda: LEFT.window(pk.tumbling(10)).top_k(2, by="v", ties="all"),
    "of sliding windows": lambda: LEFT.window(pk.sliding(12, 4)).top_k(2, by="f"),
    "of each key": lambda: LEFT.window(pk.tumbling(10), by="k").agg(s=pk.sum("v")).window().top_k(2, by="s"),
    "by a text": lambda: LEFT.window(pk.tumbling(10)).top_k(2, by="k"),
}


@pytest.mark.parametrize("name", QUERIES)
@effort(12)
@given(given_rows=rows(), size=st.integers(1, 9))
def test_rows_are_those_of_the_plain_twin(name: str, given_rows: Rows, size: int) -> None:
    query = built(QUERIES[name])
    assert "TopK" in operators_of(query)
    assert_as_its_twin(query, {"left": given_rows}, size)
