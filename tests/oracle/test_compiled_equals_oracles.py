"""The compiled engine gives the answer of the interpreter, of DuckDB and of plain Python."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import penstock as pk
from tests.oracle import describe as d
from tests.oracle import sql
from tests.oracle.build import build
from tests.oracle.compare import assert_same_rows
from tests.oracle.effort import effort
from tests.oracle.engines import assert_answer, collected, expected_rows, interpreted, pass_names
from tests.oracle.queries import Case, any_queries, attach_queries, row_queries, window_queries


def _check_compiled(case: Case) -> None:
    expected = expected_rows(case)
    if expected is None:
        with pytest.raises(pk.OverflowError):
            collected(case)
        return
    assert_answer(expected, collected(case), "compiled", d.promises_order(case.query))


@effort(80)
@given(case=window_queries())
def test_compiled_windows_equal_plain_python(case: Case) -> None:
    _check_compiled(case)


@effort(50)
@given(case=row_queries())
def test_compiled_row_queries_equal_plain_python(case: Case) -> None:
    _check_compiled(case)


@effort(40)
@given(case=attach_queries())
def test_aggregates_beside_their_rows_equal_plain_python(case: Case) -> None:
    _check_compiled(case)


@effort(60)
@given(case=any_queries())
def test_the_interpreter_equals_plain_python(case: Case) -> None:
    expected = expected_rows(case)
    if expected is None:
        with pytest.raises(pk.OverflowError):
            interpreted(case)
        return
    assert_same_rows(expected, interpreted(case), "interpreter")


@effort(60)
@given(case=any_queries(), off=st.sets(st.sampled_from(pass_names())))
def test_the_optimised_program_means_the_same_in_the_interpreter(case: Case, off: set[str]) -> None:
    expected = expected_rows(case)
    assume(expected is not None)
    assert_same_rows(expected or [], interpreted(case, frozenset(off)), f"interpreter without {sorted(off)}")


@effort(40)
@given(case=window_queries(distinct=False))
def test_compiled_windows_equal_duckdb(case: Case) -> None:
    expected = expected_rows(case)
    assume(expected is not None)
    try:
        rows = sql.run(case.query, case.tables)
    except sql.Inexpressible:
        assume(False)
    assert_same_rows(expected or [], rows, "DuckDB")
    assert_answer(expected or [], collected(case), "compiled", d.promises_order(case.query))


@effort(30)
@given(case=any_queries())
def test_a_query_foretells_the_schema_of_its_result(case: Case) -> None:
    query = build(case.query, case.datasets)
    assume(expected_rows(case) is not None)
    assert query.collect().schema.equals(query.schema)


@effort(40)
@given(case=any_queries())
def test_every_row_is_accounted_for(case: Case) -> None:
    assume(expected_rows(case) is not None)
    query = build(case.query, case.datasets)
    result = query.collect()
    counted = query.metrics
    assert counted.balanced
    assert counted.emitted == result.num_rows
    assert counted.late == 0
    nulls = [dataset.table["t"].null_count for dataset in case.datasets]
    rows = [dataset.table.num_rows for dataset in case.datasets]
    assert counted.read >= sum(rows)
    assert (counted.malformed > 0) == (sum(nulls) > 0)
    if not _reads_twice(case.query):
        assert (counted.read, counted.malformed) == (sum(rows), sum(nulls))


def _reads_twice(query: d.Query) -> bool:
    """Tell whether a stream feeds two branches: each then counts its rows."""
    match query:
        case d.Source():
            return False
        case d.Union():
            return True
        case _:
            return _reads_twice(query.input)
