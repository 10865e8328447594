"""Distinct rows, first or last, for ever or within a time, as by the plain twin."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.oracle.effort import effort
from tests.unit.operators.twins import LEFT, Build, Rows, assert_as_its_twin, built, operators_of, rows

QUERIES: dict[str, Build] = {
    "whole rows": LEFT.distinct,
    "by a key": lambda: LEFT.distinct("k"),
    "by two keys": lambda: LEFT.distinct(["k", "v"]),
    "the last": lambda: LEFT.distinct("k", keep="last"),
    "within a time": lambda: LEFT.distinct("k", within=10),
    "by a float": lambda: LEFT.distinct("f", within=20),
}


@pytest.mark.parametrize("name", QUERIES)
@effort(12)
@given(given_rows=rows(), size=st.integers(1, 9))
def test_rows_are_those_of_the_plain_twin(name: str, given_rows: Rows, size: int) -> None:
    query = built(QUERIES[name])
    assert "Distinct" in operators_of(query)
    assert_as_its_twin(query, {"left": given_rows}, size)
