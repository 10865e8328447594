"""The pipeline runs its passes in order, each unless it is off, and trusts none."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import VerificationError
from penstock.ir.nodes import Program
from penstock.passes import pipeline
from penstock.passes.pipeline import PASSES, optimise
from penstock.translate import to_ir
from tests.unit.passes.cases import LARGE, TOTALS, where

PROGRAM = to_ir(where(TOTALS, LARGE))
NAMES = [name for name, _ in PASSES]


def test_the_trace_tells_what_each_pass_made() -> None:
    trace: list[Any] = []
    result = optimise(PROGRAM, trace=trace)
    assert [name for name, _ in trace] == NAMES
    assert trace[-1][1] == result


@pytest.mark.parametrize("name", sorted(set(NAMES)))
def test_a_pass_that_is_off_does_not_run(name: str) -> None:
    trace: list[Any] = []
    optimise(PROGRAM, off=frozenset({name}), trace=trace)
    assert [value for value, _ in trace] == [value for value in NAMES if value != name]


def test_with_every_pass_off_the_program_stays() -> None:
    assert optimise(PROGRAM, off=frozenset(NAMES)) == PROGRAM


def test_a_pass_that_breaks_the_program_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = ("broken", lambda program: Program(program.objects[1:], program.output))
    monkeypatch.setattr(pipeline, "PASSES", (broken,))
    with pytest.raises(VerificationError):
        optimise(PROGRAM)
