"""Windows over sorted partitions: sessions, windows of rows and holistic aggregates as by the plain twin."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from tests.oracle.effort import effort
from tests.unit.operators.twins import LEFT, Build, Rows, assert_as_its_twin, built, operators_of, rows

SUMS = {"n": pk.count(), "s": pk.sum("v"), "high": pk.max("f")}
QUERIES: dict[str, Build] = {
    "sessions": lambda: LEFT.window(pk.session(4)).agg(**SUMS),
    "sessions by key": lambda: LEFT.window(pk.session(6), by="k").agg(**SUMS),
    "sessions with a median": lambda: LEFT.window(pk.session(6), by="k").agg(m=pk.median("v")),
    "windows of rows": lambda: LEFT.window(pk.rows(3), by="k").agg(**SUMS),
    "partial windows of rows": lambda: LEFT.window(pk.rows(4, partial=True), by="k").agg(**SUMS),
    "overlapping windows of rows": lambda: LEFT.window(pk.rows(4, 2), by="k").agg(**SUMS),
    "medians": lambda: LEFT.window(pk.tumbling(10), by="k").agg(m=pk.median("v"), d=pk.count_distinct("v")),
    "sliding medians": lambda: LEFT.window(pk.sliding(12, 4), by="k").agg(m=pk.median("f")),
    "attached": lambda: LEFT.window(pk.tumbling(10), by="k").with_columns(total=pk.sum("v")),
}


@pytest.mark.parametrize("name", QUERIES)
@effort(12)
@given(given_rows=rows(), size=st.integers(1, 9))
def test_windows_are_those_of_the_plain_twin(name: str, given_rows: Rows, size: int) -> None:
    query = built(QUERIES[name])
    assert "SortedWindows" in operators_of(query)
    assert_as_its_twin(query, {"left": given_rows}, size)
