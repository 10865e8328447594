"""A physical plan means its program: by the plain twins, and compiled under every legal alternative."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import given

import penstock as pk
from penstock.compile import compile_plan
from penstock.ir.interpret import interpret as interpret_program
from penstock.ir.rows import to_rows
from penstock.operators.interpret import interpret as interpret_plan
from penstock.plan import nodes as pl
from tests import strategies
from tests.oracle import join_cases, signal_cases
from tests.oracle.build import build
from tests.oracle.effort import effort
from tests.oracle.queries import Case, any_queries

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
