"""Conversions between types: which casts exist, and their results."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import pyarrow as pa

from penstock.errors import ExpressionTypeError
from penstock.errors import OverflowError as PenstockOverflow
from penstock.expr.arithmetic import fit
from penstock.types.arrow import kind_of, physical_type, tick_unit, value_type
from penstock.types.time import NANOSECONDS

_NUMBERS = ("bool", "int", "uint", "float")
_TICKS = ("timestamp", "date", "duration")
_ALLOWED = {
    **{kind: frozenset({*_NUMBERS, "string"}) for kind in ("bool", "float")},
    **{kind: frozenset({*_NUMBERS, "string", *_TICKS}) for kind in ("int", "uint")},
    "timestamp": frozenset({"timestamp", "date", "int", "string"}),
    "date": frozenset({"timestamp", "date", "int", "string"}),
    "duration": frozenset({"duration", "int"}),
    "string": frozenset({"string", *_NUMBERS, "timestamp", "date"}),
}


def castable(source: pa.DataType, target: pa.DataType) -> bool:
    """Return whether a cast from one type to the other exists."""
    if value_type(source) == value_type(target) or kind_of(source) == "null":
        return True
    return kind_of(target) in _ALLOWED.get(kind_of(source), ())


def convert(value: Any, source: pa.DataType, target: pa.DataType) -> Any:
    """Convert one physical value; raise an error if it does not fit.

    >>> convert(-1_500, pa.timestamp("ms"), pa.timestamp("s"))
    -2
    """
    source, target = value_type(source), value_type(target)
    if value is None or source == target:
        return value
    match kind_of(source), kind_of(target):
        case ("string", "string"):
            return value
        case ("timestamp", "string") if source.tz is not None:
            return _on_its_clock(value, source)
        case ("string", _) | (_, "string"):
            return _through_arrow(value, source, target)
        case ("timestamp" | "date" | "duration", "timestamp" | "date" | "duration"):
            return _rescaled(value, source, target)
        case _:
            return _number(value, target)


def _number(value: Any, target: pa.DataType) -> Any:
    match kind_of(target):
        case "bool":
            return value != 0
        case "float":
            return ctypes.c_float(value).value if pa.types.is_float32(target) else float(value)
        case _:
            return fit(_whole(value, target), target, "a value to cast")


def _whole(value: Any, target: pa.DataType) -> int:
    if isinstance(value, float) and not math.isfinite(value):
        raise PenstockOverflow(
            f"a value to cast is NaN or infinite, which {target} cannot hold; filter it out first"
        )
    return int(value)


def _rescaled(ticks: int, source: pa.DataType, target: pa.DataType) -> int:
    """Change the unit; a coarser unit rounds down."""
    old, new = NANOSECONDS[tick_unit(source) or "s"], NANOSECONDS[tick_unit(target) or "s"]
    instant = ticks * old
    if pa.types.is_date64(target):  # whole days, counted in milliseconds
        instant -= instant % NANOSECONDS["d"]
    return fit(instant // new, target, "a time to cast")


def _on_its_clock(ticks: int, source: pa.DataType) -> str:
    """Print a zoned time as Arrow does, but with Python's time zones: Arrow ignores daylight saving from 2038 on."""
    from penstock.expr.calendar import UTC_NAMES, offset_at  # noqa: PLC0415 - loaded on first use

    if source.tz in UTC_NAMES:
        return str(_through_arrow(ticks, source, pa.string()))
    tick = NANOSECONDS[source.unit]
    offset = offset_at(ticks * tick, source)
    hours, minutes = divmod(abs(offset) // NANOSECONDS["s"] // 60, 60)
    shown = _through_arrow(ticks + offset // tick, pa.timestamp(source.unit), pa.string())
    return f"{shown}{'-' if offset < 0 else '+'}{hours:02}{minutes:02}"


def _through_arrow(value: Any, source: pa.DataType, target: pa.DataType) -> Any:
    """Parse or print text by Arrow, as execution outside the interpreter does."""
    try:
        array = (
            pa.array([value], physical_type(source)).view(source) if source != physical_type(source) else None
        )
        cast = (pa.array([value], source) if array is None else array).cast(target)
        plain = physical_type(target)
        return (cast if plain == target else cast.view(plain))[0].as_py()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise ExpressionTypeError(
            f"a value of type {source} cannot be read as {target}; filter such rows out before the cast"
        ) from None  # Arrow's message quotes the value
