"""Random small plans and rows, for properties of the time-centric IR and its passes.

Values are few, so that keys collide, ties happen and windows overlap; some integers are so large that
sums overflow. Every plan is well typed by construction.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from penstock.expr import nodes as ex
from penstock.expr.nodes import Call, Column, Field, Literal
from penstock.plan import nodes as pl
from penstock.plan.schema import carries_window, schema_of, time_of
from penstock.types.arrow import kind_of
from penstock.types.time import Time
from penstock.types.windows import WINDOW_END, WINDOW_START, CarriedWindow, TimeWindow, Window

INT, FLOAT, TEXT, BOOL = pa.int64(), pa.float64(), pa.string(), pa.bool_()
INSTANT = pa.timestamp("us")
SCHEMA = pa.schema({"ts": INSTANT, "k": INT, "f": FLOAT, "s": TEXT, "v": INT, "u": pa.uint64(), "n": INT})
SWAPPED = pa.schema([SCHEMA.field(name) for name in ("v", "s", "ts", "u", "k", "n", "f")])
CLOCK = Time("ts", INSTANT, "us")
EVENTS = pl.Source("events", SCHEMA, CLOCK, sequence="n")
OTHERS = pl.Source("others", SWAPPED, CLOCK)

Draw = Any

_COLUMNS = {
    "ts": st.none() | st.integers(0, 25) | st.integers(0, 25),
    "k": st.sampled_from([0, 1, 2, None]),
    "f": st.sampled_from([0.0, -0.0, 1.5, -2.0, float("nan"), None]),
    "s": st.sampled_from(["a", "b", None]),
    "v": st.sampled_from([0, 1, -3, 7, None, 2**62, 2**63 - 1]),
    "u": st.sampled_from([0, 1, 5, None, 2**63]),
    "n": st.sampled_from([0, 1, 2, None]),
}


def rows() -> st.SearchStrategy[dict[str, list[dict[str, Any]]]]:
    """Draw the rows of both streams, in order of arrival."""
    several = st.lists(st.fixed_dictionaries(_COLUMNS), max_size=10)
    return st.fixed_dictionaries({"events": several, "others": several})


# --- expressions ------------------------------------------------------------------------------------


def _named(schema: pa.Schema, *kinds: str) -> list[str]:
    return [field.name for field in schema if kind_of(field.type) in kinds]


def _leaf(draw: Draw, schema: pa.Schema, kinds: tuple[str, ...], literals: list[Literal]) -> ex.Expr:
    columns = [Column(name) for name in _named(schema, *kinds)]
    return draw(st.sampled_from([*columns, *columns, *literals]))


def _int(value: int | None) -> Literal:
    return Literal(value, INT)


def integer(draw: Draw, schema: pa.Schema, depth: int = 2) -> ex.Expr:
    """Draw an expression of integers, signed or not."""
    if depth == 0 or draw(st.booleans()):
        return _leaf(draw, schema, ("int", "uint"), [_int(0), _int(2), _int(-1), _int(None)])
    name = draw(st.sampled_from(["add", "sub", "mul", "mod", "floordiv", "abs", "when", "cast"]))
    one = integer(draw, schema, depth - 1)
    if name == "abs":
        return Call("abs", (one,))
    if name == "cast":
        return ex.Cast(one, INT)
    other = integer(draw, schema, depth - 1)
    if name == "when":
        return ex.Case(((truth(draw, schema, depth - 1), ex.Cast(one, INT)),), ex.Cast(other, INT))
    return Call(name, (one, other))


def real(draw: Draw, schema: pa.Schema, depth: int = 1) -> ex.Expr:
    """Draw an expression of floats."""
    if depth == 0 or draw(st.booleans()):
        return _leaf(draw, schema, ("float",), [Literal(0.5, FLOAT), Literal(-0.0, FLOAT)])
    if draw(st.booleans()):
        return Call("div", (Literal(1.0, FLOAT), real(draw, schema, depth - 1)))
    return Call("add", (real(draw, schema, depth - 1), integer(draw, schema, depth - 1)))


def truth(draw: Draw, schema: pa.Schema, depth: int = 2) -> ex.Expr:
    """Draw a predicate, true, false or null."""
    name = draw(
        st.sampled_from(["compare", "compare", "text", "null", "real", "in", "and", "or", "not", "literal"])
    )
    match name if depth > 0 else "compare":
        case "compare":
            pair = integer(draw, schema, max(depth - 1, 0)), integer(draw, schema, 0)
            return Call(draw(st.sampled_from(["eq", "ne", "lt", "ge"])), pair)
        case "text":
            return Call("eq", (_leaf(draw, schema, ("string",), [Literal("b", TEXT)]), Literal("a", TEXT)))
        case "null":
            return Call("is_null", (Column(draw(st.sampled_from(schema.names))),))
        case "real":
            return Call("gt", (real(draw, schema, depth - 1), Literal(0.0, FLOAT)))
        case "in":
            return ex.IsIn(integer(draw, schema, 0), (_int(0), _int(1)))
        case "not":
            return Call("not", (truth(draw, schema, depth - 1),))
        case "literal":
            return Literal(draw(st.sampled_from([True, False, None])), BOOL)
        case _:
            return Call(name, (truth(draw, schema, depth - 1), truth(draw, schema, depth - 1)))


def aggregate(draw: Draw, schema: pa.Schema) -> ex.Expr:
    """Draw an aggregate, or an expression of two."""
    where = truth(draw, schema, 1) if draw(st.integers(0, 3)) == 0 else None
    name = draw(st.sampled_from(["sum", "count", "count", "mean", "min", "max", "pair"]))
    if name == "pair":
        first, second = (ex.Aggregate(text, (integer(draw, schema, 1),)) for text in ("sum", "count"))
        return Call("div", (first, second))
    if name == "count" and draw(st.booleans()):
        return ex.Aggregate("count", (), where)
    arg = real(draw, schema) if _named(schema, "float") and draw(st.booleans()) else integer(draw, schema, 1)
    return ex.Aggregate(name, (arg,), where)


# --- plans ------------------------------------------------------------------------------------------


def _names(taken: list[str], count: int) -> list[str]:
    free = (f"x{index}" for index in range(100))
    return [name for name in free if name not in taken][:count]


def filtered(draw: Draw, plan: pl.Plan) -> pl.Plan:
    return pl.Filter(plan, truth(draw, schema_of(plan)))


def projected(draw: Draw, plan: pl.Plan) -> pl.Plan:
    """Keep some columns, rename the time now and then or move it, add computed columns and constants."""
    schema, time = schema_of(plan), time_of(plan)
    kept = [name for name in schema.names if name != time.column and draw(st.integers(0, 3)) > 0]
    fields = [Field(name, Column(name)) for name in kept]
    moved = Call("add", (Column(time.column), Literal(3, pa.duration("us"))))
    clock, *new = _names([*schema.names], 3)
    name = draw(st.sampled_from([time.column, time.column, clock]))
    fields.insert(0, Field(name, draw(st.sampled_from([Column(time.column)] * 3 + [moved]))))
    for value in draw(st.sampled_from([new, new[:1], []])):
        made = [integer(draw, schema), _int(1), real(draw, schema)]
        fields.append(Field(value, draw(st.sampled_from(made))))
    return pl.Project(plan, tuple(fields), name)


def _window(draw: Draw, plan: pl.Plan) -> Window:
    if carries_window(plan) and draw(st.booleans()):
        return CarriedWindow()
    size = draw(st.integers(1, 12))
    return TimeWindow(size, draw(st.sampled_from([size, *range(1, 9)])), draw(st.integers(-3, 3)))


def _keys(draw: Draw, plan: pl.Plan) -> tuple[str, ...]:
    bounds = (WINDOW_START, WINDOW_END)
    names = [name for name in schema_of(plan).names if name not in bounds]
    return tuple(draw(st.lists(st.sampled_from(names), max_size=2, unique=True))) if names else ()


def windowed(draw: Draw, plan: pl.Plan) -> pl.Plan:
    schema = schema_of(plan)
    names = _names(schema.names, draw(st.integers(1, 3)))
    fields = tuple(Field(name, aggregate(draw, schema)) for name in names)
    return pl.Aggregate(plan, _window(draw, plan), _keys(draw, plan), fields)


def attached(draw: Draw, plan: pl.Plan) -> pl.Plan:
    schema = schema_of(plan)
    bounds = {WINDOW_START, WINDOW_END}
    if (
        time_of(plan).column in bounds or len(bounds & {*schema.names}) == 1
    ):  # the new window's would take its place
        return windowed(draw, plan)
    names = _names(schema.names, draw(st.integers(1, 2)))
    fields = tuple(Field(name, aggregate(draw, schema)) for name in names)
    return pl.Attach(plan, _window(draw, plan), _keys(draw, plan), fields)


def united(draw: Draw, plan: pl.Plan) -> pl.Plan:
    if isinstance(plan, pl.Source):
        return pl.Union((plan, OTHERS))
    return pl.Union((plan, filtered(draw, plan)))


def distinct(draw: Draw, plan: pl.Plan) -> pl.Plan:
    names = schema_of(plan).names
    subset = draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True))
    return pl.Distinct(plan, tuple(subset), draw(st.sampled_from(["first", "last"])))


def largest(draw: Draw, plan: pl.Plan) -> pl.Plan:
    if not carries_window(plan):
        return filtered(draw, plan)
    by = draw(st.sampled_from(schema_of(plan).names))
    return pl.TopK(plan, draw(st.integers(1, 2)), by, draw(st.sampled_from(["first", "all"])))


_VERBS = [filtered, filtered, projected, projected, windowed, windowed, attached, united, distinct, largest]


@st.composite
def plans(draw: Draw, most: int = 5) -> pl.Plan:
    """Draw a chain of verbs over a stream."""
    plan: pl.Plan = EVENTS
    for _ in range(draw(st.integers(1, most))):
        plan = draw(st.sampled_from(_VERBS))(draw, plan)
    return plan
