"""A program that breaks the grammar is refused, each rule by an example of its own."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given

from penstock.errors import VerificationError
from penstock.expr.nodes import Aggregate, Call, Column, Expr, Field, Literal, Reduced
from penstock.ir.nodes import (
    Attach,
    Body,
    Distinct,
    Input,
    Merge,
    Object,
    Program,
    Reduce,
    Reduction,
    Samples,
    Top,
)
from penstock.ir.verify import verify
from penstock.translate import to_ir
from penstock.types.time import Time
from penstock.types.windows import CarriedWindow, TimeWindow
from tests.strategies import plans

TICKS = pa.timestamp("us")
SCHEMA = pa.schema({"ts": TICKS, "k": pa.int64(), "v": pa.int64()})
CLOCK = Time("ts", TICKS, "us")
EVENTS = Object("in0", Input("events"), SCHEMA, CLOCK)
SUM = Reduction("sum", (Column("v"),))
TOTAL = Field("total", Reduced(0))
BOUNDS = (Field("window_start", Column("window_start")), Field("window_end", Column("window_end")))
KEY = Field("k", Column("k"))
WINDOWS = pa.schema({"window_start": TICKS, "window_end": TICKS, "k": pa.int64(), "total": pa.int64()})
REDUCE = Reduce("in0", TimeWindow(10, 5), (KEY,), (SUM,), (*BOUNDS, KEY, TOTAL))
SAME = tuple(Field(name, Column(name)) for name in SCHEMA.names)
LAST = Time("window_end", TICKS, "us", shift=-1)


def program(body: Body, schema: pa.Schema = SCHEMA, time: Time = CLOCK) -> Program:
    return Program((EVENTS, Object("x", body, schema, time)), "x")


def over_windows(body: Body, schema: pa.Schema = WINDOWS) -> Program:
    return Program((EVENTS, Object("w", REDUCE, WINDOWS, LAST), Object("x", body, schema, LAST)), "x")


def reduce(**changes: object) -> Program:
    return program(replace(REDUCE, **changes), WINDOWS, LAST)


def samples(
    where: Expr | None = None, fields: tuple[Field, ...] = SAME, schema: pa.Schema = SCHEMA
) -> Program:
    return program(Samples("in0", where, fields), schema)


GOOD = {
    "samples": samples(Call("gt", (Column("v"), Literal(0, pa.int64())))),
    "windows": reduce(),
    "having": reduce(having=Call("gt", (Reduced(0), Column("k")))),
    "attached": program(
        Attach("in0", TimeWindow(10, 5), (KEY,), (SUM,), (*SAME, TOTAL)), SCHEMA.append(WINDOWS.field(3))
    ),
    "carried": over_windows(
        Reduce("w", CarriedWindow(), (), (Reduction("max", (Column("total"),)),), (*BOUNDS, TOTAL)),
        pa.schema([WINDOWS.field(i) for i in (0, 1, 3)]),
    ),
    "merged": program(Merge(("in0", "in0"))),
    "distinct": program(Distinct("in0", ("k",), "last")),
    "largest": over_windows(Top("w", 2, "total", "all")),
}

OTHER = pa.schema({"ts": TICKS, "k": pa.string(), "v": pa.int64()})
BAD = {
    "is defined twice": Program((EVENTS, EVENTS), "in0"),
    "not defined before it": program(Samples("later", None, SAME)),
    "the output ~y is not defined": Program((EVENTS,), "y"),
    "predicate of kind int": samples(Column("v")),
    "no column 'w'": samples(Call("is_null", (Column("w"),))),
    "is ill typed": samples(
        fields=(*SAME[:2], Field("v", Call("add", (Column("v"), Literal("a", pa.string())))))
    ),
    "declares 'k' as string, but it is int64": samples(schema=OTHER),
    "has two columns named 'k'": program(Distinct("in0", ("k",), "last"), SCHEMA.append(SCHEMA.field("k"))),
    "has fields ['ts', 'k'] but columns": samples(fields=SAME[:2]),
    "an aggregate where a reduction should be named": samples(
        fields=(*SAME[:2], Field("v", Aggregate("sum", (Column("v"),))))
    ),
    "reads reduction #0 of 0": samples(fields=(*SAME[:2], Field("v", Reduced(0)))),
    "reads reduction #3 of 1": reduce(fields=(*BOUNDS, KEY, Field("total", Reduced(3)))),
    "size 0 every 5": reduce(domain=TimeWindow(0, 5)),
    "size 5 every -1": reduce(domain=TimeWindow(5, -1)),
    "two keys named 'k'": reduce(keys=(KEY, KEY)),
    "name of a window bound": reduce(keys=(KEY, Field("window_end", Column("v")))),
    "no column 'v'": reduce(having=Call("is_null", (Column("v"),))),
    "not there: 'window_end', 'window_start'": reduce(domain=CarriedWindow()),
    "not there: 'at'": Program((replace(EVENTS, time=Time("at", TICKS, "us")),), "in0"),
    "not there: 'order'": Program((replace(EVENTS, body=Input("events", "order")),), "in0"),
    "does not advance": Program((replace(EVENTS, time=Time("ts", TICKS, "us", period=0)),), "in0"),
    "merges nothing": program(Merge(())),
    "other columns than ~in0": program(Merge(("in0",)), OTHER),
    "has another time than ~in0": program(Merge(("in0",)), SCHEMA, Time("ts", TICKS, "us", shift=-1)),
    "has other columns than ~in0": program(Distinct("in0", ("k",), "last"), OTHER),
    "neither first nor last": program(Distinct("in0", ("k",), "some")),
    "not there: 'w'": program(Distinct("in0", ("w",), "first")),
    "the 0 largest": over_windows(Top("w", 0, "total", "all")),
    "neither first nor all": over_windows(Top("w", 1, "total", "some")),
}


@pytest.mark.parametrize("good", GOOD.values(), ids=GOOD)
def test_a_well_formed_program_passes(good: Program) -> None:
    verify(good)


@pytest.mark.parametrize("what", BAD)
def test_a_program_that_breaks_a_rule_is_refused(what: str) -> None:
    with pytest.raises(VerificationError) as refused:
        verify(BAD[what])
    assert what in str(refused.value)


@given(plan=plans())
def test_every_translated_plan_is_well_formed(plan: object) -> None:
    verify(to_ir(plan))  # type: ignore[arg-type]
