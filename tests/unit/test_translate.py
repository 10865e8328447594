"""Plans become programs: one object per node, equal ones shared, aggregates named."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

from penstock.expr.nodes import Column, Field, Reduced
from penstock.ir import nodes as ir
from penstock.ir.verify import verify
from penstock.plan import nodes as pl
from penstock.plan.schema import schema_of, time_of
from penstock.translate import to_ir
from penstock.types.time import Time
from penstock.types.windows import CarriedWindow
from tests.unit.passes.cases import (
    CLOCK,
    EVENTS,
    ORDERED,
    TEN,
    TOTALS,
    VIEWS,
    V,
    agg,
    attach,
    call,
    col,
    lit,
    select,
    window,
)

CARRIED = window(TOTALS, span=CarriedWindow(), most=agg("max", col("total")))

NODES: dict[str, tuple[pl.Plan, type[ir.Body]]] = {
    "source": (EVENTS, ir.Input),
    "filter": (VIEWS, ir.Samples),
    "project": (select(EVENTS, "ts"), ir.Samples),
    "union": (pl.Union((EVENTS, VIEWS)), ir.Merge),
    "distinct": (pl.Distinct(EVENTS, ("k",), "first"), ir.Distinct),
    "aggregate": (TOTALS, ir.Reduce),
    "carried": (CARRIED, ir.Reduce),
    "attach": (attach(EVENTS, "k", n=agg("count")), ir.Attach),
    "top": (pl.TopK(TOTALS, 2, "total"), ir.Top),
}


def output(plan: pl.Plan) -> ir.Object:
    program = to_ir(plan)
    verify(program)
    return program[program.output]


@pytest.mark.parametrize(("plan", "body"), NODES.values(), ids=NODES)
def test_each_node_becomes_an_object_with_the_plans_columns_and_time(
    plan: pl.Plan, body: type[ir.Body]
) -> None:
    found = output(plan)
    assert isinstance(found.body, body)
    assert found.schema.equals(schema_of(plan))
    assert found.time == time_of(plan)


def test_the_same_stream_is_one_input_even_if_it_was_declared_twice() -> None:
    twin = pl.Source(EVENTS.name, EVENTS.schema, EVENTS.time)
    program = to_ir(pl.Union((EVENTS, twin)))
    assert program[program.output].body == ir.Merge(("in0", "in0"))


def test_equal_definitions_are_shared() -> None:
    again = pl.Aggregate(VIEWS, TEN, ("k",), TOTALS.fields)  # type: ignore[union-attr]
    program = to_ir(pl.Union((TOTALS, again)))
    assert [type(this.body) for this in program.objects] == [ir.Input, ir.Samples, ir.Reduce, ir.Merge]


def test_streams_that_differ_only_in_time_are_not_shared() -> None:
    shifted = pl.Source(EVENTS.name, EVENTS.schema, Time("ts", CLOCK.type, "us", shift=1))
    assert len(to_ir(pl.Union((EVENTS, shifted))).objects) == 3


def test_each_aggregate_is_named_once_and_fields_refer_to_it() -> None:
    plan = window(EVENTS, "k", mean=call("div", agg("sum", V), agg("count")), total=agg("sum", V))
    body = output(plan).body
    assert isinstance(body, ir.Reduce)
    assert body.reductions == (ir.Reduction("sum", (V,)), ir.Reduction("count", ()))
    assert body.fields == (
        Field("window_start", Column("window_start")),
        Field("window_end", Column("window_end")),
        Field("k", Column("k")),
        Field("mean", call("div", Reduced(0), Reduced(1))),
        Field("total", Reduced(0)),
    )


def test_aggregates_with_other_predicates_are_other_reductions() -> None:
    large = call("gt", V, lit(3))
    body = output(window(EVENTS, a=agg("sum", V), b=agg("sum", V, where=large))).body
    assert isinstance(body, ir.Reduce)
    assert [reduction.where for reduction in body.reductions] == [None, large]


def test_a_union_brings_every_branch_to_the_columns_of_the_first() -> None:
    swapped = pl.Source("others", pa.schema([EVENTS.schema.field(i) for i in (3, 0, 1, 2, 5, 4)]), CLOCK)
    program = to_ir(pl.Union((EVENTS, swapped)))
    verify(program)
    merged = program[program.output]
    assert all(program[name].schema.names == EVENTS.schema.names for name in ir.sources_of(merged.body))


def test_the_sequence_of_a_stream_orders_its_input() -> None:
    assert output(ORDERED).body == ir.Input("events", "u")


@pytest.mark.parametrize("name", ["", "~x[t]", 'a"; drop', "🐟", "in0"])
def test_what_the_user_calls_a_stream_is_no_part_of_an_objects_name(name: str) -> None:
    program = to_ir(window(pl.Source(name, EVENTS.schema, CLOCK), n=agg("count")))
    assert all(re.fullmatch(r"[a-z]+\d+", this.name) for this in program.objects)
    assert program["in0"].body == ir.Input(name)
