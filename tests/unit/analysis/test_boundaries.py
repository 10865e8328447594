"""How far back an output looks: by table, and by cutting the input there and seeing nothing change."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from penstock.analysis.boundaries import CarryIn, Finite, Reach, Sequential, boundaries, lineage
from penstock.errors import OverflowError as PenstockOverflow
from penstock.ir.interpret import interpret
from penstock.ir.nodes import Input, Program
from penstock.ir.samples import time_at
from penstock.passes.pipeline import optimise
from penstock.plan import nodes as pl
from penstock.translate import to_ir
from penstock.types.windows import CarriedWindow, TimeWindow
from tests.strategies import plans, rows
from tests.unit.passes.cases import EVENTS, TOTALS, TS, VIEWS, agg, attach, call, col, lit, select, window

FIVE = TimeWindow(5, 5)
SLOW = TimeWindow(7, 2)
CARRIED = CarriedWindow()
FIRST = pl.Distinct(EVENTS, ("k",), "first")
LAST = pl.Distinct(EVENTS, ("k",), "last")
MOVED = select(EVENTS, "k", ts=call("add", TS, lit(1, pa.duration("us"))))
COUNT = agg("count")
OTHER = pl.Source("others", EVENTS.schema, EVENTS.time)

REACH: dict[str, tuple[pl.Plan, Reach]] = {
    "an input is itself": (EVENTS, Finite()),
    "a filter looks at its row": (VIEWS, Finite()),
    "a window reaches back by its size": (window(EVENTS, span=FIVE, n=COUNT), Finite(4)),
    "a slide does not change that": (window(EVENTS, span=SLOW, n=COUNT), Finite(6)),
    "windows over windows add up": (
        window(window(EVENTS, span=FIVE, n=COUNT), span=SLOW, m=COUNT),
        Finite(10),
    ),
    "a row of an attached window sees both ways": (attach(EVENTS, span=FIVE, n=COUNT), Finite(4, 4)),
    "results of one window have one time": (window(TOTALS, span=CARRIED, n=COUNT), Finite(9_999_999)),
    "regrouped rows lie in their window": (
        window(attach(EVENTS, span=FIVE, n=COUNT), span=CARRIED, m=COUNT),
        Finite(8, 4),
    ),
    "the largest rows of a window": (pl.TopK(attach(EVENTS, span=FIVE, n=COUNT), 1, "v"), Finite(8, 8)),
    "the largest results of a window": (pl.TopK(window(EVENTS, span=FIVE, n=COUNT), 1, "n"), Finite(4)),
    "the first of each value": (FIRST, CarryIn()),
    "a window over the first of each value": (window(FIRST, span=FIVE, n=COUNT), CarryIn()),
    "the last of each value": (LAST, Sequential()),
    "a moved time": (MOVED, Sequential()),
    "the worse of two branches": (pl.Union((EVENTS, FIRST)), CarryIn()),
    "the longer of two branches": (
        pl.Union((window(EVENTS, span=FIVE, n=COUNT), window(EVENTS, span=SLOW, n=COUNT))),
        Finite(6),
    ),
}


@pytest.mark.parametrize(("plan", "expected"), REACH.values(), ids=REACH)
def test_the_reach_of_a_query_into_its_input(plan: pl.Plan, expected: Reach) -> None:
    assert boundaries(to_ir(plan)) == {"in0": expected}
    assert list(boundaries(optimise(to_ir(plan))).values()) == [expected]


def test_each_input_has_its_own_reach() -> None:
    plan = pl.Union((window(EVENTS, span=FIVE, n=COUNT), window(OTHER, span=SLOW, n=COUNT)))
    program = to_ir(plan)
    streams = {this.body.stream: this.name for this in program.objects if isinstance(this.body, Input)}
    assert boundaries(program) == {streams["events"]: Finite(4), streams["others"]: Finite(6)}


def test_every_object_has_its_lineage() -> None:
    program = to_ir(select(TOTALS, "window_end", "total", time="window_end", x=col("n")))
    assert [reach["in0"] for reach in lineage(program).values()] == [
        Finite(),
        Finite(),
        *[Finite(9_999_999)] * 2,
    ]


def within(program: Program, inputs: Any, start: int, end: int) -> list[Any]:
    """List the output in a span of time, NaN being equal to itself."""
    time = program[program.output].time
    found = interpret(program, inputs)
    return [repr(row) for row in found if (at := time_at(row, time)) is not None and start <= at < end]


@given(plan=plans(), inputs=rows(), start=st.integers(-2, 30), size=st.integers(1, 20))
def test_rows_beyond_a_finite_reach_change_nothing(plan: Any, inputs: Any, start: int, size: int) -> None:
    program = to_ir(plan)
    reach = boundaries(program)
    assume(all(isinstance(value, Finite) for value in reach.values()))
    cut = {
        this.body.stream: [
            row
            for row in inputs[this.body.stream]
            if row["ts"] is not None
            and start - reach[this.name].past <= row["ts"] < start + size + reach[this.name].future
        ]
        for this in program.objects
        if isinstance(this.body, Input)
    }
    try:
        expected = within(program, inputs, start, start + size)
    except PenstockOverflow:
        return
    assert within(program, cut, start, start + size) == expected
