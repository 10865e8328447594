"""Every pass keeps the program's meaning: the interpreter gives the same rows before and after."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from penstock.errors import OverflowError as PenstockOverflow
from penstock.ir.interpret import interpret
from penstock.ir.nodes import Program
from penstock.ir.verify import verify
from penstock.passes.pipeline import PASSES, Pass, optimise
from penstock.translate import to_ir
from tests.strategies import plans, rows

STAGES = [pytest.param(index, id=f"{index}-{name}") for index, (name, _) in enumerate(PASSES)]
ALONE = [pytest.param(run, id=name) for name, run in dict(PASSES).items()]


def outcome(program: Program, inputs: Any) -> str:
    """Give the answer as text, in which NaN equals itself and -0.0 differs from 0.0."""
    try:
        return repr(interpret(program, inputs))
    except PenstockOverflow:
        return "overflow"


def assert_same_answer(before: Program, after: Program, inputs: Any) -> None:
    """Allow one difference: an error may vanish with the column that nobody reads."""
    verify(after)
    expected = outcome(before, inputs)
    assert expected == "overflow" or outcome(after, inputs) == expected
    assert after[after.output].schema.equals(before[before.output].schema)


@pytest.mark.parametrize("run", ALONE)
@given(plan=plans(), inputs=rows())
def test_a_pass_alone_keeps_the_answer(run: Pass, plan: Any, inputs: Any) -> None:
    before = to_ir(plan)
    assert_same_answer(before, run(before), inputs)


@pytest.mark.parametrize("stage", STAGES)
@given(plan=plans(), inputs=rows())
def test_a_pass_keeps_the_answer_behind_those_before_it(stage: int, plan: Any, inputs: Any) -> None:
    before = to_ir(plan)
    for _, run in PASSES[:stage]:
        before = run(before)
    assert_same_answer(before, PASSES[stage][1](before), inputs)


@given(plan=plans(), inputs=rows())
def test_the_whole_pipeline_keeps_the_answer(plan: Any, inputs: Any) -> None:
    assert_same_answer(to_ir(plan), optimise(to_ir(plan)), inputs)


@pytest.mark.parametrize("run", ALONE)
@given(plan=plans())
def test_a_pass_run_twice_changes_nothing_more(run: Pass, plan: Any) -> None:
    once = run(to_ir(plan))
    assert run(once) == once
