"""Joins: compiled = interpreter on random rows, in one piece or in any interleaving of batches and lives."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from penstock.ir.interpret import interpret
from penstock.ir.samples import to_rows, to_table
from penstock.translate import to_ir
from tests.oracle.effort import effort
from tests.oracle.join_cases import JOIN_KINDS, QUERIES, UNORDERED, Case, cases

FAMILIES = {
    **{how: [name for name in QUERIES if name.startswith(f"{how} ")] for how in JOIN_KINDS},
    "asof": [name for name in QUERIES if name.startswith("asof")],
    "rolling": [name for name in QUERIES if name.startswith("rolling")],
    "table": [name for name in QUERIES if name.startswith("table")],
    "followed": ["self", "chain", "filtered", *sorted(UNORDERED)],
}


def expected(case: Case) -> pa.Table:
    query = case.query()
    rows = interpret(to_ir(query.plan), {name: to_rows(table) for name, table in case.rows.items()})
    return to_table(rows, query.schema)


def shown(case: Case, table: pa.Table) -> list[str]:
    """Rows as text, so that NaN equals itself; in order, where order is promised."""
    rows = [repr(row) for row in table.to_pylist()]
    return sorted(rows) if case.name in UNORDERED else rows


def streams_of(case: Case, query: pk.Stream) -> dict[str, pa.Table]:
    return {name: case.rows[name] for name in query.names}


@pytest.mark.parametrize("family", FAMILIES)
@effort(12)
@given(data=st.data())
def test_joins_equal_their_definition(family: str, data: st.DataObject) -> None:
    case = data.draw(cases(FAMILIES[family]))
    query = case.query()
    engine = pk.Engine(threads=data.draw(st.sampled_from([1, 3])))
    found = query.collect(streams_of(case, query), engine=engine)
    assert shown(case, found) == shown(case, expected(case))


@pytest.mark.parametrize("family", FAMILIES)
@effort(12)
@given(data=st.data())
def test_any_interleaving_of_batches_and_lives_gives_the_same(family: str, data: st.DataObject) -> None:
    case = data.draw(cases(FAMILIES[family], sorted_times=True))
    query = case.query(lateness=data.draw(st.sampled_from([0, 3, 100])))
    waiting = {name: list(range(len(table))) for name, table in streams_of(case, query).items()}
    live, made = query.open(), []
    while any(waiting.values()):
        name = data.draw(st.sampled_from([name for name, rows in waiting.items() if rows]))
        size = data.draw(st.integers(1, len(waiting[name])))
        batch, waiting[name] = waiting[name][:size], waiting[name][size:]
        made += live.push({name: case.rows[name].slice(batch[0], size)})
        if data.draw(st.integers(0, 3)) == 0:
            live = query.open(state=live.state())
    metrics = live.metrics
    made += live.finish()
    found = pa.Table.from_batches(made, query.schema)
    assert shown(case, found) == shown(case, expected(case))
    assert metrics.late == 0 and metrics.balanced


@effort(10)
@given(case=cases([name for name in QUERIES if name not in UNORDERED]))
def test_interpreted_kernels_give_the_same(case: Case) -> None:
    query = case.query()
    found = query.collect(streams_of(case, query), engine=pk.Engine(threads=1, backend="interpret"))
    assert shown(case, found) == shown(case, expected(case))
