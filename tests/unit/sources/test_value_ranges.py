"""Statistics never drop a row that passes: every predicate against every value, nulls and NaN among them."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.expr.evaluate import evaluator
from penstock.expr.nodes import Call, Cast, Column, IsIn, Literal
from penstock.sources.value_ranges import Range, may_pass

INT, FLOAT, TEXT, BOOL, TIME, DATE = (
    pa.int64(),
    pa.float64(),
    pa.string(),
    pa.bool_(),
    pa.timestamp("us"),
    pa.date32(),
)
SCHEMA = pa.schema({"i": INT, "f": FLOAT, "s": TEXT, "b": BOOL, "t": TIME, "u": pa.uint64(), "d": DATE})
VALUES = {
    "i": [-(2**63), -2, 0, 1, 3, 2**53, 2**53 + 1, 2**63 - 1],
    "f": [-math.inf, -1.5, -0.0, 0.0, 1.0, 2.0**53, math.inf, math.nan],
    "s": ["", "a", "ab", "b", "é", "\U0001f600", "\uffff"],
    "b": [False, True],
    "t": [-(10**15), -1, 0, 1, 86_400_000_000, 10**15],
    "u": [0, 1, 2**63, 2**64 - 1],
    "d": [-1, 0, 1, 20_000],
}
LITERALS = {
    "i": ("i", "f", "u"),
    "u": ("i", "f", "u"),
    "f": ("i", "f", "u"),
    "s": ("s",),
    "b": ("b",),
    "t": ("t", "d"),
    "d": ("t", "d"),
}
COMPARISONS = ["eq", "ne", "lt", "le", "gt", "ge"]


def literals(name):
    return st.sampled_from(LITERALS[name]).flatmap(
        lambda kind: st.sampled_from([*VALUES[kind], None]).map(
            lambda value: Literal(value, SCHEMA.field(kind).type)
        )
    )


@st.composite
def leaves(draw):
    name = draw(st.sampled_from(SCHEMA.names))
    column = Column(name)
    match draw(st.integers(0, 5)):
        case 0:
            return Call(draw(st.sampled_from(["is_null", "is_not_null"])), (column,))
        case 1:
            values = draw(st.lists(literals(name).filter(lambda value: value.value is not None), max_size=3))
            return IsIn(column, tuple(values))
        case 2:
            return Call(draw(st.sampled_from(COMPARISONS)), (draw(literals(name)), column))
        case 3:
            return draw(st.sampled_from([Column("b"), Cast(Column("i"), BOOL), Literal(None, BOOL)]))
        case _:
            return Call(draw(st.sampled_from(COMPARISONS)), (column, draw(literals(name))))


PREDICATES = st.recursive(
    leaves(),
    lambda inner: (
        st.builds(lambda a, b, f: Call(f, (a, b)), inner, inner, st.sampled_from(["and", "or"]))
        | st.builds(lambda a: Call("not", (a,)), inner)
    ),
    max_leaves=5,
)
ROWS = st.lists(
    st.fixed_dictionaries({name: st.sampled_from([*values, None]) for name, values in VALUES.items()}),
    min_size=1,
    max_size=6,
)


def statistics(rows, name):
    """What an honest writer says of a column: NaN left out, and of all null nothing but that."""
    values = [row[name] for row in rows if row[name] is not None]
    numbers = [value for value in values if not (isinstance(value, float) and math.isnan(value))]
    nulls = len(values) < len(rows)
    low, high = (min(numbers), max(numbers)) if numbers else (None, None)
    return Range(SCHEMA.field(name).type, low, high, nulls, empty=not values)


@given(PREDICATES, ROWS, st.sets(st.sampled_from(SCHEMA.names)))
def test_what_is_left_out_holds_no_row_that_passes(predicate, rows, unknown):
    known = {name: statistics(rows, name) for name in SCHEMA.names if name not in unknown}
    passes = evaluator(predicate, SCHEMA)
    if any(passes(row, ()) is True for row in rows):
        assert may_pass(predicate, known)


def compared(function, name, value, dtype=None):
    return Call(function, (Column(name), Literal(value, dtype or SCHEMA.field(name).type)))


@pytest.mark.parametrize(
    ("predicate", "known", "expected"),
    [
        (compared("eq", "i", 7), Range(INT, 1, 5), False),
        (compared("eq", "i", 5), Range(INT, 1, 5), True),
        (compared("ne", "i", 5), Range(INT, 5, 5), False),
        (compared("ne", "i", 5), Range(INT, 5, 6), True),
        (compared("lt", "i", 1), Range(INT, 1, 5), False),
        (compared("le", "i", 1), Range(INT, 1, 5), True),
        (compared("gt", "f", 9.0), Range(FLOAT, 1.0, 5.0), True),  # NaN is above every number
        (compared("lt", "f", 1.0), Range(FLOAT, 1.0, 5.0), False),
        (compared("eq", "f", 9.0), Range(FLOAT, 1.0, 5.0), False),
        (compared("eq", "f", 0.0), Range(FLOAT, -0.0, -0.0), True),
        (compared("eq", "f", math.nan), Range(FLOAT, 1.0, 5.0), True),
        (compared("eq", "s", "m"), Range(TEXT, "a", "f"), False),
        (compared("eq", "i", 7), Range(INT), True),
        (compared("eq", "i", 7), Range(INT, empty=True), False),
        (compared("eq", "i", None), Range(INT, 1, 5), False),
        (Call("is_null", (Column("i"),)), Range(INT, 1, 5, nulls=False), False),
        (Call("is_null", (Column("i"),)), Range(INT, 1, 5), True),
        (Call("is_not_null", (Column("i"),)), Range(INT, empty=True), False),
        (IsIn(Column("i"), (Literal(7, INT), Literal(9, INT))), Range(INT, 1, 5), False),
        (IsIn(Column("i"), (Literal(7, INT), Literal(4, INT))), Range(INT, 1, 5), True),
        (Call("not", (compared("ge", "i", 0),)), Range(INT, 1, 5), False),
        (Column("b"), Range(BOOL, False, False), False),
    ],
)
def test_what_can_be_known_is_known(predicate, known, expected):
    name = next(iter({"i", "f", "s", "b"} & _columns(predicate)))
    assert may_pass(predicate, {name: known}) is expected


def _columns(predicate):
    from penstock.expr.nodes import columns_of

    return set(columns_of(predicate))


def test_a_conjunction_fails_with_one_part_and_a_disjunction_with_all():
    never, maybe = compared("eq", "i", 7), compared("gt", "u", 3)
    known = {"i": Range(INT, 1, 5)}
    assert not may_pass(Call("and", (never, maybe)), known)
    assert may_pass(Call("or", (never, maybe)), known)
    assert may_pass(None, known)
