"""Sums, counts, means and products, computed exactly and rounded once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pyarrow as pa

from penstock.expr.aggregates.function import Rows, Settings, Types, known
from penstock.expr.arithmetic import fit
from penstock.types.arrow import kind_of


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
    return (
        float_sum(values)
        if kind_of(result) == "float"
        else fit(sum(map(int, values)), result, "the sum of a window")
    )


def count(rows: Rows, types: Types, result: pa.DataType, settings: Settings) -> int:
    return sum(all(value is not None for value in row) for row in rows)


def mean(rows: Rows, types: Types, result: pa.DataType, settings: Settings) -> float | None:
    values = known(rows)
    if not values:
        return None
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
