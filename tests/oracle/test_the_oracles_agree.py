"""The two independent definitions, plain Python and DuckDB, agree before either judges the engine."""

from __future__ import annotations

from hypothesis import assume, given

from tests.oracle import brute, sql
from tests.oracle.compare import assert_same_rows
from tests.oracle.effort import effort
from tests.oracle.queries import Case, row_queries, window_queries


@effort(60)
@given(case=window_queries(distinct=False) | row_queries())
def test_plain_python_equals_duckdb(case: Case) -> None:
    try:
        expected = brute.run(case.query, case.tables)
        actual = sql.run(case.query, case.tables)
    except (sql.Inexpressible, brute.Overflow):
        assume(False)
    assert_same_rows(expected.rows, actual, "DuckDB")
