"""The order of values: numbers mathematically, NaN last and equal to itself, timestamps by instant."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from penstock.expr.arithmetic import Setting
from penstock.types.arrow import kind_of, tick_unit
from penstock.types.time import NANOSECONDS


def order_key(value: Any) -> Any:
    """Return a key that sorts values of one type, NaN after every other number."""
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value)
    return value


def equality_key(value: Any) -> Any:
    """Return a key that is the same for equal values, also inside lists and structs.

    >>> equality_key([0.0, math.nan]) == equality_key([-0.0, -math.nan])
    True
    """
    match value:
        case list() | tuple():
            return [equality_key(each) for each in value]
        case dict():
            return {name: equality_key(each) for name, each in value.items()}
        case _:
            return order_key(value)


def _aligned(a: Any, b: Any, types: Sequence[pa.DataType]) -> tuple[Any, Any]:
    """Convert both sides to one scale: float64 if either is a float, nanoseconds for times."""
    if "float" in (kind_of(types[0]), kind_of(types[1])):
        return float(a), float(b)
    units = tick_unit(types[0]), tick_unit(types[1])
    if units[0] is None or units[1] is None:
        return a, b
    return a * NANOSECONDS[units[0]], b * NANOSECONDS[units[1]]


def compare(a: Any, b: Any, types: Sequence[pa.DataType]) -> int:
    """Return -1, 0 or 1 if `a` is below, equal to or above `b`."""
    x, y = (order_key(side) for side in _aligned(a, b, types))
    return int(x > y) - int(x < y)


def comparison(holds: Callable[[int], bool]) -> Callable[[Setting, Any, Any], bool]:
    """Define a comparison by a predicate on the result of `compare`."""
    return lambda setting, a, b: holds(compare(a, b, setting.types))
