"""Central moments, and products that are independent of factor order.

Rows are added one at a time (Welford, extended to higher orders by Pébay), and states are merged pairwise. Both use
deviations from the mean, which stay small if values are large and close together. This needs a mean of more precision
than one float: it is held as two, `head + tail`. A value that is not finite makes the mean and all sums NaN
permanently.
"""

from __future__ import annotations

from penstock.algorithms.monoids.base import Monoid, StateField, Values, either, named, two_sum
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import (
    F64,
    I64,
    U8,
    U64,
    Bitcast,
    Overflows,
    Value,
    Var,
    const,
    maximum,
    minimum,
    select,
)

MEAN = (StateField(F64, 0.0), StateField(F64, 0.0))


def moments(order: int) -> Monoid:
    """Moments of one argument up to the 2nd, 3rd or 4th: count, head and tail of the mean, sums of powers."""
    return Monoid(
        f"moments{order}",
        (StateField(I64, 0), *MEAN, *(StateField(F64, 0.0) for _ in range(order - 1))),
        _step,
        _merge,
    )


def comoments() -> Monoid:
    """Moments of two arguments: count, both means, and the sums of the products xx, yy and xy."""
    return Monoid(
        "comoments",
        (StateField(I64, 0), *MEAN, *MEAN, StateField(F64, 0.0), StateField(F64, 0.0), StateField(F64, 0.0)),
        _step_pair,
        _merge_pairs,
    )


# --- adding a row -------------------------------------------------------------------------------------------


def _step(k: KernelBuilder, state: Values, values: Values) -> Values:
    count, head, tail, *powers = named(k, "s", state)
    far, share, mean = _moved(k, count, (head, tail), values[0])
    near = k.var("near", far - share)  # the deviation from the new mean
    square = k.var("square", far * near)
    new = [powers[0] + square]
    if len(powers) > 1:
        new.append(powers[1] + square * (near - share) - powers[0] * share * 3)
    if len(powers) > 2:
        spread = near * near - near * share + share * share
        new.append(powers[2] + square * spread + powers[0] * share * share * 6 - powers[1] * share * 4)
    return count + 1, *mean, *new


def _step_pair(k: KernelBuilder, state: Values, values: Values) -> Values:
    count, x_head, x_tail, y_head, y_tail, xx, yy, xy = named(k, "s", state)
    x_far, x_share, x_mean = _moved(k, count, (x_head, x_tail), values[0])
    y_far, y_share, y_mean = _moved(k, count, (y_head, y_tail), values[1])
    x_near, y_near = k.var("near", x_far - x_share), k.var("near", y_far - y_share)
    # If `x_near` is NaN, `x_far` may be infinite; the added term makes the product NaN as well.
    both = xy + x_far * y_near + (x_near - x_near)
    sums = xx + x_far * x_near, yy + y_far * y_near, both
    return count + 1, *x_mean, *y_mean, *sums


def _moved(k: KernelBuilder, count: Value, mean: Values, value: Value) -> tuple[Var, Var, Values]:
    """Add a value to a mean; return its deviation from the old mean, the mean's displacement, and the new mean.

    For the first value the old mean is the value itself, so the deviation is 0 and its powers cannot overflow.
    """
    old = k.var("mean", select(count.eq(0), value.to(F64), mean[0]))
    far = k.var("far", distance(k, value, old) - mean[1])
    share = k.var("share", far.div((count + 1).to(F64)))
    return far, share, two_sum(k, old, mean[1] + share)


def distance(k: KernelBuilder, value: Value, mean: Value) -> Value:
    """Subtract a float from a number, exactly to the last bit if they are close: 64-bit integers are split in two."""
    if value.type not in (I64, U64):
        return value.to(F64) - mean
    whole = k.var("whole", value)
    low = k.var("low", whole.rem(const(1 << 32, whole.type)))
    return ((whole - low).to(F64) - mean) + low.to(F64)


# --- merging states -----------------------------------------------------------------------------------------


def _merge(k: KernelBuilder, a: Values, b: Values) -> Values:
    a, b = named(k, "a", a), named(k, "b", b)
    p, q, weight = _shares(k, a[0], b[0])
    far, mean = _midway(k, a[1:3], b[1:3], q)
    square = k.var("square", far * far)
    (a2, *a_more), (b2, *b_more) = a[3:], b[3:]
    new = [a2 + b2 + square * weight]
    if a_more:
        new.append(a_more[0] + b_more[0] + square * far * weight * (p - q) + far * (p * b2 - q * a2) * 3)
    if len(a_more) > 1:
        spread = square * square * weight * (p * p - p * q + q * q)
        mixed = square * (p * p * b2 + q * q * a2) * 6 + far * (p * b_more[0] - q * a_more[0]) * 4
        new.append(a_more[1] + b_more[1] + spread + mixed)
    return _unless_empty(a, b, (a[0] + b[0], *mean, *new))


def _merge_pairs(k: KernelBuilder, a: Values, b: Values) -> Values:
    a, b = named(k, "a", a), named(k, "b", b)
    _, q, weight = _shares(k, a[0], b[0])
    x_far, x_mean = _midway(k, a[1:3], b[1:3], q)
    y_far, y_mean = _midway(k, a[3:5], b[3:5], q)
    products = x_far * x_far, y_far * y_far, x_far * y_far
    sums = [x + y + product * weight for x, y, product in zip(a[5:], b[5:], products, strict=True)]
    return _unless_empty(a, b, (a[0] + b[0], *x_mean, *y_mean, *sums))


def _shares(k: KernelBuilder, a: Value, b: Value) -> tuple[Var, Var, Var]:
    """Return each side's fraction of all values, and the weight of the distance between the means."""
    n = k.var("n", (a + b).to(F64))
    p, q = k.var("p", a.to(F64).div(n)), k.var("q", b.to(F64).div(n))
    return p, q, k.var("weight", a.to(F64) * q)


def _midway(k: KernelBuilder, a: Values, b: Values, q: Value) -> tuple[Var, Values]:
    """Return the distance between two means, and the combined mean."""
    far = k.var("far", (b[0] - a[0]) + (b[1] - a[1]))
    return far, two_sum(k, a[0], a[1] + far * q)


def _unless_empty(a: Values, b: Values, both: Values) -> Values:
    """Return the other state unchanged to the last bit if one is empty, since an empty state has no mean."""
    return either(a[0].eq(0), b, either(b[0].eq(0), a, both))


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
