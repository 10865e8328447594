"""What each pass makes of small programs, as text: tests/fixtures/passes/<pass>.txt."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.ir.nodes import Program
from penstock.ir.show import show
from penstock.ir.verify import verify
from penstock.passes.fuse_samples import fuse_samples
from penstock.passes.fuse_signals import fuse_signals
from penstock.passes.pipeline import PASSES, Pass
from penstock.translate import to_ir
from tests.unit.passes import cases

RUN: dict[str, Pass] = dict(PASSES)
# These show best what they do to a program whose objects are fused already.
PREPARED = {
    "push_filter": fuse_samples,
    "fuse_joins": fuse_samples,
    "share_reductions": fuse_samples,
    "share_signals": fuse_signals,
}


def section(name: str, before: Program, after: Program) -> str:
    verify(before)
    verify(after)
    result = "(unchanged)" if after == before else show(after)
    return f"# {name}\n\n{show(before)}\n  →\n{result}\n"


@pytest.mark.parametrize("name", cases.ALL)
def test_a_pass_makes_what_its_fixture_says(name: str, golden: Callable[[str, str], None]) -> None:
    prepare = PREPARED.get(name, lambda program: program)
    programs = {case: prepare(to_ir(plan)) for case, plan in cases.ALL[name].items()}
    sections = [section(case, before, RUN[name](before)) for case, before in programs.items()]
    golden(f"passes/{name}.txt", "\n".join(sections))


def test_every_pass_of_the_pipeline_has_a_fixture() -> None:
    assert set(cases.ALL) == set(RUN)
