"""Every window with every aggregate: compiled, incremental and threaded answers are the interpreter's."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import penstock as pk
from tests.oracle.effort import effort
from tests.oracle.engines import tiny_tasks
from tests.oracle.matrix_engines import assert_answer, collected, disorder, expected, streamed
from tests.oracle.matrix_queries import Case, cases, nested_cases
from tests.oracle.strategies import batches_of


@effort(100)
@given(case=cases())
def test_a_compiled_query_gives_what_the_interpreter_defines(case: Case) -> None:
    wanted = expected(case)
    if wanted is None:
        with pytest.raises(pk.OverflowError):
            collected(case)
        return
    assert_answer(case, wanted, collected(case), "compiled")


@effort(60)
@given(case=cases(), data=st.data(), slack=st.sampled_from([0, 0, 1, 7, 10**8]))
def test_any_split_into_batches_gives_what_the_interpreter_defines(
    case: Case, data: st.DataObject, slack: int
) -> None:
    """With just enough patience for the rows, windows leave as early as they can."""
    wanted = expected(case)
    assume(wanted is not None)
    found, counted = streamed(case, data.draw(batches_of(case.table)), disorder(case) + slack)
    assert_answer(case, wanted or [], found, "incremental")
    assert counted.late == 0 and counted.balanced


@effort(30)
@given(case=cases(), threads=st.sampled_from([2, 3]))
def test_threads_and_tasks_do_not_change_the_answer(case: Case, threads: int) -> None:
    wanted = expected(case)
    assume(wanted is not None)
    assert_answer(case, wanted or [], collected(case, engine=tiny_tasks(threads)), f"{threads} threads")


@effort(12)
@given(case=cases())
def test_kernels_interpreted_give_the_answer_of_native_code(case: Case) -> None:
    assume(case.table.num_rows <= 12)
    wanted = expected(case)
    assume(wanted is not None)
    assert_answer(
        case, wanted or [], collected(case, engine=pk.Engine(backend="interpret")), "loop interpreter"
    )


@effort(40)
@given(case=nested_cases())
def test_windows_over_windows_give_what_the_interpreter_defines(case: Case) -> None:
    wanted = expected(case)
    assume(wanted is not None)
    assert_answer(case, wanted or [], collected(case), "compiled")


@effort(40)
@given(case=nested_cases(), data=st.data(), slack=st.sampled_from([0, 3]))
def test_windows_over_windows_do_not_depend_on_batches(case: Case, data: st.DataObject, slack: int) -> None:
    wanted = expected(case)
    assume(wanted is not None)
    found, counted = streamed(case, data.draw(batches_of(case.table)), disorder(case) + slack)
    assert_answer(case, wanted or [], found, "incremental")
    assert counted.late == 0 and counted.balanced
