"""Definitions of custom aggregates: the types they get, their plain meaning, their algebra."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest

import penstock as pk
from penstock.api.custom import CustomAggregate
from penstock.expr.aggregates import algebra_of, reduce, result_type
from penstock.expr.custom import Plain
from penstock.expr.nodes import Aggregate
from tests.custom_aggregates import IN_ORDER, QUOTIENTS, RMS, SMALLEST, SQUARES, TALLY, WEIGHTED

INT, FLOAT, BOOL, UINT = pa.int64(), pa.float64(), pa.bool_(), pa.uint64()


def options(of: CustomAggregate) -> tuple[tuple[str, object], ...]:
    return (("definition", of.definition),)


def same(s: Any) -> Any:
    return s


TOTAL = pk.aggregate(init=0, add=lambda s, x: s + x, result=same)
WIDENED = pk.aggregate(init=(0, 0), add=lambda s, x: (s[0] + s[1], s[1] + x), result=lambda s: s[0])
UNSIGNED = pk.aggregate(init=2**63, add=lambda s, x: s + x, result=same)
LATEST = pk.aggregate(init=None, add=lambda s, x: x, result=same)
FLAG = pk.aggregate(init=False, add=lambda s, x: s | (x > 2), result=lambda s: s)

TYPES = [
    (RMS, [FLOAT], [FLOAT, INT], FLOAT),
    (RMS, [pa.int8()], [FLOAT, INT], FLOAT),
    (TOTAL, [pa.int16()], [INT], INT),
    (TOTAL, [BOOL], [INT], INT),
    (TOTAL, [pa.float32()], [FLOAT], FLOAT),
    (WIDENED, [INT], [INT, INT], INT),
    (WIDENED, [FLOAT], [FLOAT, FLOAT], FLOAT),
    (UNSIGNED, [UINT], [UINT], UINT),
    (UNSIGNED, [INT], [INT], INT),
    (LATEST, [pa.float32()], [pa.float32()], pa.float32()),
    (LATEST, [BOOL], [BOOL], BOOL),
    (FLAG, [pa.dictionary(pa.int8(), INT)], [BOOL], BOOL),
    (TALLY, [], [INT], INT),
]


@pytest.mark.parametrize(("of", "args", "state", "result"), TYPES)
def test_the_state_is_as_wide_as_init_and_the_functions_make_it(
    of: CustomAggregate, args: list[pa.DataType], state: list[pa.DataType], result: pa.DataType
) -> None:
    if of is UNSIGNED and args == [INT]:
        with pytest.raises(pk.OverflowError):  # 2^63 is not an int64
            of.definition.typed(args)
        return
    typed = of.definition.typed(args)
    assert (list(typed.state), typed.value) == (state, result)
    assert result_type("custom", args, options(of)) == result


REFUSED = [
    (TOTAL, [pa.string()], "arg0 is string"),
    (TOTAL, [pa.timestamp("us")], "arg0 is timestamp"),
    (TOTAL, [pa.null()], "arg0 is null"),
    (pk.aggregate(init=0, add=lambda s, x: x > 1, result=same), [INT], "component 0 of the state is int64, but add"),
    (pk.aggregate(init=False, add=lambda s, x: s, result=same, merge=lambda a, b: 1), [INT], "but merge makes it"),
    (pk.aggregate(init=(0, None), add=lambda s, x: (x, None), result=lambda s: s[0]), [INT], "never anything else"),
    (pk.aggregate(init=0, add=lambda s, x: s & x, result=same), [INT], "and takes booleans"),
    (pk.aggregate(init=0, add=lambda s, x: s, result=lambda s: None), [INT], "null is null"),
    (pk.aggregate(init=0, add=lambda s, x: s, result=lambda s: pk.when(s > 0).then("up").otherwise("")), [INT], 'then "up" else "") is string'),
    (pk.aggregate(init=0, add=lambda s, x: s + x.cast("string").cast("int64"), result=same), [INT], "is string"),
    (pk.aggregate(init=0, add=lambda s, x: s + x.dt.truncate("1h"), result=same), [INT], "truncate is for times"),
]  # fmt: skip


@pytest.mark.parametrize(("of", "args", "says"), REFUSED)
def test_types_that_do_not_fit_are_refused_with_the_place_of_the_definition(
    of: CustomAggregate, args: list[pa.DataType], says: str
) -> None:
    with pytest.raises(pk.ExpressionTypeError) as caught:
        of.definition.typed(args)
    assert says in str(caught.value)
    assert f"{__file__}:" in str(caught.value)


def test_a_typed_definition_stays_as_it_is() -> None:
    typed = RMS.definition.typed([FLOAT])
    assert typed.typed([FLOAT]) == typed
    assert hash(typed) == hash(typed.typed([FLOAT]))


MEANING = [
    (RMS, [(3.0,), (4.0,)], [FLOAT], math.sqrt(12.5)),
    (RMS, [(3,), (None,), (3,)], [INT], 3.0),
    (WEIGHTED, [(1.0, 1), (4.0, 2), (None, 9), (9.0, None)], [FLOAT, INT], 3.0),
    (SMALLEST, [], [INT], None),
    (SMALLEST, [(None,), (4,), (2,)], [INT], 2),
    (TALLY, [(), ()], [], 2),
    (TOTAL, [(True,), (False,), (True,)], [BOOL], 2),
    (QUOTIENTS, [(7, 2), (5, 1)], [INT, INT], 82),
    (QUOTIENTS, [(7, 2), (5, 0), (1, 1)], [INT, INT], None),  # a null stays in the state
    (SQUARES, [(2**40,)], [INT], pk.OverflowError),
    (FLAG, [(1,), (3,)], [INT], True),
]


@pytest.mark.parametrize(("of", "rows", "types", "expected"), MEANING)
def test_rows_enter_the_state_one_by_one_in_order(
    of: CustomAggregate, rows: list[tuple[Any, ...]], types: list[pa.DataType], expected: Any
) -> None:
    if isinstance(expected, type):
        with pytest.raises(expected):
            reduce("custom", rows, types, options(of))
        return
    assert reduce("custom", rows, types, options(of)) == expected


def test_no_rows_give_the_result_of_init() -> None:
    assert reduce("custom", [], [FLOAT], options(TOTAL)) == 0.0
    assert math.isnan(reduce("custom", [(None,)], [FLOAT], options(RMS)))


def test_states_are_merged_and_rows_removed_as_the_functions_say() -> None:
    plain = Plain(RMS.definition.typed([FLOAT]))
    state = plain.merge(plain.fold([(3.0,)]), plain.fold([(4.0,), (5.0,)]))
    assert state == (50.0, 3)
    assert plain.remove(state, (5.0,)) == (25.0, 2)


def test_remove_is_trusted_where_it_leaves_no_trace() -> None:
    def undoes(add: Any, remove: Any, init: object = 0, dtype: pa.DataType = INT) -> bool:
        return pk.aggregate(init=init, add=add, remove=remove, result=same).definition.typed([dtype]).undoes

    assert undoes(lambda s, x: s + x, lambda s, x: s - x)
    assert not undoes(lambda s, x: s + x, None)
    assert not undoes(lambda s, x: s + x, lambda s, x: s - x, dtype=FLOAT)
    assert not undoes(lambda s, x: s + 1 // x, lambda s, x: s - 1 // x)
    assert not undoes(lambda s, x: s.fill_null(0) + x, lambda s, x: s - x, init=None)
    assert not undoes(lambda s, x: pk.when(x > 0).then(x), lambda s, x: s)


def test_equal_functions_are_one_aggregate_wherever_they_are_written() -> None:
    again = pk.aggregate(init=0, add=lambda total, value: total + value, result=lambda total: total)
    assert again.definition == TOTAL.definition
    assert hash(again.definition) == hash(TOTAL.definition)
    assert again.definition.place != TOTAL.definition.place
    assert TOTAL.definition != pk.aggregate(init=0.0, add=lambda s, x: s + x, result=same).definition


def test_the_algebra_of_an_aggregate_is_that_of_its_definition() -> None:
    def flags(of: Any) -> tuple[bool, bool, bool]:
        node = of.node
        assert isinstance(node, Aggregate)
        found = algebra_of(node)
        return found.associative, found.commutative, found.invertible

    assert flags(RMS("x")) == (True, True, True)
    assert flags(SMALLEST("x")) == (True, True, False)
    assert flags(TOTAL("x")) == (False, False, False)
    assert flags(IN_ORDER["last less first"]) == (True, False, False)
    assert flags(pk.sum("x")) == (True, True, True)
