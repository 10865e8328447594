"""Variance, skewness, kurtosis, covariance and correlation, computed exactly and rounded once.

Every finite float is an integer over a power of two. Over a common denominator d, the deviation of a
value from the mean of n values is an integer over n·d; products and powers of deviations are exact too.
NaN and infinities have no deviation: any result that includes one is NaN.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import pyarrow as pa

from penstock.expr.aggregates.function import Rows, Settings, Types, known
from penstock.expr.aggregates.sums import to_float

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
    return [len(scaled) * each - total for each in scaled], len(scaled) * common


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
    return all(math.isfinite(each) for values in columns for each in values)


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
    return [sum(each**power for each in own) for power in powers]
