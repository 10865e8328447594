"""Types of expressions: what they are, and what errors say about those that have none."""

from __future__ import annotations

import pyarrow as pa
import pytest

import penstock as pk
from penstock.errors import ExpressionTypeError, UnknownColumnError
from penstock.expr.nodes import Aggregate, Call, Case, Column, IsIn, Literal, Reduced
from penstock.expr.rules import Operand, common_type
from penstock.expr.typing import type_of

SCHEMA = pa.schema(
    {
        "i8": pa.int8(),
        "i64": pa.int64(),
        "u8": pa.uint8(),
        "u64": pa.uint64(),
        "f32": pa.float32(),
        "f64": pa.float64(),
        "b": pa.bool_(),
        "s": pa.string(),
        "dict": pa.dictionary(pa.int32(), pa.string()),
        "ts": pa.timestamp("us"),
        "tsz": pa.timestamp("ms", "UTC"),
        "day": pa.date32(),
        "span": pa.duration("ms"),
        "list": pa.list_(pa.int64()),
        "nothing": pa.null(),
    }
)
C = pk.col
WELL_TYPED = [
    (C("i8") + C("u8"), pa.int64()),
    (C("u64") + C("u8"), pa.uint64()),
    (C("u64") + 1, pa.uint64()),
    (C("u64") + -1, pa.int64()),
    (C("u64") + C("i8"), pa.int64()),
    (C("u8") + 1, pa.int64()),
    (C("f32") * C("i8"), pa.float64()),
    (C("b") + C("b"), pa.int64()),
    (C("i8") / C("i8"), pa.float64()),
    (C("i8") ** 2, pa.float64()),
    (C("ts") + C("span"), pa.timestamp("us")),
    (C("span") + C("tsz"), pa.timestamp("ms", "UTC")),
    (C("ts") - C("ts"), pa.duration("us")),
    (C("span") * 2, pa.duration("ms")),
    (C("span") / C("span"), pa.float64()),
    (C("span") // C("span"), pa.int64()),
    (C("i64") > C("f32"), pa.bool_()),
    (C("day") <= C("ts"), pa.bool_()),
    (C("dict") == "x", pa.bool_()),
    (C("i8").floor(), pa.int8()),
    (C("f32").floor(), pa.float64()),
    (C("i8").fill_null(C("f32")), pa.float64()),
    (C("i8").fill_null(C("i8")), pa.int8()),
    (C("dict").fill_null("x"), pa.string()),
    (C("nothing") + 1, pa.int64()),
    (C("nothing").is_null(), pa.bool_()),
    (pk.when(C("b")).then(1).otherwise(None), pa.int64()),
    (pk.when(C("b")).then(C("ts")).otherwise(None), pa.timestamp("us")),
    (pk.sum("u8"), pa.uint64()),
    (pk.sum("span"), pa.duration("ms")),
    (pk.min("dict"), pa.string()),
    (pk.max("f32"), pa.float32()),
    (pk.count("list"), pa.int64()),
    (pk.sum("f64") / pk.count(), pa.float64()),
]


@pytest.mark.parametrize(("expr", "dtype"), WELL_TYPED, ids=[repr(expr) for expr, _ in WELL_TYPED])
def test_an_expression_has_the_type_the_rules_give(expr, dtype):
    assert type_of(expr.node, SCHEMA) == dtype


ILL_TYPED = [
    (C("s") + 1, "add takes .* not string and int64"),
    (C("s") > 1, "gt takes two values of comparable types"),
    (C("b") == 1, "comparable"),
    (C("ts") == C("tsz"), "one has a time zone"),
    (C("ts") == "2026-01-01", "datetime, or cast"),
    (C("ts") + C("ts"), "add takes"),
    (C("day") - C("day"), "sub takes"),
    (C("i64") & C("b"), "and takes booleans"),
    (~C("i64"), "not takes a boolean"),
    (C("s").sqrt(), "sqrt takes a number"),
    (C("i64").dt.year(), "year takes a timestamp or date"),
    (C("day").dt.hour(), "hour takes a timestamp"),
    (C("i64").str.len_chars(), "str_len_chars takes a string"),
    (-C("b"), "neg takes"),
    (C("list") + 1, "add takes"),
    (C("list") == C("list"), "comparable"),
    (C("list").cast("int64"), "cannot be cast"),
    (C("span").cast("float64"), "cannot be cast"),
    (C("i64").is_in(["x"]), "is_in takes"),
    (C("i64").is_in([1, None]), "is_null"),
    (pk.when(C("i64")).then(1).otherwise(2), "must be a boolean"),
    (pk.when(C("b")).then(1).otherwise("x"), "values of one type"),
    (pk.least("i64", "s"), "least takes"),
    (pk.sum("s"), "sum takes a number or duration, not string"),
    (pk.mean("span"), "mean takes a number"),
    (pk.min("list"), "min takes"),
    (pk.sum(pk.sum("i64")), "inside another"),
    (pk.count(where=C("i64")), "where= must be a boolean"),
    (pk.count(where=pk.sum("i64") > 1), "inside another"),
]


@pytest.mark.parametrize(("expr", "says"), ILL_TYPED, ids=[repr(expr) for expr, _ in ILL_TYPED])
def test_an_expression_without_a_type_says_which_and_why(expr, says):
    with pytest.raises(ExpressionTypeError, match=says):
        type_of(expr.node, SCHEMA)


def test_an_unknown_column_is_answered_with_the_nearest_name():
    with pytest.raises(UnknownColumnError) as raised:
        type_of(Column("spam"), pa.schema({"span": pa.int8(), "x": pa.int8()}))
    assert str(raised.value) == "there is no column 'spam'; did you mean 'span'? (columns: 'span', 'x')"
    assert isinstance(raised.value, KeyError)


def test_a_long_list_of_columns_is_cut_short():
    wide = pa.schema({f"c{i}": pa.int8() for i in range(100)})
    with pytest.raises(UnknownColumnError, match="and 80 more"):
        type_of(Column("zzzzzz"), wide)


@pytest.mark.parametrize(
    "node",
    [
        Call("no_such", (Column("i8"),)),
        Call("add", (Column("i8"),)),
        Call("neg", (Column("i8"), Column("i8"))),
        Aggregate("no_such", (Column("i8"),)),
        Aggregate("sum", ()),
    ],
)
def test_unknown_functions_and_wrong_numbers_of_arguments_are_refused(node):
    with pytest.raises(ExpressionTypeError):
        type_of(node, SCHEMA)


def test_a_reduced_value_has_the_type_of_its_reduction():
    node = Call("div", (Reduced(0), Reduced(1)))
    assert type_of(node, SCHEMA, [pa.int64(), pa.int64()]) == pa.float64()


def test_a_choice_is_checked_in_all_its_branches():
    branches = ((Column("b"), Literal(1, pa.int64())), (Column("b"), Column("nope")))
    with pytest.raises(UnknownColumnError):
        type_of(Case(branches, Literal(2, pa.int64())), SCHEMA)
    with pytest.raises(UnknownColumnError):
        type_of(IsIn(Column("nope"), ()), SCHEMA)


@pytest.mark.parametrize(
    ("first", "second", "common"),
    [
        (pa.int8(), pa.int8(), pa.int8()),
        (pa.int8(), pa.int16(), pa.int64()),
        (pa.uint64(), pa.uint8(), pa.uint64()),
        (pa.float32(), pa.float32(), pa.float32()),
        (pa.timestamp("s"), pa.timestamp("ns"), pa.timestamp("ns")),
        (pa.timestamp("s"), pa.timestamp("s", "UTC"), None),
        (pa.string(), pa.large_string(), pa.string()),
        (pa.null(), pa.string(), pa.string()),
        (pa.bool_(), pa.int8(), None),
        (pa.string(), pa.int8(), None),
    ],
)
def test_the_common_type_holds_both_in_either_order(first, second, common):
    assert common_type([Operand(first), Operand(second)]) == common
    assert common_type([Operand(second), Operand(first)]) == common
