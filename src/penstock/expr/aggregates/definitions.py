"""The aggregates in plain Python: sums, moments, extremes, order statistics, choices, and the user's own."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, Protocol

import pyarrow as pa

from penstock.expr import decimals
from penstock.expr.aggregates.function import AggregateFunction, Rows, Settings, Types, known
from penstock.expr.arithmetic import fit
from penstock.expr.comparison import order_key
from penstock.expr.nodes import Options
from penstock.types.arrow import kind_of

# --- Sums, counts, means and products, computed exactly and rounded once.


def _special(values: Sequence[float]) -> float | None:
    """Return the sum if an infinity or NaN determines it, else None."""
    odd = {value for value in values if math.isinf(value)}
    if len(odd) == 2 or any(math.isnan(value) for value in values):
        return math.nan
    return odd.pop() if odd else None


def to_float(exact: Fraction) -> float:
    """Round an exact number; return infinity beyond the range of floats."""
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def float_sum(values: Sequence[float]) -> float:
    """Add floats exactly and round once, as `math.fsum` does, but without its exceptions."""
    special = _special(values)
    if special is not None:
        return special
    try:
        return math.fsum(values)
    except OverflowError:  # in a partial sum: the total may still fit
        return to_float(sum(map(Fraction, values), Fraction(0)))


def total(rows: Rows, types: Types, result: pa.DataType, settings: Settings) -> Any:
    values = known(rows)
    if not values:
        return None
    if decimals.is_exact(result):
        return decimals.total(values, result)
    return (
        float_sum(values)
        if kind_of(result) == "float"
        else fit(sum(map(int, values)), result, "the sum of a window")
    )


def count(rows: Rows, types: Types, result: pa.DataType, settings: Settings) -> int:
    return sum(all(value is not None for value in row) for row in rows)


def mean(rows: Rows, types: Types, result: pa.DataType, settings: Settings) -> Any:
    values = known(rows)
    if not values:
        return None
    if decimals.is_exact(result):
        return decimals.mean(values, result)
    if kind_of(types[0]) != "float":
        return float(Fraction(sum(map(int, values)), len(values)))
    special = _special(values)
    return to_float(sum(map(Fraction, values), Fraction(0)) / len(values)) if special is None else special


def product(rows: Rows, types: Types, result: pa.DataType, settings: Settings) -> Any:
    values = known(rows)
    if not values:
        return None
    return (
        float_product(values)
        if kind_of(result) == "float"
        else fit(math.prod(map(int, values)), result, "the product of a window")
    )


def float_product(values: Sequence[float]) -> float:
    """Multiply floats exactly and round once: an intermediate overflow may cancel.

    >>> float_product([1e200, 1e200, 1e-200])
    1e+200
    """
    sign = math.prod(math.copysign(1.0, value) for value in values)
    if any(math.isnan(value) for value in values):
        return math.nan
    if any(math.isinf(value) for value in values):
        return math.nan if 0.0 in values else sign * math.inf
    above, below = zip(*(abs(value).as_integer_ratio() for value in values), strict=True)
    return sign * to_float(Fraction(math.prod(above), math.prod(below)))


# --- Variance, skewness, kurtosis, covariance and correlation, computed exactly and rounded once.
#
# Every finite float is an integer over a power of two. Over a common denominator d, the deviation of a
# value from the mean of n values is an integer over n·d; products and powers of deviations are exact too.
# NaN and infinities have no deviation: any result that includes one is NaN.

Numbers = Sequence[int | float]


def deviations(values: Numbers) -> tuple[list[int], int]:
    """Return the deviations from the mean as integers over one denominator, and that denominator.

    >>> deviations([0.5, 1, 3])
    ([-6, -3, 9], 6)
    """
    ratios = [value.as_integer_ratio() for value in values]
    common = max(below for _, below in ratios)  # all are powers of two
    scaled = [above * (common // below) for above, below in ratios]
    total = sum(scaled)
    return [len(scaled) * value - total for value in scaled], len(scaled) * common


def root(exact: Fraction) -> float:
    """Compute a square root to 64 bits, then round it.

    >>> root(Fraction(1, 4)), root(Fraction(2)) == math.sqrt(2)
    (0.5, True)
    """
    above, below = exact.as_integer_ratio()
    bits = max(0, 64 - (above.bit_length() - below.bit_length()) // 2)
    return to_float(Fraction(math.isqrt((above << 2 * bits) // below), 1 << bits))


def _signed_root(square: Fraction, sign: int) -> float:
    return -root(square) if sign < 0 else root(square)


def _finite(*columns: Numbers) -> bool:
    return all(math.isfinite(value) for values in columns for value in values)


def _product_sum(left: Sequence[int], right: Sequence[int]) -> int:
    return sum(x * y for x, y in zip(left, right, strict=True))


# --- variance and covariance ------------------------------------------------------------------------


def var(rows: Rows, types: Types, result: pa.DataType, settings: Settings) -> float | None:
    values = known(rows)
    return _rounded(_covariance(values, values, settings["ddof"]))


def std(rows: Rows, types: Types, result: pa.DataType, settings: Settings) -> float | None:
    values = known(rows)
    exact = _covariance(values, values, settings["ddof"])
    return root(exact) if isinstance(exact, Fraction) else exact


def cov(rows: Rows, types: Types, result: pa.DataType, settings: Settings) -> float | None:
    return _rounded(_covariance(*_pairs(rows), settings["ddof"]))


def corr(rows: Rows, types: Types, result: pa.DataType, settings: Settings) -> float | None:
    xs, ys = _pairs(rows)
    if not xs:
        return None
    if not _finite(xs, ys):
        return math.nan
    (left, _), (right, _) = deviations(xs), deviations(ys)
    both, spread = _product_sum(left, right), _product_sum(left, left) * _product_sum(right, right)
    return _signed_root(Fraction(both**2, spread), both) if spread else math.nan


def _pairs(rows: Rows) -> tuple[Numbers, Numbers]:
    complete = [row for row in rows if None not in row]
    return [x for x, _ in complete], [y for _, y in complete]


def _covariance(xs: Numbers, ys: Numbers, ddof: int) -> Fraction | float | None:
    """Average the products of deviations: null for too few values, NaN if not all are finite."""
    if len(xs) <= ddof:
        return None
    if not _finite(xs, ys):
        return math.nan
    (left, a), (right, b) = deviations(xs), deviations(ys)
    return Fraction(_product_sum(left, right), a * b * (len(xs) - ddof))


def _rounded(exact: Fraction | float | None) -> float | None:
    return to_float(exact) if isinstance(exact, Fraction) else exact


# --- skewness and kurtosis --------------------------------------------------------------------------


def skew(rows: Rows, types: Types, result: pa.DataType, settings: Settings) -> float | None:
    """Divide the third moment by the variance to the power 3/2; the bias correction needs three values."""
    values, bias = known(rows), settings["bias"]
    n = len(values)
    if n < (1 if bias else 3):
        return None
    second, third = _moments(values, 2, 3)
    if not second:
        return math.nan
    square = Fraction(n * third**2, second**3)
    return _signed_root(square if bias else square * Fraction(n * (n - 1), (n - 2) ** 2), third)


def kurtosis(rows: Rows, types: Types, result: pa.DataType, settings: Settings) -> float | None:
    """Divide the fourth moment by the squared variance; the bias correction needs four values."""
    values, bias = known(rows), settings["bias"]
    n = len(values)
    if n < (1 if bias else 4):
        return None
    second, fourth = _moments(values, 2, 4)
    if not second:
        return math.nan
    excess = Fraction(n * fourth, second**2) - 3
    if not bias:
        excess = Fraction(n - 1, (n - 2) * (n - 3)) * ((n + 1) * excess + 6)
    return to_float(excess if settings["fisher"] else excess + 3)


def _moments(values: Numbers, *powers: int) -> list[int]:
    """Sum powers of the deviations, in a unit that cancels in ratios; zeros if not all values are finite."""
    own = deviations(values)[0] if _finite(values) else []
    return [sum(deviation**power for deviation in own) for power in powers]


# --- Aggregates that compare values: extremes, order statistics, mode and distinct counts.
#
# NaN is the greatest value and equals itself; -0.0 equals 0.0. No result depends on the order of the rows.


def least(rows: Rows, types: Types, result: pa.DataType, settings: Settings) -> Any:
    return min(known(rows), key=order_key, default=None)


def greatest(rows: Rows, types: Types, result: pa.DataType, settings: Settings) -> Any:
    return max(known(rows), key=order_key, default=None)


def least_by(rows: Rows, types: Types, result: pa.DataType, settings: Settings) -> Any:
    return _extreme_by(rows, min)


def greatest_by(rows: Rows, types: Types, result: pa.DataType, settings: Settings) -> Any:
    return _extreme_by(rows, max)


def _extreme_by(rows: Rows, choose: Callable[..., Any]) -> Any:
    """Return the smallest value among the rows with the extreme `by`; null only if all are null."""
    ranked = [(order_key(by), value) for value, by in rows if by is not None]
    extreme = choose((rank for rank, _ in ranked), default=None)
    beside = [value for rank, value in ranked if rank == extreme]
    return min(beside, key=lambda value: (value is None, order_key(value)), default=None)


def median(rows: Rows, types: Types, result: pa.DataType, settings: Settings) -> float | None:
    return quantile_of(sorted(map(float, known(rows)), key=order_key), 0.5)


def quantile(rows: Rows, types: Types, result: pa.DataType, settings: Settings) -> float | None:
    return quantile_of(sorted(map(float, known(rows)), key=order_key), settings["q"])


def quantile_of(ordered: Sequence[float], q: float) -> float | None:
    """Interpolate between the two values nearest to fraction `q`, in IEEE 754 arithmetic.

    >>> quantile_of([1.0, 2.0, 4.0], 0.75), quantile_of([1.0, math.inf, math.inf], 0.75)
    (3.0, inf)
    """
    if not ordered:
        return None
    place = q * (len(ordered) - 1)
    below = math.floor(place)
    low, high, part = ordered[below], ordered[math.ceil(place)], place - below
    return low if part == 0 or low == high else low + (high - low) * part


def mode(rows: Rows, types: Types, result: pa.DataType, settings: Settings) -> Any:
    """Return the smallest of the most frequent values; 0.0 represents both zeros."""
    values = known(rows)
    times = Counter(map(order_key, values))
    most = max(times.values(), default=0)
    found = min((value for value in values if times[order_key(value)] == most), key=order_key, default=None)
    return 0.0 if isinstance(found, float) and found == 0 else found


def count_distinct(rows: Rows, types: Types, result: pa.DataType, settings: Settings) -> int:
    return len(set(map(order_key, known(rows))))


# --- Aggregates that depend on row order, and aggregates of booleans.


def first(rows: Rows, types: Types, result: pa.DataType, settings: Settings) -> Any:
    return next(iter(_eligible(rows, settings)), None)


def last(rows: Rows, types: Types, result: pa.DataType, settings: Settings) -> Any:
    return next(reversed(_eligible(rows, settings)), None)


def _eligible(rows: Rows, settings: Settings) -> list[Any]:
    return known(rows) if settings["ignore_nulls"] else [value for (value,) in rows]


def collect(rows: Rows, types: Types, result: pa.DataType, settings: Settings) -> list[Any]:
    return known(rows)


def either(rows: Rows, types: Types, result: pa.DataType, settings: Settings) -> bool | None:
    values = known(rows)
    return any(values) if values else None


def every(rows: Rows, types: Types, result: pa.DataType, settings: Settings) -> bool | None:
    values = known(rows)
    return all(values) if values else None


# --- User-defined aggregates. The option `definition` holds the definition (`expr/custom.py`).

MOST_ARGUMENTS = 64


class Reducing(Protocol):
    """An aggregate in an expression, or a reduction of the IR."""

    @property
    def function(self) -> str: ...

    @property
    def options(self) -> Options: ...


def _type(types: Types, settings: Settings) -> pa.DataType | None:
    found: pa.DataType = settings["definition"].typed(types).value
    return found


def _define(rows: Rows, types: Types, result: pa.DataType, settings: Settings) -> Any:
    return settings["definition"].reduce(rows, types)


CUSTOM = AggregateFunction("custom", 0, MOST_ARGUMENTS, "numbers and booleans", _type, _define)


def specific(function: AggregateFunction, node: Reducing) -> AggregateFunction:
    """Return the function with the algebra of the custom aggregate's definition."""
    definition: Any = dict(node.options).get("definition")
    if definition is None:
        return function
    return replace(
        function,
        associative=definition.merge is not None,
        commutative=definition.commutative,
        invertible=definition.remove is not None,
    )
