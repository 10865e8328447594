"""The plain definitions agree with independent ones: Python's own, Arrow's, and the calendar's."""

from __future__ import annotations

import datetime as dt
import math
from fractions import Fraction

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import penstock as pk
from penstock.errors import ExpressionTypeError, VerificationError
from penstock.errors import OverflowError as PenstockOverflow
from penstock.expr.aggregates import float_sum
from penstock.expr.arithmetic import convert
from penstock.expr.calendar import civil, days_from_civil
from penstock.expr.comparison import compare
from penstock.expr.evaluate import evaluate
from penstock.expr.nodes import Aggregate, Call, Column
from penstock.expr.show import show

INT64 = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(allow_nan=True, allow_infinity=True)


def value(expr, **row):
    types = {name: pa.int64() if isinstance(held, int) else pa.float64() for name, held in row.items()}
    return evaluate(expr.node, row, pa.schema(types))


@pytest.mark.parametrize("name", ["add", "sub", "mul"])
@given(a=INT64, b=INT64)
def test_integer_arithmetic_is_exact_or_an_error(name, a, b):
    exact = {"add": a + b, "sub": a - b, "mul": a * b}[name]
    expr = Call(name, (Column("a"), Column("b")))
    schema = pa.schema({"a": pa.int64(), "b": pa.int64()})
    if -(2**63) <= exact < 2**63:
        assert evaluate(expr, {"a": a, "b": b}, schema) == exact
    else:
        with pytest.raises(PenstockOverflow):
            evaluate(expr, {"a": a, "b": b}, schema)


@given(INT64, INT64.filter(bool))
def test_quotient_and_remainder_make_up_the_dividend(a, b):
    assume((a, b) != (-(2**63), -1))
    quotient, rest = value(pk.col("a") // pk.col("b"), a=a, b=b), value(pk.col("a") % pk.col("b"), a=a, b=b)
    assert quotient * b + rest == a
    assert rest == 0 or (rest < 0) == (b < 0)


FUNCTIONS = ["sqrt", "exp", "ln", "log2", "log10", "sin", "cos", "tan", "floor", "ceil"]


@pytest.mark.parametrize("name", FUNCTIONS)
@given(x=FLOATS)
def test_functions_of_floats_give_what_arrow_gives(name, x):
    ours = value(getattr(pk.col("x"), {"ln": "log"}.get(name, name))(), x=x)
    try:
        theirs = getattr(pc, name)(pa.scalar(x)).as_py()
    except pa.ArrowInvalid:
        theirs = math.nan
    assert ours == pytest.approx(theirs, rel=1e-15, nan_ok=True)


@given(FLOATS, FLOATS)
def test_power_gives_what_arrow_gives(x, y):
    ours, theirs = value(pk.col("x") ** pk.col("y"), x=x, y=y), pc.power(pa.scalar(x), pa.scalar(y)).as_py()
    assert ours == pytest.approx(theirs, rel=1e-15, nan_ok=True)


@given(st.floats(-1e15, 1e15), st.integers(0, 3))
def test_rounding_is_never_further_than_half_a_step(x, decimals):
    rounded = value(pk.col("x").round(decimals), x=x)
    assert abs(rounded - x) <= 0.5 * 10.0**-decimals * (1 + 1e-9) + abs(x) * 1e-15


@given(st.lists(FLOATS, min_size=3, max_size=3))
def test_the_order_of_numbers_is_total(values):
    types = (pa.float64(), pa.float64())
    a, b, c = values
    assert compare(a, b, types) == -compare(b, a, types)
    assert compare(a, a, types) == 0
    if compare(a, b, types) <= 0 and compare(b, c, types) <= 0:
        assert compare(a, c, types) <= 0


@given(st.text(), st.text())
def test_strings_are_ordered_by_their_bytes(a, b):
    x, y = a.encode(), b.encode()
    assert compare(a, b, (pa.string(), pa.string())) == (x > y) - (x < y)


@given(st.dates())
def test_days_are_split_as_pythons_calendar_splits_them(day):
    number = (day - dt.date(1970, 1, 1)).days
    assert civil(number) == (day.year, day.month, day.day)
    assert days_from_civil(*civil(number)) == number


PARTS = [
    "year",
    "month",
    "day",
    "quarter",
    "ordinal_day",
    "iso_year",
    "week",
    "weekday",
    "hour",
    "minute",
    "second",
]
THEIRS = {"ordinal_day": "day_of_year", "week": "iso_week", "weekday": "day_of_week"}


@pytest.mark.parametrize("name", PARTS)
@given(
    seconds=st.integers(-30_000_000_000, 30_000_000_000),
    zone=st.sampled_from([None, "UTC", "Europe/Berlin", "Asia/Kolkata"]),
)
def test_parts_of_times_are_those_arrow_gives(name, seconds, zone):
    assume(zone in {None, "UTC"} or -600_000_000 < seconds < 2_100_000_000)  # libraries differ about the rest
    dtype = pa.timestamp("s", zone)
    ours = evaluate(Call(name, (Column("t"),)), {"t": seconds}, pa.schema({"t": dtype}))
    function = getattr(pc, THEIRS.get(name, name))
    options = {"count_from_zero": False} if name == "weekday" else {}
    assert ours == function(pa.scalar(seconds, pa.int64()).cast(dtype), **options).as_py()


@given(INT64, st.integers(1, 2**62))
def test_truncation_is_the_largest_multiple_not_above(ticks, every):
    expr = Call("truncate", (Column("t"),), (("every", every),))
    assume(ticks - ticks % every >= -(2**63))
    floor = evaluate(expr, {"t": ticks}, pa.schema({"t": pa.timestamp("ns")}))
    assert floor % every == 0
    assert floor <= ticks < floor + every


@given(st.lists(st.floats(-1e300, 1e300)))
def test_float_sums_are_rounded_once(values):
    exact = sum(map(Fraction, values), Fraction(0))
    assert float_sum(values) == float(exact)


def test_a_sum_whose_parts_overflow_is_still_right():
    assert float_sum([1e308] * 4 + [-1e308] * 3) == 1e308
    assert float_sum([1.7e308, 1.7e308]) == math.inf


CASTS = [
    (pa.int64(), pa.int32()),
    (pa.int64(), pa.uint8()),
    (pa.timestamp("s"), pa.timestamp("us")),
    (pa.int64(), pa.string()),
    (pa.timestamp("s"), pa.date32()),
]


@pytest.mark.parametrize(("source", "target"), CASTS, ids=str)
@given(number=st.integers(-(2**33), 2**33))
def test_casts_give_what_arrow_gives_or_an_error_where_it_does(source, target, number):
    array = pa.array([number]).cast(source)
    try:
        cast = array.cast(target, safe=target != pa.date32())
        expected = cast.cast(pa.int32()) if target == pa.date32() else cast
        expected = expected.view(pa.int64()) if pa.types.is_timestamp(target) else expected
    except pa.ArrowInvalid:
        with pytest.raises(PenstockOverflow):
            convert(number, source, target)
    else:
        assert convert(number, source, target) == expected[0].as_py()


def test_text_that_is_no_number_is_refused_without_quoting_it():
    with pytest.raises(ExpressionTypeError) as raised:
        convert("s3cret", pa.string(), pa.int64())
    assert "s3cret" not in str(raised.value)


def test_an_aggregate_has_no_value_for_one_row():
    with pytest.raises(VerificationError):
        evaluate(Aggregate("count", ()), {}, pa.schema([]))


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (pk.col("a") + 1 * pk.col("b"), "a + (1 * b)"),
        (-pk.col("a"), "-a"),
        (~(pk.col("a") & pk.col("b")), "not (a and b)"),
        (pk.col("a b"), "`a b`"),
        (pk.col("new\nline"), "`new\\nline`"),
        (pk.col("k") == 'quo"te\n', 'k == "quo\\"te\\n"'),
        (pk.lit(None), "null"),
        (pk.lit(True), "true"),
        (pk.lit(dt.date(1970, 1, 2)), "1:date32[day]"),
        (pk.col("t").dt.truncate("1h"), 'truncate(t, every="1h")'),
        (pk.sum("a", where=pk.col("b")), "sum(a where b)"),
        (pk.col("a").is_in([1, "x"]), 'a in {1, "x"}'),
        (pk.col("a").cast("int8"), "cast(a, int8)"),
    ],
)
def test_expressions_print_on_one_line(expr, text):
    assert show(expr.node) == text
