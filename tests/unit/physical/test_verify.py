"""Plans that lose or repeat rows, or stop time, are refused."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from penstock.errors import VerificationError
from penstock.physical.nodes import (
    Assumption,
    AtEnd,
    Choice,
    Distinct,
    Follows,
    Node,
    Plan,
    Rows,
    Scan,
    TableInput,
    Union,
)
from penstock.physical.verify import verify
from penstock.types.time import Time

SCHEMA = pa.schema({"t": pa.int64()})
TIME = Time("t", pa.int64(), None)
SCAN = Node("s", (), Scan("s", None, 0, "drop", True), SCHEMA, TIME, Follows())
ROWS = Node("r", ("s",), Rows((), ()), SCHEMA, TIME, Follows())
FIRST = Node("d", ("r",), Distinct(("t",), "first", None), SCHEMA, TIME, Follows())
PLAN = Plan((SCAN, ROWS, FIRST), "d", "unbounded")


def test_a_plan_that_holds_is_given_back() -> None:
    assert verify(PLAN) is PLAN


@pytest.mark.parametrize(
    ("nodes", "output", "problem"),
    [
        ((SCAN, ROWS), "x", "the output x is not defined"),
        ((SCAN, ROWS, ROWS), "r", "r is defined twice"),
        ((ROWS, SCAN), "r", "r reads s, which is not defined before it"),
        ((SCAN, replace(ROWS, inputs=("s", "s"))), "r", "r has 2 inputs"),
        (
            (SCAN, replace(SCAN, id="u"), ROWS),
            "r",
            "rows of u reach neither a counting operator nor the output",
        ),
        ((SCAN, replace(ROWS, watermark=AtEnd(""))), "r", "time stops at r, without a reason"),
        ((SCAN, replace(ROWS, time=None)), "r", "r has no time"),
        ((Node("s", (), TableInput("t"), SCHEMA, TIME, Follows()),), "s", "the table s has a time"),
        ((SCAN, replace(ROWS, choices=(Choice("a", "b", ""),))), "r", "r gives no reason for its a"),
        (
            (SCAN, replace(ROWS, choices=(Choice("a", "b", "c", (), (Assumption("x", ""),)),))),
            "r",
            "r assumes that x, without a fallback",
        ),
        ((SCAN, Node("u", (), Union(), SCHEMA, TIME, Follows())), "u", "u has 0 inputs"),
    ],
)
def test_a_plan_that_does_not_hold_is_refused(nodes: tuple[Node, ...], output: str, problem: str) -> None:
    with pytest.raises(VerificationError, match=problem):
        verify(Plan(nodes, output, "unbounded"))
