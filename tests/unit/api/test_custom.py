"""Tracing the functions of a custom aggregate: what they may do, and what each mistake is told."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

import penstock as pk

HERE = re.escape(__file__)


def same(s: Any) -> Any:
    return s


def adding(add: Callable[..., Any], init: object = 0.0) -> pk.Expr:
    """Define an aggregate by its `add` alone, and use it."""
    return pk.aggregate(init=init, add=add, result=lambda s: s[0] if isinstance(init, tuple) else s)("v")


def helper(x: Any) -> Any:
    return 1 if x > 0 else 2


def unpacking(s: Any, x: Any) -> Any:
    total, count, more = s
    return total + x, count + more


def repeatedly(s: Any, x: Any) -> Any:
    for _ in range(150):
        s = s + x
    return s


def growing(s: Any, x: Any) -> Any:
    terms = [x + number for number in range(512)]
    while len(terms) > 1:
        terms = [one * other for one, other in zip(terms[::2], terms[1::2], strict=True)]
    return s + terms[0]


UNTRACEABLE: dict[str, tuple[Callable[..., Any], str]] = {
    "if": (lambda s, x: s + x if x > 0 else s, r"pk\.when\(c\)\.then\(a\)\.otherwise\(b\) instead of if"),
    "and": (lambda s, x: s + ((x > 0) and (x < 9)), r"& \| ~ instead of and"),
    "not": (lambda s, x: s + (not x), r"& \| ~ instead of and, or, not"),
    "bool": (lambda s, x: s + bool(x), "no truth value"),
    "in": (lambda s, x: s + (2 in x), r"\.is_in\(\.\.\.\) instead of in"),
    "max": (lambda s, x: max(s, x + 1), r"pk\.greatest instead of min and max"),
    "a chain": (lambda s, x: s + (0 < x < 1), r"\(a < b\) & \(b < c\)"),
    "a loop": (lambda s, x: [value for value in x], "cannot be iterated over"),  # noqa: C416
    "float": (lambda s, x: s + float(x), r"\.cast\('float64'\) instead of float"),
    "int": (lambda s, x: s + int(x), r"\.cast\('int64'\) instead of int"),
    "math": (lambda s, x: s + math.sqrt(x), r"\.sqrt\(\) instead of math\.sqrt"),
    "an index": (lambda s, x: s[0] + x, "TypeError: 'Expr' object is not subscriptable"),
    "a method": (lambda s, x: s.total + x, "AttributeError: 'Expr' object has no attribute 'total'"),
    "a dictionary": (lambda s, x: {0: 1}[x], "TypeError: unhashable|TypeError: cannot use"),
    "a range": (lambda s, x: [s for _ in range(x)], "TypeError"),
    "a helper": (lambda s, x: s + helper(x), "instead of if"),
    "a bug": (lambda s, x: s + 1 // 0, "ZeroDivisionError: integer division or modulo by zero"),
    "text": (lambda s, x: s + x + open, "builtin_function_or_method cannot stand in an expression"),
    "another column": (lambda s, x: s + pk.col("price"), "reads the column price"),
    "a column like a symbol": (lambda s, x: s + pk.col("arg0"), "reads the column arg0"),
    "another aggregate": (lambda s, x: s + pk.sum("v"), r"reads the column v|uses the aggregate sum\(v\)"),
    "an aggregate of a symbol": (lambda s, x: s + x.sum(), r"uses the aggregate sum\(arg0\)"),
    "a tuple": (lambda s, x: (s, x), "returns 2 values, but init is a single one"),
    "an unknown value": (lambda s, x: object(), "returns a object"),
    "a generator": (lambda s, x: (s for _ in "ab"), "returns a generator"),
    "too deep": (repeatedly, "nested more than 100 deep"),
    "too large": (growing, "more than 1000 operations"),
    "any number of parameters": (lambda s, *xs: s, "one by one, instead of xs"),
    "named parameters": (lambda s, x, *, y: s, "one by one, instead of y"),
}


@pytest.mark.parametrize(("add", "says"), UNTRACEABLE.values(), ids=UNTRACEABLE)
def test_what_cannot_be_traced_is_told_with_its_file_and_line(add: Callable[..., Any], says: str) -> None:
    with pytest.raises(pk.AggregateError, match=says) as caught:
        adding(add)
    assert re.match(rf"add \({HERE}:\d+\): ", str(caught.value))


def test_the_line_is_the_one_that_cannot_be_traced_not_that_of_the_function() -> None:
    def add(s: Any, x: Any) -> Any:
        y = x + 1
        if y > 2:
            return s
        return s + y

    with pytest.raises(pk.AggregateError, match=rf"{HERE}:{add.__code__.co_firstlineno + 2}\)"):
        adding(add)
    with pytest.raises(pk.AggregateError, match=rf"{HERE}:{helper.__code__.co_firstlineno + 1}\)"):
        adding(lambda s, x: s + helper(x))


def test_an_error_of_the_users_own_is_the_cause_with_its_traceback() -> None:
    def add(s: Any, x: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(pk.AggregateError, match="KeyError: 'mine'") as caught:
        adding(add)
    assert isinstance(caught.value.__cause__, KeyError)
    assert caught.value.__cause__.__traceback__ is not None


SHAPES: dict[str, tuple[dict[str, Any], str]] = {
    "a single value for a pair": ({"add": lambda s, x: s[0] + x}, "returns a Expr, but init is a tuple of 2"),
    "three for a pair": ({"add": lambda s, x: (s[0], x, x)}, "returns 3 components, but init has 2"),
    "merge of one": ({"merge": lambda a: a}, "takes 1 parameters instead of 2: two states"),
    "merge to one": ({"merge": lambda a, b: a[0]}, "returns a Expr, but init is a tuple of 2"),
    "remove without argument": ({"remove": lambda s: s}, "takes 1 parameters instead of 2: the state, then"),
    "result of two": ({"result": lambda s, x: s[0]}, "takes 2 parameters instead of 1: the state"),
    "result of a pair": ({"result": same}, "returns a tuple"),
    "beyond the state": (
        {"result": lambda s: s[2]},
        "IndexError: tuple index out of range; a state has as many",
    ),
    "unpacked wrongly": ({"add": unpacking}, r"ValueError: .*unpack.*; a state has as many"),
    "no function": ({"add": 3}, "add is a int; it must be a function"),
    "no state at all": ({"add": lambda: 1}, "takes 0 parameters instead of 1"),
    "parameters nobody knows": ({"result": max}, "parameters"),
}


@pytest.mark.parametrize(("given", "says"), SHAPES.values(), ids=SHAPES)
def test_a_function_of_another_shape_is_told_what_it_should_be(given: dict[str, Any], says: str) -> None:
    fine = {"init": (0.0, 0), "add": lambda s, x: (s[0] + x, s[1] + 1), "result": lambda s: s[0] / s[1]}
    with pytest.raises(pk.AggregateError, match=says):
        pk.aggregate(**{**fine, **given})


@pytest.mark.parametrize("init", ["text", (0, "text"), [0, 0], {}, (), ((0, 1), 2), (0,) * 33, object()])
def test_a_state_is_made_of_numbers(init: object) -> None:
    with pytest.raises(pk.AggregateError, match=r"init (has|holds)"):
        pk.aggregate(init=init, add=lambda s, x: s, result=same)


def test_everything_an_expression_can_do_works_on_symbols() -> None:
    def add(s: Any, x: Any) -> Any:
        total, peak = s
        clipped = pk.when(x.is_nan()).then(0.0).when(x > 100).then(100).otherwise(x)
        return [total + (abs(clipped).sqrt() ** 2).round(2) % 7, pk.greatest(peak, x.fill_null(0))]

    made = pk.aggregate(init=(0.0, -math.inf), add=add, result=lambda s: pk.least(*s).between(0, 9))
    table = pa.table({"t": [0, 1], "v": [4.0, 121.0]})
    assert pk.from_arrow(table, time="t").window(10).agg(r=made("v")).schema.field("r").type == pa.bool_()


def test_states_can_have_names() -> None:
    class Sums(NamedTuple):
        total: Any
        count: Any

    mean = pk.aggregate(
        init=Sums(0.0, 0), add=lambda s, x: Sums(s.total + x, s.count + 1), result=lambda s: s.total / s.count
    )
    assert repr(mean) == "<aggregate {add: state0 + arg0, state1 + 1; result: state0 / state1}>"


def test_constants_from_outside_and_parameters_with_defaults_are_taken_as_they_are() -> None:
    scale = np.float64(2.5)
    made = pk.aggregate(init=np.int32(1), add=lambda s, x, k=3: s + x * scale * k, result=same)
    assert repr(made) == "<aggregate {add: state0 + ((arg0 * 2.5) * 3); result: state0}>"


def test_methods_partials_and_objects_are_functions_too() -> None:
    class Decay:
        def __call__(self, s: Any, x: Any) -> Any:
            return s * 0.5 + x

        def mistaken(self, s: Any, x: Any) -> Any:
            return s if x else x

    def weighted(factor: float, s: Any, x: Any) -> Any:
        return s + factor * x

    assert "state0 * 0.5" in repr(pk.aggregate(init=0.0, add=Decay(), result=same))
    assert "2.0 * arg0" in repr(pk.aggregate(init=0.0, add=functools.partial(weighted, 2.0), result=same))
    with pytest.raises(pk.AggregateError, match=HERE):
        adding(Decay().mistaken)


def test_an_aggregate_takes_as_many_columns_as_add_has_arguments() -> None:
    two = pk.aggregate(init=0.0, add=lambda s, x, y: s + x * y, result=same)
    assert repr(two("a", pk.col("b") + 1, where=pk.col("c") > 0)).startswith(
        "<Expr custom(a, b + 1, definition="
    )
    with pytest.raises(pk.ExpressionTypeError, match=rf"takes 2 arguments.*not 1 \(defined at {HERE}"):
        two("a")


def test_a_type_that_does_not_fit_is_refused_where_the_query_is_written() -> None:
    events = pk.stream("events", {"t": "int64", "kind": "string"}, time="t")
    total = pk.aggregate(init=0, add=lambda s, x: s + x, result=same)
    with pytest.raises(pk.ExpressionTypeError, match="arg0 is string"):
        events.window(10).agg(r=total("kind"))
    with pytest.raises(pk.UnknownColumnError):
        events.window(10).agg(r=total("knid"))
    with pytest.raises(pk.ExpressionTypeError, match="inside another"):
        events.window(10).agg(r=total(pk.count()))
