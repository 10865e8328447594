"""The catalogue of aggregates: types, options, algebra, and exactness."""

from __future__ import annotations

import math
import random
import re
from decimal import Decimal, getcontext, localcontext
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from penstock.errors import ExpressionTypeError
from penstock.errors import OverflowError as PenstockOverflow
from penstock.expr.aggregates import AGGREGATES, reduce, result_type
from penstock.expr.aggregates.definitions import deviations, float_product, quantile_of, root, to_float
from penstock.expr.comparison import order_key
from penstock.expr.nodes import Aggregate, Column
from penstock.expr.show import show
from penstock.expr.typing import type_of
from tests.unit.expr.semantics import same

BUILT_IN = sorted(set(AGGREGATES) - {"custom"})
NEEDED = {"quantile": (("q", 0.3),)}
TEXTS = pa.dictionary(pa.int32(), pa.string())
F64, I64, U64, BOOL = pa.float64(), pa.int64(), pa.uint64(), pa.bool_()
REAL = ("mean", "median", "quantile", "std", "var", "skew", "kurtosis")

FLOATS = st.floats(allow_nan=True, allow_infinity=True)
FINITE = st.floats(-1e100, 1e100)
FEW = st.none() | st.sampled_from([-2, -1, 0, 1, 2, 3])


def over(function, values, dtype=F64, **options):
    given = tuple(options.items()) or NEEDED.get(function, ())
    return reduce(function, [(value,) for value in values], [dtype], given)


def beside(function, pairs, dtype=F64, **options):
    return reduce(function, pairs, [dtype, dtype], tuple(options.items()))


# --- types ------------------------------------------------------------------------------------------

NUMBERS = {pa.int8(): I64, pa.uint16(): U64, pa.float32(): F64, BOOL: I64}
ORDERED = [pa.int8(), U64, pa.float32(), BOOL, pa.string(), pa.date32(), pa.timestamp("ns", "UTC")]
UNORDERED = [pa.binary(), pa.decimal256(50, 2), pa.list_(I64), pa.struct({"x": I64})]
TYPES = [
    *((name, (given,), result) for name in ("sum", "product") for given, result in NUMBERS.items()),
    ("sum", (pa.duration("s"),), pa.duration("s")),
    ("product", (pa.duration("s"),), None),
    *((name, (given,), F64) for name in REAL for given in NUMBERS),
    *((name, (given,), None) for name in REAL for given in (pa.string(), pa.date32(), pa.duration("s"))),
    *((name, (given, BOOL), F64) for name in ("corr", "cov") for given in NUMBERS),
    *((name, pair, None) for name in ("corr", "cov") for pair in ((I64, TEXTS), (pa.date32(), I64))),
    *((name, (given,), given) for name in ("min", "max", "mode") for given in ORDERED),
    *((name, (given,), None) for name in ("min", "max", "mode", "count_distinct") for given in UNORDERED),
    *(("count_distinct", (given,), I64) for given in ORDERED),
    *((name, (given,), given) for name in ("first", "last") for given in (*ORDERED, *UNORDERED)),
    *(("list", (given,), pa.list_(given)) for given in (*ORDERED, *UNORDERED)),
    *((name, (given, by), given) for name in ("min_by", "max_by") for given, by in zip(ORDERED, ORDERED[::-1], strict=True)),
    *((name, pair, None) for name in ("min_by", "max_by") for given in UNORDERED for pair in ((given, I64), (I64, given))),
    *((name, (given,), BOOL if given == BOOL else None) for name in ("any", "all") for given in ORDERED),
    *((name, (pa.null(),), None) for name in BUILT_IN if name not in {"count", "corr", "cov", "min_by", "max_by"}),
    *((name, (TEXTS,), pa.string()) for name in ("min", "max", "mode", "first", "last")),
    ("list", (TEXTS,), pa.list_(pa.string())),
]  # fmt: skip


@pytest.mark.parametrize(("function", "types", "expected"), TYPES, ids=str)
def test_an_aggregate_has_the_type_its_rule_says_or_none(function, types, expected):
    assert result_type(function, types, NEEDED.get(function, ())) == expected


@pytest.mark.parametrize(
    ("expr", "message"),
    [
        (pk.std("s"), "std takes a number, not string, in: std(s)"),
        (pk.quantile("t", 0.5), "quantile takes a number, not date32[day], in: quantile(t, 0.5)"),
        (pk.corr("x", "s"), "corr takes two numbers, not double and string, in: corr(x, s)"),
        (pk.any("x"), "any takes a boolean, not double, in: any(x)"),
        (pk.mode("l"), "mode takes a value that has an order, not list<item: int64>, in: mode(l)"),
        (pk.min_by("l", "x"), "min_by takes two values that have an order"),
    ],
)
def test_an_aggregate_of_the_wrong_type_is_refused_by_name(expr, message):
    schema = pa.schema({"s": pa.string(), "t": pa.date32(), "x": F64, "l": pa.list_(I64)})
    with pytest.raises(ExpressionTypeError, match=re.escape(message)):
        type_of(expr.node, schema)


# --- options ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "option", "value", "advice"),
    [
        ("std", "ddof", -1, "whole number from 0 up"),
        ("var", "ddof", 0.5, "whole number from 0 up"),
        ("cov", "ddof", True, "whole number from 0 up"),
        ("std", "ddof", "1", "whole number from 0 up"),
        ("quantile", "q", 1.5, "number from 0 to 1"),
        ("quantile", "q", -0.1, "number from 0 to 1"),
        ("quantile", "q", math.nan, "number from 0 to 1"),
        ("quantile", "q", "0.5", "number from 0 to 1"),
        ("quantile", "q", True, "number from 0 to 1"),
        ("quantile", "q", None, "number from 0 to 1"),
        ("skew", "bias", 0, "True or False"),
        ("kurtosis", "bias", "no", "True or False"),
        ("kurtosis", "fisher", None, "True or False"),
        ("first", "ignore_nulls", 1, "True or False"),
        ("last", "ignore_nulls", "yes", "True or False"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused_with_what_to_write(function, option, value, advice):
    with pytest.raises(ExpressionTypeError, match=f"{option} of {function} is .*{advice}"):
        AGGREGATES[function].settings(((option, value),))


def test_a_node_made_by_hand_is_checked_where_it_is_typed():
    with pytest.raises(ExpressionTypeError, match="q of quantile is None"):
        type_of(Aggregate("quantile", (Column("x"),)), pa.schema({"x": F64}))


def test_options_have_one_form_whatever_number_they_were_given_as():
    assert repr(AGGREGATES["quantile"].settings((("q", 1),))) == "{'q': 1.0}"
    assert repr(AGGREGATES["quantile"].settings((("q", np.float32(0.5)),))) == "{'q': 0.5}"
    assert repr(AGGREGATES["std"].settings((("ddof", np.int8(0)),))) == "{'ddof': 0}"


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (pk.quantile("x", 0.9), "quantile(x, 0.9)"),
        (pk.quantile("x", 0.9, where=pk.col("k") == 1), "quantile(x, 0.9 where k == 1)"),
        (pk.std("x"), "std(x)"),
        (pk.std("x", ddof=0), "std(x, ddof=0)"),
        (pk.kurtosis("x", fisher=False, bias=False), "kurtosis(x, bias=False, fisher=False)"),
        (pk.first("x", ignore_nulls=True, where="k"), "first(x, ignore_nulls=True where k)"),
        (pk.cov("x", "y", ddof=2), "cov(x, y, ddof=2)"),
        (pk.count(where="k"), "count(where k)"),
    ],
)
def test_an_aggregate_prints_the_options_that_are_not_as_usual(expr, text):
    assert show(expr.node) == text


# --- algebra ----------------------------------------------------------------------------------------


def rows_of(function, values):
    """Pair values with others, and make truth values of them where the aggregate wants some."""
    if function in ("any", "all"):
        return [(None if x is None else x > 0,) for x, _ in values], [BOOL]
    width = AGGREGATES[function].most
    return [pair[:width] for pair in values], [I64] * width


def answer(function, values):
    rows, types = rows_of(function, values)
    return reduce(function, rows, types, NEEDED.get(function, ()))


@pytest.mark.parametrize("function", [value for value in BUILT_IN if AGGREGATES[value].commutative])
@given(values=st.lists(st.tuples(FEW, FEW), max_size=8), seed=st.integers(0, 99))
def test_a_commutative_aggregate_does_not_see_the_order_of_rows(function, values, seed):
    shuffled = random.Random(seed).sample(values, len(values))
    assert same(answer(function, values), answer(function, shuffled))


@pytest.mark.parametrize("function", [value for value in BUILT_IN if not AGGREGATES[value].commutative])
def test_one_that_is_not_commutative_sees_it(function):
    assert answer(function, [(1, 1), (2, 1)]) != answer(function, [(2, 1), (1, 1)])


@pytest.mark.parametrize("function", [value for value in BUILT_IN if AGGREGATES[value].skips_nulls])
@given(values=st.lists(st.tuples(FEW, FEW), max_size=8))
def test_one_that_skips_nulls_gives_the_same_without_their_rows(function, values):
    width = AGGREGATES[function].most
    whole = [pair for pair in values if None not in pair[:width]]
    assert same(answer(function, values), answer(function, whole))


@pytest.mark.parametrize("function", [value for value in BUILT_IN if not AGGREGATES[value].skips_nulls])
def test_one_that_does_not_skip_nulls_may_answer_null(function):
    assert answer(function, [(None, 1)]) is None
    assert answer(function, [(1, 1)]) == 1
    assert answer(function, [(None, 1), (1, 2), (None, 3)]) is None


def test_only_aggregates_without_a_state_of_fixed_size_are_holistic():
    holistic = {value for value in BUILT_IN if AGGREGATES[value].holistic}
    assert holistic == {"median", "quantile", "mode", "count_distinct", "list"}


@pytest.mark.parametrize("function", BUILT_IN)
def test_nothing_gives_null_but_for_counts_and_lists(function):
    expected = {"count": 0, "count_distinct": 0, "list": []}.get(function)
    assert answer(function, []) == expected


# --- exactness --------------------------------------------------------------------------------------


@given(st.fractions(min_value=0))
def test_a_square_root_is_right_to_the_last_bit(exact):
    with localcontext(getcontext(), prec=60):
        expected = (Decimal(exact.numerator) / Decimal(exact.denominator)).sqrt()
        assert abs(Decimal(root(exact)) - expected) <= Decimal(math.ulp(float(expected))) * Decimal("0.51")


@pytest.mark.parametrize("exact", [Fraction(10) ** 700, Fraction(10) ** -700, Fraction(9, 16), Fraction(0)])
def test_a_square_root_of_the_extreme_is_a_float_too(exact):
    assert root(exact) == float(Decimal(exact.numerator).sqrt() / Decimal(exact.denominator).sqrt())


@given(st.lists(FINITE | st.integers(-(2**63), 2**64), min_size=1))
def test_deviations_are_exact(values):
    mean = sum(map(Fraction, values)) / len(values)
    found, unit = deviations(values)
    assert [Fraction(value, unit) for value in found] == [Fraction(value) - mean for value in values]


@given(st.lists(FINITE, min_size=2, max_size=8))
def test_the_variance_is_rounded_once(values):
    mean = sum(map(Fraction, values)) / len(values)
    exact = sum((Fraction(value) - mean) ** 2 for value in values) / (len(values) - 1)
    assert over("var", values) == float(exact)


@given(st.lists(st.integers(-1000, 1000), min_size=1, max_size=8), st.sampled_from([0, 10**9, 10**17]))
def test_moments_do_not_see_where_the_values_lie(values, shift):
    moved = [value + shift for value in values]
    for function in ("std", "var", "skew", "kurtosis"):
        assert same(over(function, values, I64), over(function, moved, I64))


@given(st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=4))
def test_integer_products_are_exact_or_an_error(values):
    exact = math.prod(values)
    if -(2**63) <= exact < 2**63:
        assert over("product", values, I64) == exact
    else:
        with pytest.raises(PenstockOverflow, match="the product of a window does not fit int64"):
            over("product", values, I64)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=12))
def test_float_products_are_rounded_once(values):
    exact = math.prod(map(Fraction, values))
    assert float_product(values) == to_float(exact)


@given(st.lists(FLOATS, min_size=1, max_size=2))
def test_a_product_of_two_floats_is_that_of_the_machine(values):
    expected = math.prod(values)
    found = float_product(values)
    assert same(found, expected)
    assert math.isnan(found) or math.copysign(1, found) == math.copysign(1, expected)


# --- order ------------------------------------------------------------------------------------------


@given(st.lists(FLOATS, min_size=1), st.floats(0, 1))
def test_a_quantile_lies_between_the_values_unless_the_arithmetic_ends(values, q):
    ordered = sorted(values, key=order_key)
    found = quantile_of(ordered, q)
    if math.isfinite(found):
        assert ordered[0] <= found or found == pytest.approx(ordered[0], rel=1e-15)
        assert order_key(found) <= order_key(ordered[-1]) or found == pytest.approx(ordered[-1], rel=1e-15)


@given(st.lists(FLOATS, min_size=1))
def test_quantiles_at_the_ends_are_the_extremes(values):
    assert same(over("quantile", values, q=0.0), over("min", values))
    assert same(over("quantile", values, q=1.0), over("max", values))


@given(st.lists(st.sampled_from([0.0, -0.0, 1.0, math.nan, -math.inf, None])))
def test_a_mode_is_no_rarer_than_any_value_and_below_all_as_frequent(values):
    known = [order_key(value) for value in values if value is not None]
    found = over("mode", values)
    if not known:
        assert found is None
        return
    times = known.count(order_key(found))
    assert all(known.count(value) <= times for value in known)
    assert all(order_key(found) <= value for value in known if known.count(value) == times)
    assert over("count_distinct", values) == len(set(known))


@pytest.mark.parametrize("values", [[-0.0], [-0.0, 0.0], [0.0, -0.0]])
def test_the_mode_of_zeros_has_no_sign(values):
    assert math.copysign(1.0, over("mode", values)) == 1.0


@given(st.lists(st.tuples(FEW, FEW)))
def test_the_value_beside_an_extreme_is_the_smallest_there_is(pairs):
    known = [(value, by) for value, by in pairs if by is not None]
    for function, choose in (("min_by", min), ("max_by", max)):
        extreme = choose((by for _, by in known), default=None)
        there = [value for value, by in known if by == extreme and value is not None]
        assert beside(function, pairs, I64) == min(there, default=None)


@given(st.lists(FEW))
def test_first_last_and_list_follow_the_order_of_rows(values):
    known = [value for value in values if value is not None]
    assert over("list", values, I64) == known
    assert over("first", values, I64) == (values[0] if values else None)
    assert over("last", values, I64) == (values[-1] if values else None)
    assert over("first", values, I64, ignore_nulls=True) == (known[0] if known else None)
    assert over("last", values, I64, ignore_nulls=True) == (known[-1] if known else None)


def test_values_of_types_without_an_order_can_be_chosen_by_position():
    values = [None, {"x": 1}, {"x": 2}]
    dtype = pa.struct({"x": I64})
    assert over("first", values, dtype, ignore_nulls=True) == {"x": 1}
    assert over("last", values, dtype) == {"x": 2}
    assert over("list", values, dtype) == [{"x": 1}, {"x": 2}]
