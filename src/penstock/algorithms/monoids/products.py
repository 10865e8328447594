"""Product monoids that are independent of factor order: an intermediate overflow does not overflow the result."""

from __future__ import annotations

from penstock.algorithms.monoids.base import Monoid, StateField, Values
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import (
    F64,
    I64,
    U8,
    U64,
    Bitcast,
    Overflows,
    Value,
    const,
    maximum,
    minimum,
    select,
)

NEGATIVE, ZERO, LARGE = 1, 2, 4

_BIAS = 1023
_MANTISSA = 52
_EXPONENT = 0x7FF << _MANTISSA
_ONE = _BIAS << _MANTISSA
_SMALLEST_NORMAL = 2.0**-1022


# --- integers -----------------------------------------------------------------------------------------------


def integer_product() -> Monoid:
    """An exact product. The state is the magnitude of the non-zero factors, and the flags ZERO, NEGATIVE and LARGE.

    Non-zero factors never reduce the magnitude, so a product too LARGE for 64 bits stays so unless a factor is ZERO.
    """
    return Monoid(
        "product",
        (StateField(U64, 1), StateField(U8, 0)),
        lambda k, state, values: _times(k, state, _factor(k, values[0])),
        _times,
    )


def _factor(k: KernelBuilder, value: Value) -> Values:
    if value.type.kind != "int":
        size = k.var("size", value.to(U64))
        negative: Value = const(0, U8)
    else:
        x = k.var("x", value.to(I64))
        size = k.var("size", Bitcast(select(x < 0, -x, x), U64))
        negative = (x < 0).to(U8)
    zero = size.eq(0)
    return select(zero, const(1, U64), size), negative | select(zero, const(ZERO, U8), const(0, U8))


def _times(k: KernelBuilder, a: Values, b: Values) -> Values:
    x, y = k.var("a", a[0]), k.var("b", b[0])
    large = select(Overflows("mul", x, y), const(LARGE, U8), const(0, U8))
    return x * y, ((a[1] ^ b[1]) & NEGATIVE) | ((a[1] | b[1]) & (ZERO | LARGE)) | large


def signed_product(state: Values) -> tuple[Value, Value]:
    """Return the product in 64 signed bits, and whether it overflows."""
    size, notes = state
    zero, negative = (notes & ZERO).ne(0), (notes & NEGATIVE).ne(0)
    bits = Bitcast(size, I64)
    most = (negative.to(U64)) + ((1 << 63) - 1)
    beyond = (notes & LARGE).ne(0) | (size > most)
    return select(zero, const(0, I64), select(negative, -bits, bits)), beyond & ~zero


def unsigned_product(state: Values) -> tuple[Value, Value]:
    """Return the product in 64 unsigned bits, and whether it overflows."""
    size, notes = state
    zero = (notes & ZERO).ne(0)
    return select(zero, const(0, U64), size), (notes & LARGE).ne(0) & ~zero


# --- floats -------------------------------------------------------------------------------------------------


def float_product() -> Monoid:
    """A product with a separate exponent: the mantissa is in [1, 2) or [-2, -1), or is 0, inf or NaN."""
    return Monoid(
        "float_product",
        (StateField(F64, 1.0), StateField(I64, 0)),
        lambda k, state, values: _scaled_times(k, state, _normal(k, values[0].to(F64))),
        _scaled_times,
    )


def _scaled_times(k: KernelBuilder, a: Values, b: Values) -> Values:
    mantissa, carry = _normal(k, a[0] * b[0])
    return mantissa, a[1] + b[1] + carry


def _normal(k: KernelBuilder, value: Value) -> Values:
    """Split a float into mantissa and exponent."""
    x = k.var("x", value)
    tiny = k.var("tiny", (x < _SMALLEST_NORMAL) & (x > -_SMALLEST_NORMAL))
    bits = k.var("bits", Bitcast(select(tiny, x * 2.0**64, x), I64))
    field = k.var("field", (bits & _EXPONENT) >> _MANTISSA)
    special = k.var("special", field.eq(0) | field.eq(0x7FF))
    mantissa = Bitcast((bits & ~_EXPONENT) | _ONE, F64)
    exponent = field - select(tiny, const(_BIAS + 64, I64), const(_BIAS, I64))
    return select(special, x, mantissa), select(special, const(0, I64), exponent)


def scaled_product(k: KernelBuilder, state: Values) -> Value:
    """Return the product: scale by half the exponent twice, so that only the second scaling rounds."""
    exponent = k.var("exponent", maximum(minimum(state[1], const(1200, I64)), const(-1200, I64)))
    half = k.var("half", exponent >> 1)
    return (state[0] * _power_of_two(half)) * _power_of_two(exponent - half)


def _power_of_two(exponent: Value) -> Value:
    return Bitcast((exponent + _BIAS) << _MANTISSA, F64)
