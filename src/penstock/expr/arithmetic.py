"""Arithmetic in plain Python: the reference results for native code.

Every function takes non-null physical values and the `Setting` of the call: the operand types, the
result type and the options.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow as pa

from penstock.errors import ExpressionTypeError
from penstock.errors import OverflowError as PenstockOverflow
from penstock.expr import decimals
from penstock.types.arrow import kind_of, physical_type, tick_unit, value_type
from penstock.types.time import NANOSECONDS


@dataclass(frozen=True, slots=True)
class Setting:
    """The types and options of a call, passed to its definition."""

    types: tuple[pa.DataType, ...]
    result: pa.DataType
    options: Mapping[str, object] = field(default_factory=dict)


def bounds(dtype: pa.DataType) -> tuple[int, int]:
    """Return the smallest and largest value of an integer (or tick) type."""
    width = dtype.bit_width
    return (0, 2**width - 1) if kind_of(dtype) == "uint" else (-(2 ** (width - 1)), 2 ** (width - 1) - 1)


def fit(value: int, dtype: pa.DataType, what: str) -> int:
    """Return an exact integer if the type can hold it, else raise an error."""
    low, high = bounds(dtype)
    if low <= value <= high:
        return value
    raise PenstockOverflow(
        f"{what} does not fit {dtype}; cast the operands to float64 if an approximate result will do"
    )


def _in_result_unit(value: Any, dtype: pa.DataType, setting: Setting) -> Any:
    """Convert an operand to the unit or number type of the operation."""
    unit, target = tick_unit(dtype), tick_unit(setting.result)
    if unit is not None and target is not None:
        return value * (NANOSECONDS[unit] // NANOSECONDS[target])
    return float(value) if kind_of(setting.result) == "float" else int(value)


def _both(a: Any, b: Any, setting: Setting) -> tuple[Any, Any]:
    return _in_result_unit(a, setting.types[0], setting), _in_result_unit(b, setting.types[1], setting)


def _checked(value: Any, setting: Setting, what: str) -> Any:
    return value if isinstance(value, float) else fit(value, setting.result, what)


def add(setting: Setting, a: Any, b: Any) -> Any:
    if decimals.is_exact(setting.result):
        return decimals.computed("add", a, b, setting.result)
    x, y = _both(a, b, setting)
    return _checked(x + y, setting, "the sum of two values")


def sub(setting: Setting, a: Any, b: Any) -> Any:
    if decimals.is_exact(setting.result):
        return decimals.computed("sub", a, b, setting.result)
    x, y = _both(a, b, setting)
    return _checked(x - y, setting, "the difference of two values")


def mul(setting: Setting, a: Any, b: Any) -> Any:
    if kind_of(setting.result) == "float":
        return float(a) * float(b)
    if decimals.is_exact(setting.result):
        return decimals.computed("mul", a, b, setting.result)
    return fit(int(a) * int(b), setting.result, "the product of two values")


def divide(a: float, b: float) -> float:
    """Divide as IEEE 754 does, zero included."""
    if b != 0:
        return a / b
    if a == 0 or math.isnan(a):
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1.0, b)


def _same_unit(a: Any, b: Any, setting: Setting) -> tuple[Any, Any]:
    """Convert two durations to nanoseconds; return numbers unchanged."""
    units = [tick_unit(dtype) for dtype in setting.types]
    if None in units:
        return a, b
    return a * NANOSECONDS[units[0] or "s"], b * NANOSECONDS[units[1] or "s"]


def div(setting: Setting, a: Any, b: Any) -> Any:
    if decimals.is_exact(setting.result):
        return decimals.computed("div", a, b, setting.result)
    x, y = _same_unit(a, b, setting)
    return divide(float(x), float(y))


def floor(value: float) -> float:
    """Round down, keeping non-finite values and the sign of zero."""
    return value if value == 0 or not math.isfinite(value) else float(math.floor(value))


def floordiv(setting: Setting, a: Any, b: Any) -> Any:
    if kind_of(setting.result) == "float":
        return floor(divide(float(a), float(b)))
    if decimals.is_exact(setting.result):
        return decimals.computed("floordiv", a, b, setting.result)
    x, y = _same_unit(int(a), int(b), setting)
    return None if y == 0 else fit(x // y, setting.result, "the quotient of two values")


def _float_mod(a: float, b: float) -> float:
    if b == 0 or math.isinf(a) or math.isnan(a) or math.isnan(b):
        return math.nan
    rest = math.fmod(a, b)
    return rest + b if rest != 0 and (rest < 0) != (b < 0) else rest


def mod(setting: Setting, a: Any, b: Any) -> Any:
    if decimals.is_exact(setting.result):
        return decimals.computed("mod", a, b, setting.result)
    x, y = _both(a, b, setting)
    if isinstance(x, float):
        return _float_mod(x, y)
    return None if y == 0 else fit(x % y, setting.result, "the remainder of two values")


def quotient(setting: Setting, a: Any, b: Any) -> int | None:
    """Divide and truncate the fraction, as C and SQL do."""
    x, y = int(a), int(b)
    return None if y == 0 else fit(_truncated(x, y), setting.result, "the quotient of two values")


def _truncated(x: int, y: int) -> int:
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


def remainder(setting: Setting, a: Any, b: Any) -> Any:
    """Return the remainder of a truncating division, with the sign of the dividend."""
    if decimals.is_exact(setting.result):
        return decimals.computed("remainder", a, b, setting.result)
    x, y = _both(a, b, setting)
    if isinstance(x, float):
        return math.nan if y == 0 or math.isinf(x) else math.fmod(x, y)
    return None if y == 0 else fit(x - y * _truncated(x, y), setting.result, "the remainder of two values")


def power(setting: Setting, a: Any, b: Any) -> float:
    x, y = float(a), float(b)
    try:
        return math.pow(x, y)
    except ValueError:  # C: a pole at zero, nan for the root of a negative number
        return _pole(x, y) if x == 0 else math.nan
    except OverflowError:
        return -math.inf if x < 0 and math.fmod(y, 2.0) != 0 else math.inf


def _pole(zero: float, exponent: float) -> float:
    odd = math.fmod(exponent, 2.0) != 0 and exponent == math.trunc(exponent)
    return math.copysign(math.inf, zero) if odd else math.inf


def neg(setting: Setting, a: Any) -> Any:
    if isinstance(a, Decimal):
        return a.copy_negate() if a else a
    return (
        -float(a)
        if kind_of(setting.result) == "float"
        else fit(-a, setting.result, "the negative of a value")
    )


def absolute(setting: Setting, a: Any) -> Any:
    if isinstance(a, Decimal):
        return a.copy_abs()
    if kind_of(setting.result) == "float":
        return math.fabs(a)
    return fit(abs(a), setting.result, "the absolute value of a value")


def sign(setting: Setting, a: Any) -> Any:
    if isinstance(a, float) and math.isnan(a):
        return a
    direction = (a > 0) - (a < 0)
    return float(direction) if kind_of(setting.result) == "float" else direction


def as_in_c(function: Callable[[float], float]) -> Callable[[Setting, Any], float]:
    """Wrap a function of `math` to return nan or inf where it raises."""

    def define(setting: Setting, a: Any) -> float:
        try:
            return function(float(a))
        except ValueError:
            return -math.inf if a == 0 else math.nan  # only logarithms have a pole, at 0
        except OverflowError:
            return math.inf

    return define


def round_down(setting: Setting, a: Any) -> Any:
    if isinstance(a, Decimal):
        return decimals.rounded_down(a, setting.result)
    return floor(a) if isinstance(a, float) else a


def round_up(setting: Setting, a: Any) -> Any:
    if isinstance(a, Decimal):
        return decimals.rounded_up(a, setting.result)
    return -floor(-a) if isinstance(a, float) else a


def half_away(value: float) -> float:
    """Round to a whole number, halves away from zero."""
    if not math.isfinite(value):
        return value
    whole = float(math.trunc(value))
    return whole + math.copysign(1.0, value) if abs(value - whole) >= 0.5 else math.copysign(whole, value)


def round_half(setting: Setting, a: Any) -> Any:
    """Round to `decimals` places; a value of 52 or more bits at that scale is already rounded."""
    places = setting.options.get("decimals", 0)
    assert isinstance(places, int)
    if isinstance(a, Decimal):
        return decimals.rounded(a, places, setting.result)
    if not isinstance(a, float):
        return a
    scale = 10.0 ** abs(places)
    scaled = a * scale if places >= 0 else a / scale
    if not math.isfinite(scaled) or (places >= 0 and abs(scaled) >= 1 << 52):
        return a
    return half_away(scaled) / scale if places >= 0 else half_away(scaled) * scale


# --- Conversions between types: which casts exist, and their results.

_NUMBERS = ("bool", "int", "uint", "float", "decimal")
_TICKS = ("timestamp", "date", "duration")
_ALLOWED = {
    **{kind: frozenset({*_NUMBERS, "string"}) for kind in ("bool", "float", "decimal")},
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
    kind = "decimal" if pa.types.is_decimal(source) else kind_of(source)  # of any size
    return kind_of(target) in _ALLOWED.get(kind, ())


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
        case ("string", "decimal"):
            return decimals.from_text(value, target)
        case (_, "decimal"):
            return decimals.from_number(value, target)
        case _ if pa.types.is_decimal(source):
            return _of_decimal(value, source, target)
        case ("timestamp", "string") if source.tz is not None:
            return _on_its_clock(value, source)
        case ("string", _) | (_, "string"):
            return _through_arrow(value, source, target)
        case ("timestamp" | "date" | "duration", "timestamp" | "date" | "duration"):
            return _rescaled(value, source, target)
        case _:
            return _number(value, target)


def _of_decimal(value: Decimal, source: pa.DataType, target: pa.DataType) -> Any:
    """Convert a decimal to text or to a number; to a whole one without its fraction."""
    match kind_of(target):
        case "string":
            return decimals.to_text(value)
        case "float":
            return _number(decimals.to_float(value, source), target)
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
