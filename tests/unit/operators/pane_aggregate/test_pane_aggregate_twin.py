"""Windows in panes: the compiled tables give the rows of the plain twin."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from tests.oracle.effort import effort
from tests.unit.operators.twins import LEFT, Build, Rows, assert_as_its_twin, built, operators_of, rows

SUMS = {"n": pk.count(), "s": pk.sum("v"), "m": pk.mean("f")}
QUERIES: dict[str, Build] = {
    "tumbling": lambda: LEFT.window(pk.tumbling(10)).agg(**SUMS),
    "tumbling by a text": lambda: LEFT.window(pk.tumbling(10), by="k").agg(**SUMS),
    "tumbling by an integer": lambda: LEFT.window(pk.tumbling(10), by="v").agg(n=pk.count()),
    "by two keys": lambda: LEFT.window(pk.tumbling(10), by=["k", "v"]).agg(n=pk.count()),
    "an offset": lambda: LEFT.window(pk.tumbling(10, offset=3), by="k").agg(**SUMS),
    "sliding": lambda: LEFT.window(pk.sliding(12, 4), by="k").agg(**SUMS),
    "a slide that does not divide the size": lambda: LEFT.window(pk.sliding(10, 4), by="k").agg(**SUMS),
    "gaps between windows": lambda: LEFT.window(pk.sliding(3, 10), by="k").agg(**SUMS),
    "extremes": lambda: LEFT.window(pk.sliding(12, 3), by="k").agg(low=pk.min("v"), high=pk.max("f")),
    "a filter inside": lambda: LEFT.filter(pk.col("v") > 0).window(pk.tumbling(7), by="k").agg(**SUMS),
    "a conditional count": lambda: LEFT.window(pk.tumbling(7)).agg(n=pk.count(where=pk.col("v") > 0)),
}


@pytest.mark.parametrize("name", QUERIES)
@effort(12)
@given(given_rows=rows(), size=st.integers(1, 9))
def test_windows_are_those_of_the_plain_twin(name: str, given_rows: Rows, size: int) -> None:
    query = built(QUERIES[name])
    assert "PaneAggregate" in operators_of(query)
    assert_as_its_twin(query, {"left": given_rows}, size)
