"""The joins of the benchmark: every contender gives the same answer, whatever the figures."""

from __future__ import annotations

from benchmarks.joins import joins_cases
from benchmarks.options import SuiteOptions


def test_every_contender_agrees() -> None:
    cases = joins_cases(SuiteOptions(2_000, 1, 1, ("polars", "duckdb")), lambda _: None)
    assert [case.name for case in cases if not all(outcome.agrees for outcome in case.outcomes)] == []
    assert all(figure.value for case in cases for figure in case.figures)
