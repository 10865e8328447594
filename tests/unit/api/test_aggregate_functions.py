"""Aggregates as functions and as methods: the same nodes, checked as they are written."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import penstock as pk
from penstock.errors import ExpressionTypeError
from penstock.expr.aggregates import AGGREGATES
from penstock.expr.nodes import Aggregate, Column

BUILT_IN = sorted(set(AGGREGATES) - {"custom"})
X, Y, W = Column("x"), Column("y"), Column("w")
GIVEN = {"quantile": {"q": 0.25}}


def operands(function):
    return ("x", "y")[: AGGREGATES[function].most]


@pytest.mark.parametrize("function", BUILT_IN)
def test_every_aggregate_is_a_function_and_a_method(function):
    names, options = operands(function), GIVEN.get(function, {})
    called = getattr(pk, function)(*names, **options, where="w")
    method = getattr(pk.col("x"), function)(*names[1:], **options, where="w")
    assert called.node == method.node
    assert called.node.args == tuple(map(Column, names))
    assert called.node.where == W


@pytest.mark.parametrize("function", BUILT_IN)
def test_a_function_and_its_method_have_the_options_and_defaults_of_the_catalogue(function):
    expected = {
        option.name: option.default for option in AGGREGATES[function].options if option.default is not None
    }
    for described in (getattr(pk, function), getattr(pk.Expr, function)):
        found = inspect.signature(described).parameters.values()
        known = {option.name for option in AGGREGATES[function].options}
        assert {parameter.name for parameter in found} >= known
        assert {
            parameter.name: parameter.default for parameter in found if parameter.name in expected
        } == expected


@pytest.mark.parametrize(
    ("expr", "node"),
    [
        (pk.std("x"), Aggregate("std", (X,), None, (("ddof", 1),))),
        (pk.std("x", 0), Aggregate("std", (X,), None, (("ddof", 0),))),
        (pk.var("x", ddof=np.int64(2)), Aggregate("var", (X,), None, (("ddof", 2),))),
        (pk.quantile("x", 0.5), Aggregate("quantile", (X,), None, (("q", 0.5),))),
        (pk.quantile("x", q=1), Aggregate("quantile", (X,), None, (("q", 1.0),))),
        (pk.kurtosis("x"), Aggregate("kurtosis", (X,), None, (("bias", True), ("fisher", True)))),
        (pk.skew("x", bias=False), Aggregate("skew", (X,), None, (("bias", False),))),
        (pk.first("x"), Aggregate("first", (X,), None, (("ignore_nulls", False),))),
        (pk.cov("x", "y"), Aggregate("cov", (X, Y), None, (("ddof", 1),))),
        (pk.max_by("x", pk.col("y") + 1), Aggregate("max_by", (X, (pk.col("y") + 1).node))),
        (pk.col("x").corr("y"), Aggregate("corr", (X, Y))),
        (pk.any(pk.col("x") > 1), Aggregate("any", ((pk.col("x") > 1).node,))),
        (pk.list("x"), Aggregate("list", (X,))),
    ],
)
def test_an_aggregate_carries_all_its_options(expr, node):
    assert expr.node == node


def test_an_option_left_out_is_the_same_as_its_default():
    assert pk.std("x").node == pk.std("x", ddof=1).node
    assert pk.last("x").node == pk.last("x", ignore_nulls=False).node
    assert pk.std("x").node != pk.std("x", ddof=0).node


@pytest.mark.parametrize(
    "written",
    [
        lambda: pk.quantile("x", 50),
        lambda: pk.col("x").quantile(-0.5),
        lambda: pk.quantile("x", pk.col("y")),
        lambda: pk.std("x", ddof=-1),
        lambda: pk.col("x").var(ddof=1.0),
        lambda: pk.cov("x", "y", ddof="1"),
        lambda: pk.first("x", ignore_nulls="all"),
        lambda: pk.skew("x", bias=None),
        lambda: pk.kurtosis("x", fisher=0),
    ],
)
def test_a_bad_option_is_refused_where_it_is_written(written):
    with pytest.raises(ExpressionTypeError, match=r" of .* is .*; write "):
        written()


@pytest.mark.parametrize(
    ("message", "expr"),
    [
        ("std takes a number", pk.std("s")),
        ("corr takes two numbers", pk.corr("v", "s")),
        ("all takes a boolean", pk.all("v")),
        ("mode takes a value that has an order", pk.mode("blob")),
    ],
)
def test_a_bad_type_is_refused_when_the_query_is_written(message, expr):
    events = pk.stream("e", {"t": "int64", "v": "int64", "s": "string", "blob": "binary"}, time="t")
    with pytest.raises(ExpressionTypeError, match=message):
        events.window(10).agg(r=expr)


def test_the_schema_of_a_query_tells_the_types_of_its_aggregates():
    events = pk.stream("e", {"t": "timestamp[s]", "v": "int8", "s": "dictionary"}, time="t")
    query = events.window("10s").agg(
        deviation=pk.std("v"), first=pk.first("s"), seen=pk.list("s"), users=pk.count_distinct("s")
    )
    assert [str(field.type) for field in query.schema][2:] == [
        "double",
        "string",
        "list<item: string>",
        "int64",
    ]
