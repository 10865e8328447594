"""Look-backs by time and by rows, as by the plain twin."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from tests.oracle.effort import effort
from tests.unit.operators.twins import LEFT, Build, Rows, assert_as_its_twin, built, operators_of, rows

SUMS = {"n": pk.count(), "s": pk.sum("v"), "low": pk.min("f")}
QUERIES: dict[str, Build] = {
    "by time": lambda: LEFT.rolling(10).agg(**SUMS),
    "by time and key": lambda: LEFT.rolling(10, by="k").agg(**SUMS),
    "with columns": lambda: LEFT.rolling(10, by="k").with_columns(**SUMS),
    "without the current time": lambda: LEFT.rolling(10, by="k", closed="left").agg(**SUMS),
    "delayed": lambda: LEFT.rolling(6, by="k", delay=3).agg(**SUMS),
    "by rows": lambda: LEFT.rolling(pk.rows(3), by="k").agg(**SUMS),
    "several spans": lambda: LEFT.rolling([5, 20], by="k").agg(s=pk.sum("v")),
    "a median": lambda: LEFT.rolling(10, by="k").agg(m=pk.median("v")),
}


@pytest.mark.parametrize("name", QUERIES)
@effort(12)
@given(given_rows=rows(), size=st.integers(1, 9))
def test_look_backs_are_those_of_the_plain_twin(name: str, given_rows: Rows, size: int) -> None:
    query = built(QUERIES[name])
    assert "LookBack" in operators_of(query)
    assert_as_its_twin(query, {"left": given_rows}, size)
