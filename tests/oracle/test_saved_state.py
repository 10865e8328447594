"""Random queries in several lives: saved and taken up anywhere, by any engine, they give the oracle's answer."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import assume, given
from hypothesis import strategies as st

import penstock as pk
from tests.oracle import describe as d
from tests.oracle import engines, matrix_engines, matrix_queries
from tests.oracle.build import build
from tests.oracle.effort import effort
from tests.oracle.queries import Case, any_queries
from tests.oracle.strategies import batches_of
from tests.restarts import ENGINES, Push, in_several_lives


@st.composite
def lives(draw: st.DrawFn, pushes: int) -> tuple[set[int], list[pk.Engine]]:
    """Draw after which pushes to stop, and the engines that go on."""
    stops = draw(st.sets(st.integers(0, max(pushes - 1, 0)), min_size=1, max_size=4))
    names = draw(st.lists(st.sampled_from(sorted(ENGINES)), min_size=1, max_size=3))
    return stops, [ENGINES[name] for name in names]


@effort(40)
@given(case=matrix_queries.cases(), data=st.data(), slack=st.sampled_from([0, 1, 7]))
def test_every_window_and_aggregate_goes_on_from_saved_state(
    case: matrix_queries.Case, data: st.DataObject, slack: int
) -> None:
    wanted = matrix_engines.expected(case)
    assume(wanted is not None)
    query = matrix_queries.build(case, matrix_engines.declared(case, matrix_engines.disorder(case) + slack))
    pushes = [("events", batch) for batch in data.draw(batches_of(case.table))]
    made, counted = in_several_lives(query, pushes, *data.draw(lives(len(pushes))))
    found = pa.Table.from_batches(made, query.schema)
    matrix_engines.assert_answer(case, wanted or [], found, "in several lives")
    assert counted.late == 0 and counted.balanced


def test_tails_of_windows_of_rows_come_after_full_windows_that_end_later() -> None:
    """Only the end of input shows that a window is a tail, in one life or in several."""
    table = pa.table({"t": [1, 2, 3, 4, 9], "k": [1, 2, 2, 2, 2]})
    step = matrix_queries.Windowed(pk.rows(3, partial=True), ("k",), {"n": matrix_queries.Field(pk.count())})
    case = matrix_queries.Case(table, d.TimeSpec(pa.int64(), None, None), (step,), scaled=step.fields)
    query = matrix_queries.build(case, matrix_engines.declared(case, 0))
    made, _ = in_several_lives(query, [("events", batch) for batch in table.to_batches()], {0}, [pk.Engine()])
    found = pa.Table.from_batches(made, query.schema)
    assert found["window_end"].to_pylist() == [5, 2, 10]
    matrix_engines.assert_answer(case, matrix_engines.expected(case) or [], found, "in several lives")


@effort(40)
@given(case=any_queries(), data=st.data())
def test_every_chain_of_verbs_over_several_streams_goes_on_from_saved_state(
    case: Case, data: st.DataObject
) -> None:
    wanted = engines.expected_rows(case)
    assume(wanted is not None)
    query = build(case.query, case.datasets, bound=False, lateness=engines.PATIENCE)
    split = {dataset.name: data.draw(batches_of(dataset.table)) for dataset in case.datasets}
    pushes: list[Push] = [(name, batch) for name in query.names for batch in split[name]]
    made, _ = in_several_lives(query, pushes, *data.draw(lives(len(pushes))))
    found = pa.Table.from_batches(made, query.schema)
    engines.assert_answer(wanted or [], found, "in several lives", d.promises_order(case.query))
