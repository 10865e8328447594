"""Expressions as users write them become the nodes they should, whatever is in names and literals."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from penstock.expr.nodes import Aggregate, Call, Case, Cast, Column, IsIn, Literal

A, B = pk.col("a"), pk.col("b")
ONE = Literal(1, pa.int64())
EVENTS = pk.stream("events", {"t": "int64", "v": "int64"}, time="t")


@pytest.mark.parametrize(
    ("expr", "node"),
    [
        (A + 1, Call("add", (Column("a"), ONE))),
        (1 + A, Call("add", (ONE, Column("a")))),
        (1 - A, Call("sub", (ONE, Column("a")))),
        (1 / A, Call("div", (ONE, Column("a")))),
        (1 // A, Call("floordiv", (ONE, Column("a")))),
        (1 % A, Call("mod", (ONE, Column("a")))),
        (1**A, Call("pow", (ONE, Column("a")))),
        (A > 1, Call("gt", (Column("a"), ONE))),
        (abs(A), Call("abs", (Column("a"),))),
        (+A, Column("a")),
        (True & A, Call("and", (Literal(True, pa.bool_()), Column("a")))),
        (A != "x", Call("ne", (Column("a"), Literal("x", pa.string())))),
        (A.round(2), Call("round", (Column("a"),), (("decimals", 2),))),
        (A.is_in([1]), IsIn(Column("a"), (ONE,))),
        (A.is_in({1}), IsIn(Column("a"), (ONE,))),
        (A.cast("int8"), Cast(Column("a"), pa.int8())),
        (A.sum(where=B), Aggregate("sum", (Column("a"),), Column("b"))),
        (pk.sum("a", where="b"), Aggregate("sum", (Column("a"),), Column("b"))),
        (pk.count(), Aggregate("count", ())),
        (A.count(), Aggregate("count", (Column("a"),))),
        (pk.least("a", 1), Call("least", (Column("a"), ONE))),
        (pk.when("b").then("x").otherwise(A), Case(((Column("b"), Literal("x", pa.string())),), Column("a"))),
        (A.str.slice(1), Call("slice", (Column("a"),), (("offset", 1),))),
        (np.int64(1) + A, Call("add", (ONE, Column("a")))),
        (np.float64(1) < A, Call("gt", (Column("a"), Literal(1.0, pa.float64())))),
    ],
)
def test_an_operator_or_method_builds_its_node(expr, node):
    assert expr.node == node


def test_chained_conditions_count_in_order():
    chain = pk.when(A > 1).then(1).when(A > 0).then(2).otherwise(3)
    assert [condition for condition, _ in chain.node.branches] == [(A > 1).node, (A > 0).node]


LITERALS = [
    (True, True, pa.bool_()),
    (5, 5, pa.int64()),
    (2**63, 2**63, pa.uint64()),
    (0.5, 0.5, pa.float64()),
    ("x", "x", pa.string()),
    (None, None, pa.null()),
    (dt.date(1970, 1, 3), 2, pa.date32()),
    (dt.datetime(1970, 1, 1, 0, 0, 1), 1_000_000, pa.timestamp("us")),
    (dt.datetime(1970, 1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1))), 0, pa.timestamp("us", "UTC")),
    (dt.timedelta(seconds=-1), -1_000_000, pa.duration("us")),
    (np.int8(5), 5, pa.int8()),
    (np.float32(0.5), 0.5, pa.float32()),
    (np.datetime64(7, "ns"), 7, pa.timestamp("ns")),
    (np.datetime64("1970-01-02"), 86_400, pa.timestamp("s")),
    (np.datetime64("1970-01-01T00:05"), 300, pa.timestamp("s")),
    (np.timedelta64(2, "h"), 7_200, pa.duration("s")),
    (np.timedelta64(7, "ms"), 7, pa.duration("ms")),
    (np.bool_(True), True, pa.bool_()),
    (pa.scalar(7, pa.uint8()), 7, pa.uint8()),
]


@pytest.mark.parametrize(("value", "physical", "dtype"), LITERALS, ids=[repr(pair[0]) for pair in LITERALS])
def test_a_python_value_becomes_a_literal_of_its_type(value, physical, dtype):
    assert pk.lit(value).node == Literal(physical, dtype)


@pytest.mark.parametrize(
    "value",
    [
        object(),
        Decimal("NaN"),
        b"x",
        [1],
        {"a": 1},
        2**64,
        -(2**63) - 1,
        "\ud800",
        np.datetime64("NaT"),
        np.timedelta64(1, "M"),
        np.datetime64(1, "ps"),
    ],
)
def test_a_value_no_type_holds_is_refused(value):
    with pytest.raises(pk.ExpressionTypeError):
        pk.lit(value)


def test_a_literal_takes_the_type_it_is_given_if_it_fits():
    assert pk.lit(5, "uint8").node == Literal(5, pa.uint8())
    assert pk.lit(None, "string").node == Literal(None, pa.string())
    with pytest.raises(pk.ExpressionTypeError, match="does not fit int8"):
        pk.lit(500, "int8")


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_names_and_literals_of_any_content_stay_as_they_are(text):
    expr = pk.col(text) == text
    assert expr.node == Call("eq", (Column(text), Literal(text, pa.string())))
    assert "\n" not in repr(expr)


@pytest.mark.parametrize(
    "use", [bool, list, lambda expr: expr and 1, lambda expr: 1 < expr < 3, lambda expr: 1 in expr]
)
def test_python_syntax_that_cannot_work_says_what_to_write(use):
    with pytest.raises(pk.ExpressionTypeError):
        use(A)


def test_the_truth_of_an_expression_points_to_the_operators():
    with pytest.raises(pk.ExpressionTypeError, match=r"combine with & \| ~"):
        bool(A > 1)


@pytest.mark.parametrize(
    "mistake",
    [
        lambda: pk.col(3),
        lambda: A.is_in("abc"),
        lambda: A.between(1, 2, closed="middle"),
        pk.least,
        lambda: A + object(),
    ],
)
def test_a_mistake_in_an_expression_is_an_expression_error(mistake):
    with pytest.raises(pk.ExpressionTypeError):
        mistake()


def test_an_expression_knows_the_name_its_column_will_have():
    assert A.name == "a"
    assert (A + 1).name is None
    assert (A + 1).alias("b").name == "b"
    assert A.alias("b").cast("int8").name == "b"


@pytest.mark.parametrize("closed", ["both", "left", "right", "none"])
def test_between_closes_the_ends_it_is_told_to(closed):
    both = A.between(1, 2, closed).node
    assert [side.function for side in both.args] == [
        "ge" if closed in {"both", "left"} else "gt",
        "le" if closed in {"both", "right"} else "lt",
    ]


@pytest.mark.parametrize(
    ("expr", "advice"),
    [
        (lambda: pk.col("day") + 1, "timedelta(days=1)"),
        (lambda: pk.col("day") + "1d", ".dt.offset_by('1d')"),
        (lambda: pk.col("took") - 5, "timedelta(days=1)"),
        (lambda: pk.col("day") - "2026-01-01", "a time as a datetime"),
        (lambda: pk.col("day") + pk.col("day"), "times are subtracted"),
        (lambda: pk.col("zoned") - pk.col("day"), "take .dt.date() of it"),
        (lambda: pk.col("took") % 2, ".dt.total_seconds()"),
        (lambda: 2 / pk.col("took"), ".dt.total_seconds()"),
    ],
)
def test_arithmetic_with_times_that_has_no_meaning_says_what_to_write(
    expr: Callable[[], pk.Expr], advice: str
) -> None:
    stream = pk.stream(
        "s", {"t": "int64", "day": "date", "took": "duration[s]", "zoned": "timestamp[s, UTC]"}, time="t"
    )
    with pytest.raises(pk.ExpressionTypeError) as raised:
        stream.select(z=expr())
    assert advice in str(raised.value)


def test_dates_of_milliseconds_move_by_whole_days_too() -> None:
    day = pa.array([86_400_000, None], pa.date64())
    stream = pk.from_arrow(pa.table({"t": [0, 1], "a": day}), time="t")
    moved = stream.select(z=pk.col("a") + dt.timedelta(hours=25)).collect()["z"]
    assert moved.type == pa.date64()
    assert moved.to_pylist() == [dt.date(1970, 1, 3), None]


def test_a_date_beyond_all_dates_is_an_error() -> None:
    stream = pk.from_arrow(pa.table({"t": [0], "a": pa.array([2**31 - 1], pa.date32())}), time="t")
    with pytest.raises(pk.OverflowError):
        stream.select(z=pk.col("a") + dt.timedelta(days=1)).collect()


@pytest.mark.parametrize(
    "make",
    [
        lambda name: pk.stream("e", {"t": "int64", name: "int64"}, time="t"),
        lambda name: EVENTS.with_columns(**{name: pk.col("t")}),
        lambda name: EVENTS.select(pk.col("t").alias(name)),
        lambda name: EVENTS.rename({"v": name}),
        lambda name: EVENTS.window(10).agg(**{name: pk.count()}),
        lambda name: EVENTS.signal("v").to_stream(name),
    ],
)
def test_a_name_of_a_column_that_utf_8_cannot_write_is_refused(make: Callable[[str], object]) -> None:
    with pytest.raises(pk.SchemaMismatchError, match="half a character"):
        make("\ud800")
