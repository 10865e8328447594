"""Exact decimals: the types of results, and the definitions in Python's `decimal`.

Precision and scale of results follow Spark. A value is never rounded in silence: only division, means and explicit
casts and roundings round, half away from zero, to the scale of their type; what does not fit 38 digits is an error.
"""

from __future__ import annotations

import decimal
import math
import re
from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, ROUND_HALF_UP, Decimal
from typing import Any, Protocol

import pyarrow as pa

from penstock.errors import ExpressionTypeError
from penstock.errors import OverflowError as PenstockOverflow
from penstock.types.arrow import DIGITS, kind_of

LEAST_SCALE = 6  # of quotients
MORE_DIGITS = 4  # of means, behind the point
TOTAL_DIGITS = 10  # of sums, before the point
_OF_INTEGERS = {8: 3, 16: 5, 32: 10, 64: 19}  # digits by width
_EXACT = decimal.Context(
    prec=400, rounding=ROUND_HALF_UP, Emin=-(10**6), Emax=10**6, traps=[decimal.InvalidOperation]
)
_TEXT = re.compile(r"\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,4})?\s*")


class Sized(Protocol):
    """An operand of a type rule: its type, and the digits of a whole literal."""

    @property
    def type(self) -> pa.DataType: ...

    @property
    def digits(self) -> int | None: ...


def is_exact(dtype: pa.DataType) -> bool:
    """Return whether values are decimals that can be computed with."""
    return kind_of(dtype) == "decimal"


def sized(precision: int, scale: int) -> pa.DataType | None:
    """Return the type of a result, of at most 38 digits; None if they do not hold the scale."""
    return pa.decimal128(min(precision, DIGITS), scale) if scale <= DIGITS else None


def size_of(operand: Sized) -> tuple[int, int] | None:
    """Return the digits before the point and behind it of a decimal or whole number; None for other types.

    >>> from penstock.expr.rules import Operand
    >>> size_of(Operand(pa.decimal128(12, 2))), size_of(Operand(pa.int32()))
    ((10, 2), (10, 0))
    """
    match kind_of(operand.type):
        case "decimal":
            return operand.type.precision - operand.type.scale, operand.type.scale
        case "int" | "uint":
            wide = kind_of(operand.type) == "uint" and operand.type.bit_width == 64
            return operand.digits or _OF_INTEGERS[operand.type.bit_width] + wide, 0
        case _:
            return None


def sizes_of(operands: Sequence[Sized]) -> list[tuple[int, int]] | None:
    """Return the sizes of operands of which one at least is a decimal, and the others are whole; else None."""
    if not any(is_exact(operand.type) for operand in operands):
        return None
    found = [size for operand in operands if (size := size_of(operand)) is not None]
    return found if len(found) == len(operands) else None


def common_type(operands: Sequence[Sized]) -> pa.DataType | None:
    """Return the type that holds the values of all operands, as far as 38 digits do."""
    sizes = sizes_of(operands)
    if sizes is None:
        return None
    scale = max(behind for _, behind in sizes)
    return sized(max(before for before, _ in sizes) + scale, scale)


def result_type(function: str, operands: Sequence[Sized]) -> pa.DataType | None:
    """Return the type of arithmetic on decimals; None if the operands are not decimals, or no type holds the scale.

    >>> from penstock.expr.rules import Operand
    >>> price, rate = Operand(pa.decimal128(10, 2)), Operand(pa.decimal128(5, 4))
    >>> result_type("mul", [price, rate]), result_type("div", [price, rate])
    (Decimal128Type(decimal128(16, 6)), Decimal128Type(decimal128(20, 8)))
    """
    sizes = sizes_of(operands)
    if sizes is None:
        return None
    (i, s), (j, t) = sizes
    most = max(s, t)
    match function:
        case "add" | "sub":
            return sized(max(i, j) + most + 1, most)
        case "mul":
            return sized(i + s + j + t + 1, s + t)
        case "div":
            return _quotient_type(i + t, max(LEAST_SCALE, s + j + t + 1))
        case "mod":
            return sized(j + most, most)
        case "remainder":
            return sized(max(min(i, j) + most, 1), most)
        case _:
            return sized(i + t + 1, 0)


def _quotient_type(before: int, scale: int) -> pa.DataType:
    """Give up digits behind the point where there are more than 38, but keep the first six."""
    if before + scale > DIGITS:
        scale = max(DIGITS - before, min(scale, LEAST_SCALE))
    return pa.decimal128(min(before + scale, DIGITS), scale)


def rounded_type(dtype: pa.DataType, places: int) -> pa.DataType:
    """Return the type of a decimal rounded to some places behind the point."""
    if places >= dtype.scale:
        return dtype
    places = max(places, 0)
    return pa.decimal128(min(dtype.precision - dtype.scale + places + 1, DIGITS), places)


def total_type(dtype: pa.DataType) -> pa.DataType:
    """Return the type of a sum."""
    return pa.decimal128(min(dtype.precision + TOTAL_DIGITS, DIGITS), dtype.scale)


def mean_type(dtype: pa.DataType) -> pa.DataType | None:
    """Return the type of a mean."""
    return sized(dtype.precision + MORE_DIGITS, dtype.scale + MORE_DIGITS)


# --- values -----------------------------------------------------------------------------------------------


def fit(value: Decimal, dtype: pa.DataType, what: str, rounding: str = ROUND_HALF_UP) -> Decimal:
    """Return a value at the scale of a type; raise an error if the type has too few digits.

    >>> fit(Decimal("2.345"), pa.decimal128(3, 2), "a price")
    Decimal('2.35')
    """
    digits = int(value.scaleb(dtype.scale, _EXACT).to_integral_value(rounding, _EXACT))
    if abs(digits) < 10**dtype.precision:
        return of_digits(digits, dtype)
    raise PenstockOverflow(
        f"{what} does not fit {dtype}; cast the operands to fewer digits behind the point, "
        "or to float64 if an approximate result will do"
    )


def of_digits(digits: int, dtype: pa.DataType) -> Decimal:
    """Return the decimal whose digits, without the point, are a whole number."""
    return Decimal(digits).scaleb(-dtype.scale, _EXACT)


def digits_of(value: Decimal, dtype: pa.DataType) -> int:
    """Return the digits of a value of a type, without the point: what kernels compute with.

    >>> digits_of(Decimal("1.5"), pa.decimal128(5, 2))
    150
    """
    return int(value.scaleb(dtype.scale, _EXACT))


def to_float(value: Decimal, dtype: pa.DataType) -> float:
    """Return the nearest double, or for more than 15 digits one beside it: the digits divided by a power of ten."""
    return float(digits_of(value, dtype)) / float(10**dtype.scale)


def exact(value: Any) -> Decimal:
    """Return a whole number as a decimal."""
    return value if isinstance(value, Decimal) else Decimal(int(value))


def computed(function: str, a: Any, b: Any, dtype: pa.DataType) -> Decimal | None:
    """Return the result of arithmetic; a division by zero is null."""
    x, y = exact(a), exact(b)
    match function:
        case "add":
            return fit(_EXACT.add(x, y), dtype, "the sum of two values")
        case "sub":
            return fit(_EXACT.subtract(x, y), dtype, "the difference of two values")
        case "mul":
            return fit(_EXACT.multiply(x, y), dtype, "the product of two values")
    if not y:
        return None
    if function == "div":
        return fit(_ratio(x, y, dtype), dtype, "the quotient of two values")
    whole = _whole_ratio(x, y, ROUND_DOWN if function == "remainder" else ROUND_FLOOR)
    if function == "floordiv":
        return fit(whole, dtype, "the quotient of two values")
    rest = _EXACT.subtract(x, _EXACT.multiply(whole, y))
    return fit(rest, dtype, "the remainder of two values")


def _ratio(x: Decimal, y: Decimal, dtype: pa.DataType) -> Decimal:
    """Divide with one digit more than is rounded to; the last one says whether there is a rest."""
    top, below = x.as_integer_ratio(), y.as_integer_ratio()
    numerator, denominator = top[0] * below[1] * 10 ** (dtype.scale + 1), top[1] * below[0]
    digits, rest = divmod(abs(numerator), abs(denominator))
    sticky = Decimal(digits * 10 + (rest != 0)).scaleb(-dtype.scale - 2, _EXACT)
    return sticky if (numerator < 0) == (denominator < 0) else sticky.copy_negate()


def _whole_ratio(x: Decimal, y: Decimal, rounding: str) -> Decimal:
    top, below = x.as_integer_ratio(), y.as_integer_ratio()
    numerator, denominator = top[0] * below[1], top[1] * below[0]
    if rounding == ROUND_FLOOR:
        return Decimal(numerator // denominator)
    whole = abs(numerator) // abs(denominator)
    return Decimal(whole if (numerator < 0) == (denominator < 0) else -whole)


def rounded(value: Decimal, places: int, dtype: pa.DataType) -> Decimal:
    """Round to places behind the point, or before it if negative: halves away from zero."""
    moved = value.scaleb(places, _EXACT).to_integral_value(ROUND_HALF_UP, _EXACT)
    return fit(moved.scaleb(-places, _EXACT), dtype, "a rounded value")


def rounded_down(value: Decimal, dtype: pa.DataType) -> Decimal:
    return fit(value, dtype, "a rounded value", ROUND_FLOOR)


def rounded_up(value: Decimal, dtype: pa.DataType) -> Decimal:
    return fit(value, dtype, "a rounded value", ROUND_CEILING)


def total(values: Sequence[Decimal], dtype: pa.DataType) -> Decimal:
    """Add values; only the result must fit."""
    return fit(
        of_digits(sum(digits_of(value, dtype) for value in values), dtype), dtype, "the sum of a window"
    )


def mean(values: Sequence[Decimal], dtype: pa.DataType) -> Decimal:
    """Divide the exact sum once."""
    whole = sum(digits_of(value, dtype) for value in values)
    digits = (2 * abs(whole) + len(values)) // (2 * len(values))
    return fit(of_digits(digits if whole >= 0 else -digits, dtype), dtype, "the mean of a window")


# --- conversions ------------------------------------------------------------------------------------------


def from_number(value: Any, dtype: pa.DataType) -> Decimal:
    """Convert a number; a float by the shortest digits that stand for it, as Spark does."""
    if isinstance(value, float):
        if not math.isfinite(value):
            raise PenstockOverflow(
                f"a value to cast is NaN or infinite, which {dtype} cannot hold; filter it out first"
            )
        return fit(Decimal(repr(value)), dtype, "a value to cast")
    return fit(exact(value), dtype, "a value to cast")


def from_text(text: str, dtype: pa.DataType) -> Decimal:
    """Read a number written with digits, point and exponent; digits beyond the scale are rounded."""
    if not _TEXT.fullmatch(text):
        raise ExpressionTypeError(
            f"a value of type string cannot be read as {dtype}; filter such rows out before the cast"
        )
    return fit(_EXACT.create_decimal(text.strip()), dtype, "a value to cast")


def to_text(value: Decimal) -> str:
    """Write all digits of the scale, without an exponent.

    >>> to_text(Decimal("1E-8"))
    '0.00000001'
    """
    return format(value, "f")


def literal_type(value: Decimal) -> pa.DataType | None:
    """Return the narrowest type of a literal; None for NaN, infinities and more than 38 digits.

    >>> literal_type(Decimal("-1.20")), literal_type(Decimal("1E+3"))
    (Decimal128Type(decimal128(3, 2)), Decimal128Type(decimal128(4, 0)))
    """
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        return None
    scale = max(-exponent, 0)
    precision = max(len(digits) + max(exponent, 0), scale, 1)
    return pa.decimal128(precision, scale) if precision <= DIGITS else None
