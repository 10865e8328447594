"""User expressions: operators and methods that build the nodes of `expr/nodes.py`."""

from __future__ import annotations

import builtins
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from penstock.api.aggregate_methods import Reducible
from penstock.api.literals import literal, shown, written_elsewhere
from penstock.errors import ExpressionTypeError
from penstock.expr import nodes
from penstock.expr.aggregates import AGGREGATES
from penstock.expr.show import show
from penstock.types.arrow import as_type
from penstock.types.choices import one_of

if TYPE_CHECKING:
    from penstock.api.datetime_namespace import Times
    from penstock.api.string_namespace import Texts
    from penstock.api.struct_namespace import Structs

MOST_DECIMALS = 300  # within the decimal exponents of floats

Text = str  # inside the class, `str` is the namespace


class Expr(Reducible["Expr"]):
    """A value computed from a row's columns, or from a window's rows.

    Built with `pk.col`, `pk.lit`, operators and methods; evaluated only by the stream that uses it.

    >>> import penstock as pk
    >>> (pk.col("price") * 2 > 10) & pk.col("kind").is_in(["bid", "ask"])
    <Expr ((price * 2) > 10) and (kind in {"bid", "ask"})>

    Timedeltas can be added to times, and durations can be divided and scaled:

    >>> import pyarrow as pa
    >>> from datetime import date, timedelta
    >>> trips = pk.from_arrow(pa.table({"day": [date(2026, 2, 28)], "took": [timedelta(hours=3)]}), time="day")
    >>> trips.select(back=pk.col("day") + timedelta(days=1), half=pk.col("took") / 2).collect().to_pylist()
    [{'day': datetime.date(2026, 2, 28), 'back': datetime.date(2026, 3, 1), 'half': datetime.timedelta(seconds=5400)}]
    """

    __slots__ = ("_name", "_node")
    __hash__ = None  # type: ignore[assignment]  # == builds an expression, so there is no equality to hash by
    __array_ufunc__ = None  # prevents a NumPy scalar on the left from handling the operator

    def __init__(self, node: nodes.Expr, name: Text | None = None) -> None:
        self._node = node
        self._name = name

    @property
    def node(self) -> nodes.Expr:
        """The expression without its name."""
        return self._node

    @property
    def name(self) -> Text | None:
        """The name of the result column: that of `alias`, or the column's."""
        if self._name is None and isinstance(self._node, nodes.Column):
            return self._node.name
        return self._name

    def alias(self, name: Text) -> Expr:
        """Name the result column."""
        if not isinstance(name, Text):
            raise ExpressionTypeError(f"alias takes a name, a text, not a {type(name).__name__}")
        return Expr(self._node, name)

    def __repr__(self) -> Text:
        return f"<Expr {show(self._node)}>"

    def __bool__(self) -> bool:
        raise ExpressionTypeError(
            f"an expression has no truth value by itself: {show(self._node)}; combine with & | ~ instead of "
            "and, or, not, write a < b < c as (a < b) & (b < c), and use .is_in(...) instead of in"
        )

    def __float__(self) -> float:
        raise ExpressionTypeError(
            f"an expression is not a number yet: {show(self._node)}; use its methods, such as .sqrt() instead of "
            "math.sqrt, and .cast('float64') instead of float"
        )

    def __int__(self) -> int:
        raise ExpressionTypeError(
            f"an expression is not a number yet: {show(self._node)}; write .cast('int64') instead of int"
        )

    def __contains__(self, value: object) -> bool:
        raise ExpressionTypeError(f"use .is_in(...) instead of in: {show(self._node)}")

    def __iter__(self) -> Any:
        raise ExpressionTypeError(
            f"an expression stands for a whole column and cannot be iterated over: {show(self._node)}; collect the query to see its values"
        )

    def __add__(self, other: object) -> Expr:
        return call("add", self, other)

    def __radd__(self, other: object) -> Expr:
        return call("add", other, self)

    def __sub__(self, other: object) -> Expr:
        return call("sub", self, other)

    def __rsub__(self, other: object) -> Expr:
        return call("sub", other, self)

    def __mul__(self, other: object) -> Expr:
        return call("mul", self, other)

    def __rmul__(self, other: object) -> Expr:
        return call("mul", other, self)

    def __truediv__(self, other: object) -> Expr:
        return call("div", self, other)

    def __rtruediv__(self, other: object) -> Expr:
        return call("div", other, self)

    def __floordiv__(self, other: object) -> Expr:
        return call("floordiv", self, other)

    def __rfloordiv__(self, other: object) -> Expr:
        return call("floordiv", other, self)

    def __mod__(self, other: object) -> Expr:
        return call("mod", self, other)

    def __rmod__(self, other: object) -> Expr:
        return call("mod", other, self)

    def __pow__(self, other: object) -> Expr:
        return call("pow", self, other)

    def __rpow__(self, other: object) -> Expr:
        return call("pow", other, self)

    def __neg__(self) -> Expr:
        return call("neg", self)

    def __pos__(self) -> Expr:
        return self

    def __abs__(self) -> Expr:
        return self.abs()

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return call("eq", self, other)

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return call("ne", self, other)

    def __lt__(self, other: object) -> Expr:
        return call("lt", self, other)

    def __le__(self, other: object) -> Expr:
        return call("le", self, other)

    def __gt__(self, other: object) -> Expr:
        return call("gt", self, other)

    def __ge__(self, other: object) -> Expr:
        return call("ge", self, other)

    def __and__(self, other: object) -> Expr:
        return call("and", self, other)

    def __rand__(self, other: object) -> Expr:
        return call("and", other, self)

    def __or__(self, other: object) -> Expr:
        return call("or", self, other)

    def __ror__(self, other: object) -> Expr:
        return call("or", other, self)

    def __xor__(self, other: object) -> Expr:
        return call("xor", self, other)

    def __rxor__(self, other: object) -> Expr:
        return call("xor", other, self)

    def __invert__(self) -> Expr:
        return call("not", self)

    def is_null(self) -> Expr:
        """Return whether the value is null."""
        return call("is_null", self)

    def is_not_null(self) -> Expr:
        """Return whether the value is not null."""
        return call("is_not_null", self)

    def is_nan(self) -> Expr:
        """Return whether a number is NaN; null stays null."""
        return call("is_nan", self)

    def is_not_nan(self) -> Expr:
        """Return whether a number is not NaN; null stays null."""
        return ~self.is_nan()

    def is_finite(self) -> Expr:
        """Return whether a number is neither infinite nor NaN; null stays null."""
        return (self > -math.inf) & (self < math.inf)

    def is_infinite(self) -> Expr:
        """Return whether a number is infinite; null stays null."""
        return (self == math.inf) | (self == -math.inf)

    def fill_nan(self, value: object) -> Expr:
        """Replace NaN by a value; null stays null."""
        return Expr(nodes.Case(((self.is_nan().node, node_of(value)),), self._node), self.name)

    def fill_null(self, *values: object) -> Expr:
        """Replace null by the first of the values that is not null."""
        return call("fill_null", self, *values)

    def is_in(self, values: Iterable[object]) -> Expr:
        """Return whether the value is one of a list of constants; null stays null."""
        refused = isinstance(values, (Text, bytes, Expr, type)) or written_elsewhere(values)
        if refused or not isinstance(values, Iterable):
            raise ExpressionTypeError(f"is_in takes a list of constants, not {shown(values)}")
        return Expr(nodes.IsIn(self._node, tuple(literal(value) for value in values)))

    def between(self, lower: object, upper: object, closed: Text = "both") -> Expr:
        """Return whether the value lies between two others; `closed` is both, left, right or none."""
        if not one_of(closed, ("both", "left", "right", "none")):
            raise ExpressionTypeError(f"closed is {shown(closed)}; it is 'both', 'left', 'right' or 'none'")
        above = self >= lower if closed in ("both", "left") else self > lower
        below = self <= upper if closed in ("both", "right") else self < upper
        return above & below

    def is_between(self, lower: object, upper: object, closed: Text = "both") -> Expr:
        """Return the same as `between`, under its Polars name."""
        return self.between(lower, upper, closed)

    def clip(self, lower: object = None, upper: object = None) -> Expr:
        """Limit to a range: values below or above become the nearer bound, null stays null.

        >>> import penstock as pk
        >>> pk.col("v").clip(0, 9)
        <Expr (when v < 0 then 0 when v > 9 then 9 else v)>
        """
        low = () if lower is None else (((self < lower).node, node_of(lower)),)
        high = () if upper is None else (((self > upper).node, node_of(upper)),)
        return Expr(nodes.Case((*low, *high), self._node), self.name) if low or high else self

    def cast(self, dtype: object) -> Expr:
        """Convert to another type, checking that every value fits.

        >>> import penstock as pk
        >>> pk.col("price").cast("float64")
        <Expr cast(price, double)>
        """
        return Expr(nodes.Cast(self._node, as_type(dtype)), self._name)

    def abs(self) -> Expr:
        """Return the absolute value."""
        return call("abs", self)

    def sign(self) -> Expr:
        """Return -1, 0 or 1."""
        return call("sign", self)

    def sqrt(self) -> Expr:
        """Return the square root; NaN below zero."""
        return call("sqrt", self)

    def exp(self) -> Expr:
        """Return e to this power."""
        return call("exp", self)

    def log(self, base: float = math.e) -> Expr:
        """Return the logarithm to a base, by default the natural logarithm."""
        if (
            isinstance(base, bool)
            or not isinstance(base, (int, float))
            or not 0 < base < math.inf
            or base == 1
        ):
            raise ExpressionTypeError(f"the base of log is a number above 0 that is not 1, not {base!r:.40}")
        known = {math.e: "log", 2: "log2", 10: "log10"}.get(base)
        return call("log", self) / math.log(base) if known is None else call(known, self)

    def pow(self, exponent: object) -> Expr:
        """Raise to a power, as `**` does."""
        return self**exponent

    def log2(self) -> Expr:
        """Return the logarithm to base 2."""
        return call("log2", self)

    def log10(self) -> Expr:
        """Return the logarithm to base 10."""
        return call("log10", self)

    def sin(self) -> Expr:
        """Return the sine of an angle in radians."""
        return call("sin", self)

    def cos(self) -> Expr:
        """Return the cosine of an angle in radians."""
        return call("cos", self)

    def tan(self) -> Expr:
        """Return the tangent of an angle in radians."""
        return call("tan", self)

    def floor(self) -> Expr:
        """Round down to a whole number."""
        return call("floor", self)

    def ceil(self) -> Expr:
        """Round up to a whole number."""
        return call("ceil", self)

    def round(self, decimals: int = 0) -> Expr:
        """Round to decimal places, halves away from zero."""
        if (
            isinstance(decimals, bool)
            or not isinstance(decimals, int)
            or builtins.abs(decimals) > MOST_DECIMALS
        ):
            raise ExpressionTypeError(
                f"round takes a whole number of decimals, up to {MOST_DECIMALS}, not {decimals!r:.40}"
            )
        return call("round", self, decimals=decimals)

    def quotient(self, other: object) -> Expr:
        """Divide integers and truncate the fraction, as SQL does; `//` rounds down."""
        return call("quotient", self, other)

    def remainder(self, other: object) -> Expr:
        """Return the remainder of `quotient`, with the sign of the dividend; `%` has the sign of the divisor."""
        return call("remainder", self, other)

    def _aggregated(self, function: Text, *others: object, where: object, **options: object) -> Expr:
        return aggregate(function, self, *others, where=where, **options)

    @property
    def dt(self) -> Times:
        """Functions of times: `pk.col("ts").dt.hour()`."""
        from penstock.api.datetime_namespace import Times  # noqa: PLC0415 - import cycle

        return Times(self)

    @property
    def str(self) -> Texts:
        """Functions of strings: `pk.col("kind").str.to_lowercase()`."""
        from penstock.api.string_namespace import Texts  # noqa: PLC0415 - import cycle

        return Texts(self)

    @property
    def struct(self) -> Structs:
        """Fields of structs: `pk.col("place").struct.field("city")`."""
        from penstock.api.struct_namespace import Structs  # noqa: PLC0415 - import cycle

        return Structs(self)


def node_of(value: object) -> nodes.Expr:
    """Return the node of an expression, or of a literal."""
    return value.node if isinstance(value, Expr) else literal(value)


def column_or_node(value: object) -> nodes.Expr:
    """Return the node of an expression; a string names a column."""
    return nodes.Column(value) if isinstance(value, str) else node_of(value)


def call(function: str, *args: object, **options: object) -> Expr:
    """Call a scalar function of the catalogue."""
    return Expr(nodes.Call(function, tuple(node_of(arg) for arg in args), tuple(sorted(options.items()))))


def aggregate(function: str, *args: object, where: object = None, **options: object) -> Expr:
    """Call an aggregate of the catalogue; strings name columns. Options are checked, and defaults added."""
    settings = AGGREGATES[function].settings(tuple(options.items()))
    condition = None if where is None else column_or_node(where)
    operands = tuple(column_or_node(arg) for arg in args)
    return Expr(nodes.Aggregate(function, operands, condition, tuple(sorted(settings.items()))))
