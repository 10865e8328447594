"""A physical plan means its program: by the plain twins, and compiled under every legal alternative."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import penstock as pk
from penstock.algorithms.kernel_factory import KernelFactory
from penstock.compile import Compiled, backend_named, compile_plan
from penstock.ir.interpret import interpret as interpret_program
from penstock.ir.samples import to_rows
from penstock.operators.build import build as build_pipeline
from penstock.operators.interpret import interpret as interpret_plan
from penstock.physical import nodes as ph
from penstock.physical.choose_join import EAGER_ALGORITHMS, LAZY_ALGORITHMS
from penstock.physical.show import show
from penstock.plan import nodes as pl
from penstock.plan.schema import sources_of
from penstock.runtime.metrics import Metrics
from penstock.runtime.session import Context, Session
from tests import strategies
from tests.oracle import join_cases, signal_cases
from tests.oracle.alternatives import alternatives
from tests.oracle.build import build
from tests.oracle.compare import assert_same_rows
from tests.oracle.data import rows_of
from tests.oracle.effort import effort
from tests.oracle.engines import PATIENCE, expected_rows
from tests.oracle.queries import Case, any_queries, window_queries

WINDOWED = [name for name in join_cases.QUERIES if name.split()[0] in join_cases.JOIN_KINDS]
Inputs = Mapping[str, Sequence[Mapping[str, Any]]]


def answer(run: Any, inputs: Inputs) -> list[str] | type:
    """Rows as text, in any order, or the kind of the error."""
    try:
        return sorted(map(repr, run(inputs)))
    except pk.PenstockError as error:
        return type(error)


def assert_plans_mean_the_program(plan: pl.Plan, inputs: Inputs) -> None:
    compiled = compile_plan(plan)
    wanted = answer(lambda rows: interpret_program(compiled.program, rows), inputs)
    for mode in ("bounded", "unbounded"):
        physical = compiled.physical(mode)
        assert answer(lambda rows, physical=physical: interpret_plan(physical, rows), inputs) == wanted


@effort(60)
@given(plan=strategies.plans(), inputs=strategies.rows())
def test_any_plan_means_its_program(plan: pl.Plan, inputs: Inputs) -> None:
    assert_plans_mean_the_program(plan, inputs)


@effort(60)
@given(case=any_queries())
def test_windows_mean_their_program(case: Case) -> None:
    inputs = {name: to_rows(table) for name, table in case.tables.items()}
    assert_plans_mean_the_program(build(case.query, case.datasets).plan, inputs)


@effort(60)
@given(case=join_cases.cases(list(join_cases.QUERIES)))
def test_joins_mean_their_program(case: join_cases.Case) -> None:
    inputs = {name: to_rows(table) for name, table in case.rows.items()}
    assert_plans_mean_the_program(case.query().plan, inputs)


@effort(20)
@given(case=signal_cases.cases() | signal_cases.regular_cases())
def test_signals_mean_their_program(case: signal_cases.Case) -> None:
    inputs = {name: to_rows(table) for name, table in case.tables.items()}
    assert_plans_mean_the_program(case.signal.plan, inputs)


# --- alternatives ---------------------------------------------------------------------------------------


def run(compiled: Compiled, plan: ph.Plan, tables: Mapping[str, pa.Table]) -> pa.Table:
    """Run a physical plan compiled, over whole tables."""
    context = Context(pk.Engine(threads=1), Metrics(), plan.mode == "bounded")
    pipeline = build_pipeline(plan, compiled.schema, KernelFactory(backend_named("native")), {})
    session = Session(pipeline, context)
    for name, columns in compiled.table_columns.items():
        session.fill(name, tables[name].select(columns).to_batches())
    made: list[pa.RecordBatch] = []
    for name, schema in compiled.inputs.items():  # times may have another type than their stream declares
        for batch in tables[name].select(schema.names).cast(schema).to_batches():
            made += session.push(name, batch)
    return pa.Table.from_batches([*made, *session.finish()], compiled.schema)


def legal(query: pl.Plan, mode: ph.Mode, draw: st.DataObject) -> tuple[Compiled, ph.Plan]:
    """Draw one of the legal plans of a query; which differ is for the plan to tell, so each is as likely."""
    compiled = compile_plan(query)
    plans = alternatives(compiled.program, sources_of(query), mode)
    return compiled, plans[draw.draw(st.integers(0, len(plans) - 1))]


@effort(60)
@given(case=window_queries(), data=st.data())
def test_windows_under_any_legal_plan_answer_the_same(case: Case, data: st.DataObject) -> None:
    expected = expected_rows(case)
    assume(expected is not None)
    compiled, plan = legal(build(case.query, case.datasets).plan, "bounded", data)
    assert_same_rows(expected or [], rows_of(run(compiled, plan, case.tables)), show(plan))


@pytest.mark.parametrize("mode", ["bounded", "unbounded"])
@effort(60)
@given(case=join_cases.cases(WINDOWED), data=st.data())
def test_joins_under_any_legal_plan_answer_the_same(
    mode: ph.Mode, case: join_cases.Case, data: st.DataObject
) -> None:
    query = case.query(lateness=PATIENCE).plan
    compiled, plan = legal(query, mode, data)
    wanted = interpret_plan(plan, {name: to_rows(table) for name, table in case.rows.items()})
    assert sorted(map(repr, to_rows(run(compiled, plan, case.rows)))) == sorted(map(repr, wanted)), show(plan)


def test_every_choice_has_its_alternatives() -> None:
    """The plans of the windows above differ in key tables, algorithms and emission: none is left out in silence."""
    a, b = (pk.stream(name, {"t": "int64", "k": "int64", "v": "int64"}, time="t") for name in "ab")
    panes = a.window(10, every=1, by="k").agg(s=pk.sum("v"))
    assert taken(panes, "bounded", "key_table", "merging") == {
        ("dense", "subtract-on-evict"),
        ("dense", "recompute"),
        ("dense", "two-stacks"),
        ("hash", "subtract-on-evict"),
    }
    joined = a.join(b, on="k", window=pk.tumbling(10))
    names = {"auto", *LAZY_ALGORITHMS, *EAGER_ALGORITHMS}
    assert taken(joined, "bounded", "algorithm", "eager") == {(name, False) for name in names}
    eager = {(name, True) for name in ("auto", *EAGER_ALGORITHMS)}
    assert taken(joined, "unbounded", "algorithm", "eager") == {(name, False) for name in names} | eager
    regular = pk.stream("r", {"v": "int64"}, time=pk.every("1ms")).signal("v").rolling("20ms").sum()
    assert taken(regular, "bounded", "evaluation") == {("positional",), ("change-to-change",)}


def taken(query: Any, mode: ph.Mode, *fields: str) -> set[tuple[object, ...]]:
    """What the plans of a query choose for these fields of an operator."""
    compiled = compile_plan(query.plan)
    return {
        tuple(getattr(node.op, name) for name in fields)
        for plan in alternatives(compiled.program, sources_of(query.plan), mode)
        for node in plan.nodes
        if hasattr(node.op, fields[0])
    }
