"""The catalogue of aggregate functions."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.expr.aggregates import definitions
from penstock.expr.aggregates import function as rules
from penstock.expr.aggregates.definitions import CUSTOM, Reducing, specific
from penstock.expr.aggregates.function import (
    BIAS,
    DDOF,
    FISHER,
    IGNORE_NULLS,
    AggregateFunction,
    Q,
    Rows,
    Types,
)
from penstock.expr.nodes import Options
from penstock.types.arrow import value_type

_NUMBER = "a number"
_NUMBERS = "two numbers"
_ORDERED = "a value that has an order"
_BESIDE = "two values that have an order"
_ANY = "a column of any type"

_SUMS = (
    AggregateFunction("sum", 1, 1, "a number or duration", rules.total, definitions.total, invertible=True),
    AggregateFunction(
        "count", 0, 1, "nothing or any column", rules.number, definitions.count, invertible=True
    ),
    AggregateFunction("mean", 1, 1, _NUMBER, rules.average, definitions.mean, invertible=True),
    AggregateFunction("product", 1, 1, _NUMBER, rules.multiple, definitions.product),
)

# Not invertible: removing a large value from a moment leaves its rounding error.
_MOMENTS = (
    AggregateFunction("std", 1, 1, _NUMBER, rules.real, definitions.std, options=(DDOF,)),
    AggregateFunction("var", 1, 1, _NUMBER, rules.real, definitions.var, options=(DDOF,)),
    AggregateFunction("skew", 1, 1, _NUMBER, rules.real, definitions.skew, options=(BIAS,)),
    AggregateFunction("kurtosis", 1, 1, _NUMBER, rules.real, definitions.kurtosis, options=(FISHER, BIAS)),
    AggregateFunction("cov", 2, 2, _NUMBERS, rules.real, definitions.cov, options=(DDOF,)),
    AggregateFunction("corr", 2, 2, _NUMBERS, rules.real, definitions.corr),
)

_EXTREMES = (
    AggregateFunction("min", 1, 1, _ORDERED, rules.ordered, definitions.least),
    AggregateFunction("max", 1, 1, _ORDERED, rules.ordered, definitions.greatest),
    AggregateFunction("min_by", 2, 2, _BESIDE, rules.ordered, definitions.least_by, skips_nulls=False),
    AggregateFunction("max_by", 2, 2, _BESIDE, rules.ordered, definitions.greatest_by, skips_nulls=False),
)

_HOLISTIC = (
    AggregateFunction("median", 1, 1, _NUMBER, rules.real, definitions.median, holistic=True),
    AggregateFunction(
        "quantile", 1, 1, _NUMBER, rules.real, definitions.quantile, holistic=True, options=(Q,)
    ),
    AggregateFunction("mode", 1, 1, _ORDERED, rules.ordered, definitions.mode, holistic=True),
    AggregateFunction(
        "count_distinct", 1, 1, _ORDERED, rules.number_of_ordered, definitions.count_distinct, holistic=True
    ),
    AggregateFunction(
        "list", 1, 1, _ANY, rules.collected, definitions.collect, commutative=False, holistic=True
    ),
)

_CHOICES = (
    *(
        AggregateFunction(
            name, 1, 1, _ANY, rules.itself, define,
            commutative=False, skips_nulls=False, options=(IGNORE_NULLS,),
        )
        for name, define in (("first", definitions.first), ("last", definitions.last))
    ),
    AggregateFunction("any", 1, 1, "a boolean", rules.truth, definitions.either),
    AggregateFunction("all", 1, 1, "a boolean", rules.truth, definitions.every),
)  # fmt: skip

AGGREGATES: dict[str, AggregateFunction] = {
    function.name: function for function in (*_SUMS, *_MOMENTS, *_EXTREMES, *_HOLISTIC, *_CHOICES, CUSTOM)
}


def algebra_of(node: Reducing) -> AggregateFunction:
    """Return the algebra of an aggregate or reduction; a custom aggregate has that of its definition."""
    return specific(AGGREGATES[node.function], node)


def result_type(function: str, types: Types, options: Options = ()) -> pa.DataType | None:
    """Return the type of an aggregate's result; None where it is not defined."""
    found = AGGREGATES[function]
    return found.rule([value_type(dtype) for dtype in types], found.settings(options))


def reduce(function: str, rows: Rows, types: Types, options: Options = ()) -> Any:
    """Reduce argument tuples of physical values, in order of (time, sequence, position), to one value.

    >>> reduce("sum", [(1,), (None,), (2,)], [pa.int8()])
    3
    """
    result = result_type(function, types, options)
    assert result is not None, f"{function} is not defined for {types}"
    found = AGGREGATES[function]
    return found.define(rows, types, result, found.settings(options))
