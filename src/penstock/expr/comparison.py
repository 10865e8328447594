"""Order and equality of values, Kleene logic, functions of nulls, and the fields of structs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from penstock.expr import decimals
from penstock.expr.arithmetic import Setting, convert
from penstock.types.arrow import kind_of, tick_unit
from penstock.types.time import NANOSECONDS

# --- The order of values: numbers mathematically, NaN last and equal to itself, timestamps by instant.


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
            return [equality_key(item) for item in value]
        case dict():
            return {name: equality_key(item) for name, item in value.items()}
        case _:
            return order_key(value)


def _aligned(a: Any, b: Any, types: Sequence[pa.DataType]) -> tuple[Any, Any]:
    """Convert both sides to one scale: float64 if either is a float, nanoseconds for times."""
    if "float" in (kind_of(types[0]), kind_of(types[1])):
        return _as_float(a, types[0]), _as_float(b, types[1])
    units = tick_unit(types[0]), tick_unit(types[1])
    if units[0] is None or units[1] is None:
        return a, b
    return a * NANOSECONDS[units[0]], b * NANOSECONDS[units[1]]


def _as_float(value: Any, dtype: pa.DataType) -> float:
    return decimals.to_float(value, dtype) if isinstance(value, Decimal) else float(value)


def compare(a: Any, b: Any, types: Sequence[pa.DataType]) -> int:
    """Return -1, 0 or 1 if `a` is below, equal to or above `b`."""
    x, y = (order_key(side) for side in _aligned(a, b, types))
    return int(x > y) - int(x < y)


def comparison(holds: Callable[[int], bool]) -> Callable[[Setting, Any, Any], bool]:
    """Define a comparison by a predicate on the result of `compare`."""
    return lambda setting, a, b: holds(compare(a, b, setting.types))


# --- Kleene logic, functions that handle nulls, and the fields of structs.


def both(setting: Setting, *values: bool | None) -> bool | None:
    if False in values:
        return False
    return None if None in values else True


def either(setting: Setting, *values: bool | None) -> bool | None:
    if True in values:
        return True
    return None if None in values else False


def exactly_one(setting: Setting, a: bool, b: bool) -> bool:
    return a != b


def negation(setting: Setting, a: bool) -> bool:
    return not a


def is_null(setting: Setting, a: Any) -> bool:
    return a is None


def is_not_null(setting: Setting, a: Any) -> bool:
    return a is not None


def is_nan(setting: Setting, a: Any) -> bool:
    return isinstance(a, float) and math.isnan(a)


def _known(values: tuple[Any, ...], setting: Setting) -> list[Any]:
    """Return the non-null values, converted to the result's type."""
    return [
        convert(value, dtype, setting.result)
        for value, dtype in zip(values, setting.types, strict=True)
        if value is not None
    ]


def first_known(setting: Setting, *values: Any) -> Any:
    return next(iter(_known(values, setting)), None)


def least(setting: Setting, *values: Any) -> Any:
    return min(_known(values, setting), key=order_key, default=None)


def greatest(setting: Setting, *values: Any) -> Any:
    return max(_known(values, setting), key=order_key, default=None)


def member(setting: Setting, struct: Any) -> Any:
    return struct[setting.options["name"]]
