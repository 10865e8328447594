"""The catalogue of aggregate functions: type rules, algebra, and plain definitions.

A definition reduces the list of argument tuples of one window's rows, those that `where` lets
through. The algebra is data: passes ask an aggregate what it is, never what it is called.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pyarrow as pa

from penstock.expr.arithmetic import fit
from penstock.expr.nodes import Options
from penstock.expr.order import order_key
from penstock.types.arrow import kind_of, value_type

Types = Sequence[pa.DataType]
Rows = Sequence[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class AggregateFunction:
    """An aggregate. Invertible means that a row can be taken out again without looking at the others."""

    name: str
    least: int
    most: int
    takes: str
    rule: Callable[[Types, Mapping[str, object]], pa.DataType | None]
    define: Callable[[Rows, Types, pa.DataType, Mapping[str, object]], Any]
    associative: bool = True
    commutative: bool = True
    invertible: bool = False


def _sum_type(types: Types, options: Mapping[str, object]) -> pa.DataType | None:
    (dtype,) = types
    match kind_of(dtype):
        case "bool" | "int":
            return pa.int64()
        case "uint":
            return pa.uint64()
        case "float":
            return pa.float64()
        case "duration":
            return dtype
        case _:
            return None


def _count_type(types: Types, options: Mapping[str, object]) -> pa.DataType | None:
    return pa.int64()


def _mean_type(types: Types, options: Mapping[str, object]) -> pa.DataType | None:
    return pa.float64() if kind_of(types[0]) in ("bool", "int", "uint", "float") else None


def _extreme_type(types: Types, options: Mapping[str, object]) -> pa.DataType | None:
    return None if kind_of(types[0]) in ("other", "null") else value_type(types[0])


def _valid(rows: Rows) -> list[Any]:
    return [row[0] for row in rows if row[0] is not None]


def _special(values: Sequence[float]) -> float | None:
    """Give the sum if an infinity or NaN decides it."""
    odd = {value for value in values if math.isinf(value)}
    if len(odd) == 2 or any(math.isnan(value) for value in values):
        return math.nan
    return odd.pop() if odd else None


def _to_float(exact: Fraction) -> float:
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
    except OverflowError:  # of a partial sum: the total may still fit
        return _to_float(sum(map(Fraction, values), Fraction(0)))


def _sum(rows: Rows, types: Types, result: pa.DataType, options: Mapping[str, object]) -> Any:
    values = _valid(rows)
    if not values:
        return None
    return (
        float_sum(values)
        if kind_of(result) == "float"
        else fit(sum(map(int, values)), result, "the sum of a window")
    )


def _count(rows: Rows, types: Types, result: pa.DataType, options: Mapping[str, object]) -> int:
    return sum(all(value is not None for value in row) for row in rows)


def _mean(rows: Rows, types: Types, result: pa.DataType, options: Mapping[str, object]) -> float | None:
    values = _valid(rows)
    if not values:
        return None
    if kind_of(types[0]) != "float":
        return float(Fraction(sum(map(int, values)), len(values)))
    special = _special(values)
    return _to_float(sum(map(Fraction, values), Fraction(0)) / len(values)) if special is None else special


def _min(rows: Rows, types: Types, result: pa.DataType, options: Mapping[str, object]) -> Any:
    return min(_valid(rows), key=order_key, default=None)


def _max(rows: Rows, types: Types, result: pa.DataType, options: Mapping[str, object]) -> Any:
    return max(_valid(rows), key=order_key, default=None)


AGGREGATES: dict[str, AggregateFunction] = {
    each.name: each
    for each in (
        AggregateFunction("sum", 1, 1, "a number or duration", _sum_type, _sum, invertible=True),
        AggregateFunction("count", 0, 1, "nothing or any column", _count_type, _count, invertible=True),
        AggregateFunction("mean", 1, 1, "a number", _mean_type, _mean, invertible=True),
        AggregateFunction("min", 1, 1, "a value that has an order", _extreme_type, _min),
        AggregateFunction("max", 1, 1, "a value that has an order", _extreme_type, _max),
    )
}


def result_type(function: str, types: Types, options: Options = ()) -> pa.DataType | None:
    """Give the type of an aggregate's result; None where it is not defined."""
    return AGGREGATES[function].rule([value_type(dtype) for dtype in types], dict(options))


def reduce(function: str, rows: Rows, types: Types, options: Options = ()) -> Any:
    """Reduce argument tuples of physical values to one value.

    >>> reduce("sum", [(1,), (None,), (2,)], [pa.int8()])
    3
    """
    result = result_type(function, types, options)
    assert result is not None, f"{function} is not defined for {types}"
    return AGGREGATES[function].define(rows, types, result, dict(options))
