"""Kleene logic, functions that handle nulls, and the fields of structs."""

from __future__ import annotations

import math
from typing import Any

from penstock.expr.arithmetic import Setting
from penstock.expr.conversion import convert
from penstock.expr.order import order_key


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
