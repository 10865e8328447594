"""Signals over stored and over regular times, as by the plain twin."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.oracle.effort import effort
from tests.unit.operators.twins import LEFT, Build, Rows, assert_as_its_twin, built, operators_of, rows

PRICE = LEFT.signal("f", by="k")
SIZE = LEFT.signal("v", by="k")
SIGNALS = {
    "samples": lambda: PRICE,
    "arithmetic": lambda: PRICE * 2.0 + SIZE,
    "a filter": lambda: PRICE.where(lambda value: value > 0),
    "shifted": lambda: PRICE.shift(3) - PRICE,
    "a rolling maximum": lambda: PRICE.rolling(10).max(),
    "a rolling sum": lambda: SIZE.rolling(10).sum(),
    "windows": lambda: SIZE.window(10, every=5).sum(),
    "per window": lambda: SIZE.per(10).max(),
    "an alternative": lambda: PRICE.or_else(SIZE * 1.0),
}

QUERIES: dict[str, Build] = {
    name: lambda signal=signal: signal().to_stream("value") for name, signal in SIGNALS.items()
}


@pytest.mark.parametrize("name", QUERIES)
@effort(12)
@given(given_rows=rows(12), size=st.integers(1, 6))
def test_samples_are_those_of_the_plain_twin(name: str, given_rows: Rows, size: int) -> None:
    query = built(QUERIES[name])
    assert "Signals" in operators_of(query)
    assert_as_its_twin(query, {"left": given_rows}, size)
