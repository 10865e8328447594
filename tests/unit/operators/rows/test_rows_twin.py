"""Filters and projections: the compiled loop gives the rows of the plain twin."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from tests.oracle.effort import effort
from tests.unit.operators.twins import LEFT, Build, Rows, assert_as_its_twin, built, operators_of, rows

QUERIES: dict[str, Build] = {
    "a filter": lambda: LEFT.filter(pk.col("v") > 0),
    "several conjuncts": lambda: LEFT.filter(
        (pk.col("v") > -3) & (pk.col("f") < 5.0) & pk.col("k").is_not_null()
    ),
    "nothing passes": lambda: LEFT.filter(pk.col("v") > 1 << 50),
    "a text": lambda: LEFT.filter(pk.col("k") == "a"),
    "a projection": lambda: LEFT.select(twice=pk.col("v") * 2, ratio=pk.col("f") / 2),
    "added columns": lambda: LEFT.with_columns(w=pk.when(pk.col("v") > 0).then(pk.col("f")).otherwise(0.0)),
    "a computed filter": lambda: LEFT.with_columns(w=pk.col("v") + 1).filter(pk.col("w") % 2 == 0).drop("f"),
}


@pytest.mark.parametrize("name", QUERIES)
@effort(12)
@given(given_rows=rows(), size=st.integers(1, 9))
def test_rows_are_those_of_the_plain_twin(name: str, given_rows: Rows, size: int) -> None:
    query = built(QUERIES[name])
    assert "Rows" in operators_of(query)
    assert_as_its_twin(query, {"left": given_rows}, size)
