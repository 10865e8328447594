"""Hypothesis strategies for typed expressions of random depth over a set of columns.

Integer expressions carry a bound on their magnitude and stay below 2**62, so that an overflow can
only come from the sum of a wide column, where `brute.py` decides. Whatever is compared or used as a
key is exact; approximate floats appear only where results are compared within their bound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa
from hypothesis import strategies as st

from tests.oracle.describe import Agg, Cast, Col, IsIn, Lit, Node, Op, When
from tests.oracle.strategies import PLAIN, STRINGS, Column

T = TypeVar("T")
COMPARE = ("==", "!=", "<", "<=", ">", ">=")
LIMIT = 2**62
GROWTH = 10_000  # more rows than any window of a generated table can hold
PARTS = ("year", "month", "day", "hour", "minute", "second", "weekday")


@dataclass(frozen=True, slots=True)
class Bounded:
    node: Node
    bound: int


def _is_string(dtype: pa.DataType) -> bool:
    return pa.types.is_string(dtype) or pa.types.is_dictionary(dtype)


def _is_wide_unsigned(dtype: pa.DataType) -> bool:
    return dtype == pa.uint64()


class Grower:
    """Grow expressions over `columns`, drawing each choice."""

    def __init__(self, draw: st.DrawFn, columns: tuple[Column, ...]) -> None:
        self.draw, self.columns = draw, columns

    def pick(self, options: Sequence[T]) -> T:
        return self.draw(st.sampled_from(options))

    def having(self, test: Callable[[Column], bool]) -> list[Column]:
        return [column for column in self.columns if column.exact and test(column)]

    def where_type(self, test: Callable[[pa.DataType], bool]) -> list[Column]:
        return self.having(lambda column: test(column.type))

    # integers

    def integer_leaf(self) -> Bounded:
        usable = self.having(lambda c: pa.types.is_integer(c.type) and c.bound is not None)
        if not usable or self.draw(st.integers(0, 3)) == 0:
            value = self.draw(st.integers(-20, 20))
            return Bounded(Lit(value, pa.int64()), abs(value))
        column = self.pick(usable)
        node: Node = Col(column.name)
        return Bounded(Cast(node, pa.int64()) if _is_wide_unsigned(column.type) else node, column.bound or 0)

    def integer(self, depth: int) -> Bounded:
        if depth == 0:
            return self.integer_leaf()
        grow = self.pick([self._sum, self._product, self._quotient, self._signed, self._int_case, self._part])
        made = grow(depth - 1)
        return made if made.bound < LIMIT else self.integer_leaf()

    def _sum(self, depth: int) -> Bounded:
        a, b = self.integer(depth), self.integer(depth)
        return Bounded(Op(self.pick(["+", "-"]), (a.node, b.node)), a.bound + b.bound)

    def _product(self, depth: int) -> Bounded:
        a, b = self.integer(depth), self.integer(depth)
        return Bounded(Op("*", (a.node, b.node)), a.bound * b.bound)

    def _quotient(self, depth: int) -> Bounded:
        a, b = self.integer(depth), self.integer(depth)
        return Bounded(Op(self.pick(["//", "%"]), (a.node, b.node)), max(a.bound + 1, b.bound))

    def _signed(self, depth: int) -> Bounded:
        a = self.integer(depth)
        bools = self.where_type(pa.types.is_boolean)
        if bools and self.draw(st.booleans()):
            return Bounded(Op("+", (Col(self.pick(bools).name), a.node), "bool"), a.bound + 1)
        name = self.pick(["neg", "abs", "floor", "round"])
        return Bounded(Op(name, (a.node,), "int" if name in ("floor", "round") else None), a.bound)

    def _int_case(self, depth: int) -> Bounded:
        a, b = self.integer(depth), self.integer(depth)
        bound = max(a.bound, b.bound)
        if self.draw(st.booleans()):
            return Bounded(When(self.boolean(depth), a.node, b.node), bound)
        return Bounded(Op(self.pick(["least", "greatest", "fill_null"]), (a.node, b.node)), bound)

    def _part(self, depth: int) -> Bounded:
        usable = self.where_type(lambda t: pa.types.is_timestamp(t) and t.tz in (None, "UTC"))
        if not usable:
            return self.integer(depth)
        column = self.pick(usable)
        return Bounded(Op(self.pick(PARTS), (Col(column.name),), column.type.unit), 10_000)

    # floats

    def float_leaf(self) -> Node:
        usable = self.where_type(pa.types.is_floating)
        if not usable or self.draw(st.integers(0, 3)) == 0:
            return Lit(self.pick(PLAIN), pa.float64())
        return Col(self.pick(usable).name)

    def floating(self, depth: int) -> Node:
        if depth == 0:
            return self.float_leaf()
        grow = self.pick([self._float_sum, self._ratio, self._float_unary, self._float_case, self._mixed])
        return grow(depth - 1)

    def _float_sum(self, depth: int) -> Node:
        return Op(self.pick(["+", "-", "*"]), (self.floating(depth), self.floating(depth)))

    def _divisor(self) -> Node:
        """Offer only divisors whose zero has a known sign."""
        usable = self.having(lambda c: pa.types.is_floating(c.type) and c.divisor)
        if usable and self.draw(st.booleans()):
            return Col(self.pick(usable).name)
        return self.pick([Lit(2.0, pa.float64()), Lit(-0.5, pa.float64()), Lit(0.0, pa.float64())])

    def _ratio(self, depth: int) -> Node:
        if self.draw(st.booleans()):
            return Op("/", (self.integer(depth).node, self.integer(depth).node))
        return Op(self.pick(["/", "//", "%"]), (self.floating(depth), self._divisor()))

    def _float_unary(self, depth: int) -> Node:
        return Op(self.pick(["neg", "abs", "floor", "ceil", "round", "sqrt"]), (self.floating(depth),))

    def _float_case(self, depth: int) -> Node:
        a, b = self.floating(depth), self.floating(depth)
        if self.draw(st.booleans()):
            return When(self.boolean(depth), a, b)
        return Op(self.pick(["least", "greatest", "fill_null"]), (a, b))

    def _mixed(self, depth: int) -> Node:
        args = (self.floating(depth), self.integer(depth).node)
        return Op(self.pick(["+", "-", "*"]), args if self.draw(st.booleans()) else args[::-1])

    def inexact(self, depth: int) -> Node:
        """Grow a float only libm can answer: for outputs and sums, never for comparisons."""
        inner = self.floating(depth)
        if self.draw(st.booleans()):
            return Op(self.pick(["exp", "log"]), (Op("least", (inner, Lit(50.0, pa.float64()))),))
        return Op("**", (Op("abs", (inner,)), Lit(self.pick([0.5, 2.0, 3.0, -1.0]), pa.float64())))

    # booleans

    def boolean(self, depth: int) -> Node:
        if depth == 0:
            return self.predicate_leaf()
        grow = self.pick(
            [self._logic, self._compare_numbers, self._compare_floats, self._membership, self._leaf]
        )
        return grow(depth - 1)

    def _leaf(self, depth: int) -> Node:
        return self.predicate_leaf()

    def predicate_leaf(self) -> Node:
        if not self.columns:
            return Lit(True, pa.bool_())
        column = self.pick(self.columns)
        if not column.exact or self.draw(st.integers(0, 5)) == 0:
            return Op("is_null", (Col(column.name),))
        return self._test(column)

    def _test(self, column: Column) -> Node:
        name, dtype = Col(column.name), column.type
        if pa.types.is_boolean(dtype):
            return name
        twins = [candidate for candidate in self.columns if candidate.type == dtype and candidate.exact]
        other: Node = Col(self.pick(twins).name) if self.draw(st.booleans()) else self.literal(dtype)
        return Op(self.pick(COMPARE), (name, other))

    def literal(self, dtype: pa.DataType) -> Lit:
        if _is_string(dtype):
            return Lit(self.pick(STRINGS), pa.string())
        if pa.types.is_floating(dtype):
            return Lit(self.pick((*PLAIN, float("nan"), float("inf"), 0.0)), pa.float64())
        if pa.types.is_integer(dtype):
            return Lit(self.pick((0, 1, -1, 5, 100, 127, -128, 2**31, 2**62, -(2**62))), pa.int64())
        if pa.types.is_date(dtype):
            return Lit(self.draw(st.integers(-1000, 20_000)), dtype)
        step = 1000 if str(dtype).startswith(("timestamp[ns", "duration[ns")) else 1
        return Lit(self.draw(st.integers(-50, 50)) * step, dtype)

    def _logic(self, depth: int) -> Node:
        match self.pick(["and", "or", "not"]):
            case "not":
                return Op("not", (self.boolean(depth),))
            case name:
                return Op(name, (self.boolean(depth), self.boolean(depth)))

    def _compare_numbers(self, depth: int) -> Node:
        a, b = self.integer(depth).node, self.integer(depth).node
        if self.draw(st.integers(0, 3)) == 0:
            return Op("between", (a, b, self.integer(depth).node))
        return Op(self.pick(COMPARE), (a, b))

    def _compare_floats(self, depth: int) -> Node:
        a = self.floating(depth)
        b = self.floating(depth) if self.draw(st.booleans()) else self.integer(depth).node
        return Op(self.pick(COMPARE), (a, b))

    def _membership(self, depth: int) -> Node:
        usable = self.where_type(lambda t: _is_string(t) or pa.types.is_integer(t))
        if not usable:
            return self.predicate_leaf()
        column = self.pick(usable)
        pool: st.SearchStrategy[object] = (
            st.sampled_from(STRINGS) if _is_string(column.type) else st.integers(-3, 3) | st.just(100)
        )
        dtype = pa.string() if _is_string(column.type) else pa.int64()
        chosen = self.draw(st.lists(pool, min_size=1, max_size=4))
        return IsIn(Col(column.name), tuple(Lit(value, dtype) for value in chosen))  # type: ignore[arg-type]

    # strings

    def string(self, depth: int) -> Node:
        usable = self.where_type(_is_string)
        if depth == 0 or not usable:
            use = usable and self.draw(st.booleans())
            return Col(self.pick(usable).name) if use else Lit(self.pick(STRINGS), pa.string())
        a, b = self.string(depth - 1), self.string(depth - 1)
        if self.draw(st.booleans()):
            return When(self.boolean(depth - 1), a, b)
        return Op("fill_null", (a, b))

    # whole fields

    def field(self, name: str, depth: int) -> tuple[Node, Column]:
        """Grow a new column for `select` or `with_columns`."""
        match self.pick(["int", "float", "inexact", "bool", "string", "column", "instant"]):
            case "instant" if usable := self.where_type(pa.types.is_timestamp):
                column = self.pick(usable)
                every = self.pick([1, 2, 7, 60, 1000])
                option = (every, column.type.unit, column.type.tz)
                return Op("truncate", (Col(column.name),), option), Column(name, column.type)
            case "int":
                made = self.integer(depth)
                return _typed_integer(made), Column(name, pa.int64(), made.bound)
            case "float":
                return self._as_float(self.floating(depth)), Column(name, pa.float64(), divisor=False)
            case "inexact":
                return self.inexact(depth), Column(name, pa.float64(), exact=False)
            case "bool":
                return self.boolean(depth), Column(name, pa.bool_())
            case "string":
                node = self.string(max(1, depth))
                return node, Column(name, pa.string())
            case _ if plain := [c for c in self.columns if not c.name.startswith("window_")]:
                column = self.pick(plain)  # select(k=window_start) would rename the bound itself
                return Col(column.name), Column(name, column.type, column.bound, column.exact, column.divisor)
            case _:
                return Lit(7, pa.int64()), Column(name, pa.int64(), 7)

    def _as_float(self, node: Node) -> Node:
        """Widen a bare float32 column, so that the new column's type is known to be float64."""
        return Cast(node, pa.float64()) if isinstance(node, Col) else node

    # aggregates

    def aggregate(self, name: str, depth: int) -> tuple[Node, Column]:
        """Grow an aggregate or an expression of aggregates."""
        grow = self.pick(
            [self._count, self._sum_of, self._sum_of, self._mean, self._extreme, self._extreme, self._formula]
        )
        return grow(name, depth)

    def _where(self, depth: int) -> Node | None:
        return self.boolean(depth) if self.draw(st.integers(0, 3)) == 0 else None

    def _count(self, name: str, depth: int) -> tuple[Node, Column]:
        arg: Node | None = None
        if self.columns and self.draw(st.booleans()):
            arg = Col(self.pick(self.columns).name)
        return Agg("count", arg, self._where(depth)), Column(name, pa.int64(), GROWTH)

    def _sum_of(self, name: str, depth: int) -> tuple[Node, Column]:
        match self.pick(["int", "float", "column", "bool", "inexact"]):
            case "int":
                made = self.integer(depth)
                bound = _grown(made.bound)
                return Agg("sum", _typed_integer(made), self._where(depth)), Column(name, pa.int64(), bound)
            case "float":
                return Agg("sum", self.floating(depth), self._where(depth)), _inexact(name)
            case "inexact":
                return Agg("sum", self._loose(depth), self._where(depth)), _inexact(name)
            case "bool":
                return Agg("sum", self.boolean(depth), self._where(depth)), Column(name, pa.int64(), GROWTH)
            case _:
                return self._sum_of_column(name, depth)

    def _loose(self, depth: int) -> Node:
        usable = [c for c in self.columns if not c.exact]
        return Col(self.pick(usable).name) if usable else self.inexact(depth)

    def _sum_of_column(self, name: str, depth: int) -> tuple[Node, Column]:
        usable = self.where_type(lambda t: pa.types.is_integer(t) or pa.types.is_duration(t))
        if not usable:
            return self._count(name, depth)
        column = self.pick(usable)
        unsigned = pa.types.is_unsigned_integer(column.type)
        node = Agg("sum", Col(column.name), self._where(depth), unsigned)
        dtype = column.type if pa.types.is_duration(column.type) else pa.uint64() if unsigned else pa.int64()
        return node, Column(name, dtype, None if column.bound is None else _grown(column.bound))

    def _mean(self, name: str, depth: int) -> tuple[Node, Column]:
        usable = [c for c in self.columns if pa.types.is_integer(c.type) or pa.types.is_floating(c.type)]
        if usable and self.draw(st.booleans()):
            return Agg("mean", Col(self.pick(usable).name), self._where(depth)), _inexact(name)
        node = self.floating(depth) if self.draw(st.booleans()) else self.integer(depth).node
        return Agg("mean", node, self._where(depth)), _inexact(name)

    def _extreme(self, name: str, depth: int) -> tuple[Node, Column]:
        function = self.pick(["min", "max"])
        if not self.columns or self.draw(st.integers(0, 3)) == 0:
            made = self.integer(depth)
            node = _typed_integer(made)
            return Agg(function, node, self._where(depth)), Column(name, pa.int64(), made.bound)
        column = self.pick(self.columns)
        made_column = Column(name, column.type, column.bound, column.exact, divisor=False)
        return Agg(function, Col(column.name), self._where(depth)), made_column

    def _formula(self, name: str, depth: int) -> tuple[Node, Column]:
        match self.pick(["span", "share", "weighted", "case", "filled"]):
            case "span":
                made = self.integer(depth)
                node = Op("-", (Agg("max", made.node), Agg("min", made.node)))
                return node, Column(name, pa.int64(), 2 * made.bound)
            case "share":
                whole = Agg("sum", self.integer(depth).node)
                return Op("/", (whole, Agg("count"))), _inexact(name)
            case "weighted":
                p, q = self.floating(depth), self.floating(depth)
                ratio = Op("/", (Agg("sum", Op("*", (p, q))), Agg("sum", q)))
                return ratio, _inexact(name)
            case "case":
                made = self.integer(depth)
                many = Op(">", (Agg("count"), Lit(1, pa.int64())))
                node = When(many, Agg("sum", _typed_integer(made)), Lit(0, pa.int64()))
                return node, Column(name, pa.int64(), _grown(made.bound))
            case _:
                made = self.integer(depth)
                total = Agg("sum", _typed_integer(made), self._where(depth))
                node = Op("fill_null", (total, Lit(-1, pa.int64())))
                return node, Column(name, pa.int64(), _grown(made.bound))


def _typed_integer(made: Bounded) -> Node:
    """Make sure an integer expression is int64 even when it is a bare narrow column."""
    return Op("+", (made.node, Lit(0, pa.int64()))) if isinstance(made.node, Col) else made.node


def _grown(bound: int) -> int | None:
    return bound * GROWTH if bound * GROWTH < LIMIT // GROWTH else None


def _inexact(name: str) -> Column:
    return Column(name, pa.float64(), exact=False)
