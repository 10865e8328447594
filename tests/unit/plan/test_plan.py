"""The columns, the time and the text of plans, and what verification refuses."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.errors import VerificationError
from penstock.expr import nodes as ex
from penstock.expr.nodes import Call, Column, Field, Literal
from penstock.plan.nodes import Aggregate, Attach, Distinct, Filter, Project, Source, TopK, Union
from penstock.plan.schema import carries_window, schema_of, sources_of, time_of
from penstock.plan.show import show
from penstock.plan.verify import verify
from penstock.types.time import Time
from penstock.types.windows import CarriedWindow, TimeWindow

TS = pa.timestamp("us")
SCHEMA = pa.schema({"ts": TS, "k": pa.string(), "v": pa.int8()})
CLOCK = Time("ts", TS, "us")
EVENTS = Source("events", SCHEMA, CLOCK)
TEN = TimeWindow(10, 10)
TOTAL = Field("total", ex.Aggregate("sum", (Column("v"),)))
SUMS = Aggregate(EVENTS, TEN, ("k",), (TOTAL,))
ROWS = Attach(EVENTS, TEN, ("k",), (TOTAL,))
POSITIVE = Call("gt", (Column("v"), Literal(0, pa.int64())))
REGULAR = Source("ecg", pa.schema({"mv": pa.float32()}), Time("time", TS, "us", period=4_000))


def columns(*names: str) -> tuple[Field, ...]:
    return tuple(Field(name, Column(name)) for name in names)


@pytest.mark.parametrize(
    ("plan", "names"),
    [
        (EVENTS, "ts k v"),
        (REGULAR, "time mv"),
        (Filter(EVENTS, POSITIVE), "ts k v"),
        (Project(EVENTS, columns("v", "ts"), "ts"), "v ts"),
        (Union((EVENTS, EVENTS)), "ts k v"),
        (Distinct(EVENTS, ("k",)), "ts k v"),
        (SUMS, "window_start window_end k total"),
        (ROWS, "ts k v window_start window_end total"),
        (
            Aggregate(SUMS, CarriedWindow(), (), (Field("n", ex.Aggregate("count", ())),)),
            "window_start window_end n",
        ),
        (
            Attach(SUMS, CarriedWindow(), (), (Field("n", ex.Aggregate("count", ())),)),
            "window_start window_end k total n",
        ),
        (TopK(SUMS, 3, "total"), "window_start window_end k total"),
    ],
)
def test_a_plan_knows_the_columns_of_its_result(plan, names):
    assert schema_of(verify(plan)).names == names.split()


def test_window_bounds_are_typed_as_the_time_and_sums_are_wide():
    assert schema_of(SUMS).types == [TS, TS, pa.string(), pa.int64()]


def test_the_time_of_a_window_result_is_the_last_tick_of_the_window():
    assert time_of(SUMS) == Time("window_end", TS, "us", shift=-1)
    assert time_of(Filter(SUMS, Literal(True, pa.bool_()))) == time_of(SUMS)


def test_rows_with_aggregates_keep_their_own_time():
    assert time_of(ROWS) == CLOCK


def test_a_renamed_time_column_is_still_the_time():
    renamed = Project(SUMS, (Field("end", Column("window_end")),), "end")
    assert time_of(renamed) == Time("end", TS, "us", shift=-1)


def test_an_implied_time_is_stored_behind_its_source():
    assert time_of(REGULAR).implied
    assert time_of(Filter(REGULAR, Literal(True, pa.bool_()))) == Time("time", TS, "us")


@pytest.mark.parametrize(
    ("plan", "carried"),
    [
        (EVENTS, False),
        (SUMS, True),
        (ROWS, True),
        (Filter(SUMS, Literal(True, pa.bool_())), True),
        (Project(SUMS, columns("window_start", "window_end", "k"), "window_end"), True),
        (Project(SUMS, columns("window_end", "k"), "window_end"), False),
        (Union((SUMS, SUMS)), True),
    ],
)
def test_rows_carry_their_window_until_a_bound_is_lost(plan, carried):
    assert carries_window(plan) is carried


def test_a_stream_read_twice_is_one_source():
    assert sources_of(Union((EVENTS, Filter(EVENTS, POSITIVE), REGULAR))) == (EVENTS, REGULAR)


ILL_FORMED = [
    (Filter(EVENTS, Column("v")), "boolean"),
    (Filter(EVENTS, Call("gt", (TOTAL.expr, Literal(0, pa.int64())))), "aggregate"),
    (Project(EVENTS, (*columns("ts"), TOTAL), "ts"), "aggregate"),
    (Project(EVENTS, columns("ts", "ts"), "ts"), "twice"),
    (Union((EVENTS, REGULAR)), "differ"),
    (Distinct(EVENTS, ("nope",)), "does not have"),
    (Aggregate(EVENTS, TimeWindow(0, 1), (), (TOTAL,)), "no length"),
    (Aggregate(EVENTS, TimeWindow(1, 0), (), (TOTAL,)), "no step"),
    (Aggregate(EVENTS, CarriedWindow(), (), (TOTAL,)), "no window"),
    (Aggregate(EVENTS, TEN, ("nope",), (TOTAL,)), "does not have"),
    (Aggregate(EVENTS, TEN, (), columns("v")), "varies"),
    (Aggregate(EVENTS, TEN, ("k",), columns("k")), "twice"),
    (Aggregate(Project(EVENTS, columns("v"), "ts"), TEN, (), (TOTAL,)), "time column is gone"),
    (TopK(EVENTS, 3, "v"), "windows"),
    (TopK(SUMS, 0, "total"), "k > 0"),
    (Source("s", SCHEMA, Time("nope", TS, "us")), "stored or implied"),
    (Source("s", SCHEMA, CLOCK, lateness=-1), "negative"),
    (Union((EVENTS, Source("events", SCHEMA, CLOCK, lateness=1))), "one name"),
]


@pytest.mark.parametrize(("plan", "says"), ILL_FORMED, ids=[says for _, says in ILL_FORMED])
def test_verification_refuses_plans_that_break_the_grammar(plan, says):
    with pytest.raises(VerificationError, match=says):
        verify(plan)


def test_a_plan_prints_as_a_tree_with_the_result_on_top():
    late = Source("my events", SCHEMA, CLOCK, sequence="v", lateness=5)
    plan = TopK(Aggregate(Filter(late, POSITIVE), TimeWindow(10, 5, 2), ("k",), (TOTAL,)), 3, "total")
    assert show(plan).splitlines() == [
        "top 3 by total ties first",
        "  aggregate [total = sum(v)] by k in windows of 10us every 5us from 2us",
        "    filter v > 0",
        '      stream "my events" (ts: timestamp[us], k: string, v: int8) time ts in us sequence v lateness 5us',
    ]


@pytest.mark.parametrize(
    ("plan", "line"),
    [
        (ROWS, "attach [total = sum(v)] by k in windows of 10us every 10us"),
        (
            Aggregate(SUMS, CarriedWindow(), (), (Field("n", ex.Aggregate("count", ())),)),
            "aggregate [n = count()] in the windows carried",
        ),
        (Distinct(EVENTS, ("k", "v"), "last"), "distinct by k, v keep last"),
        (Union((EVENTS, EVENTS)), "union of 2"),
        (
            Project(EVENTS, (*columns("ts"), Field("new\nline", Column("v"))), "ts"),
            'project [ts, "new\\nline" = v]',
        ),
        (REGULAR, "stream ecg (mv: float) time time = 0 + i * 4ms"),
    ],
)
def test_every_node_prints_on_one_line(plan, line):
    assert show(plan).splitlines()[0] == line


def test_lengths_of_time_without_a_unit_print_as_ticks():
    source = Source("s", pa.schema([("t", pa.int64())]), Time("t", pa.int64(), None))
    plan = Aggregate(source, TimeWindow(10, 5, 2), (), (Field("n", ex.Aggregate("count", ())),))
    assert show(plan).splitlines()[0] == "aggregate [n = count()] in windows of 10 ticks every 5 from 2"
