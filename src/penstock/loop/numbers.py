"""Numbers of machine types: values, memory, and arithmetic as kernels do it.

Integers are Python ints kept in range, bools are bools, and floats of both widths are Python floats. A
single-precision operation is the double one rounded once more; for + - * / and sqrt that gives the same bits
as the hardware, and for exp and similar functions it *is* the definition.
"""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import NamedTuple

import pyarrow as pa

from penstock.loop import nodes as loop
from penstock.loop.nodes import Type
from penstock.types.arrow import FEW_DIGITS, kind_of

Number = int | float | bool
INFINITY = math.inf
NAN = math.nan


def limits(type: Type) -> tuple[int, int]:
    """Return the smallest and largest integer of a type."""
    if type.kind == "int":
        return -(1 << (type.bits - 1)), (1 << (type.bits - 1)) - 1
    return 0, (1 << type.bits) - 1


def wrap(value: int, type: Type) -> int:
    """Keep the low bits and interpret them as the type."""
    low, _ = limits(type)
    return ((value - low) & ((1 << type.bits) - 1)) + low


def fits(value: int, type: Type) -> bool:
    low, high = limits(type)
    return low <= value <= high


def identity(op: str, type: Type) -> Number:
    """Return the identity of an operator: the first result of an exclusive scan."""
    if op in ("min", "max"):
        return _extreme(op, type)
    if op == "and":
        return wrap(-1, type) if type.kind != "bool" else True
    neutral = {"add": 0, "mul": 1, "or": 0, "xor": 0}[op]
    return float(neutral) if type.is_float else bool(neutral) if type.kind == "bool" else neutral


def _extreme(op: str, type: Type) -> Number:
    if type.is_float:
        return INFINITY if op == "min" else -INFINITY
    low, high = limits(type)
    found = high if op == "min" else low
    return bool(found) if type.kind == "bool" else found


def round_f32(value: float) -> float:
    """Round a double to single precision, ties to even; overflow becomes infinite."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(INFINITY, value)


def int_to_float(value: int, type: Type) -> float:
    """Round an integer once: a conversion through double would round a single twice."""
    if type.bits == 64:
        return float(value)
    excess = abs(value).bit_length() - 24
    if excess <= 0:
        return float(value)
    quotient, remainder = divmod(value, 1 << excess)
    half = 1 << (excess - 1)
    up = remainder > half or (remainder == half and quotient & 1)
    return float((quotient + up) << excess)


def float_to_int(value: float, type: Type) -> int:
    """Truncate towards zero; saturate at the type's limits; NaN gives 0."""
    if math.isnan(value):
        return 0
    low, high = limits(type)
    if math.isinf(value):
        return high if value > 0 else low
    return min(max(math.trunc(value), low), high)


def bits_of(value: Number, type: Type) -> int:
    """Return a number's bits as an unsigned integer."""
    if type.is_float:
        code = "<fI" if type.bits == 32 else "<dQ"
        return int(struct.unpack(code[0] + code[2], struct.pack(code[0] + code[1], value))[0])
    return int(value) & ((1 << type.bits) - 1)


def from_bits(bits: int, type: Type) -> Number:
    if not type.is_float:
        return wrap(bits, type)
    code = "<If" if type.bits == 32 else "<Qd"
    return float(struct.unpack(code[0] + code[2], struct.pack(code[0] + code[1], bits))[0])


def divide(a: float, b: float) -> float:
    if b != 0.0 or math.isnan(b):
        return a / b
    if a == 0.0 or math.isnan(a):
        return NAN
    return math.copysign(INFINITY, a) * math.copysign(1.0, b)


def remainder(a: float, b: float) -> float:
    """C's fmod: exact, with the sign of the dividend."""
    return NAN if math.isinf(a) or b == 0.0 else math.fmod(a, b)


def power(a: float, b: float) -> float:
    """C's pow, which is defined where Python raises."""
    odd = math.isfinite(b) and b % 2.0 == 1.0
    try:
        return math.pow(a, b)
    except OverflowError:
        return -INFINITY if a < 0.0 and odd else INFINITY
    except ValueError:
        if a == 0.0:
            return math.copysign(INFINITY, a) if odd else INFINITY
        return NAN


def to_integral(rounding: Callable[[float], int]) -> Callable[[float], float]:
    """Extend a rounding to integers: keep infinities, NaN and the sign of zero."""
    return lambda value: math.copysign(rounding(value), value) if math.isfinite(value) else value


def of_positive(logarithm: Callable[[float], float]) -> Callable[[float], float]:
    def answer(value: float) -> float:
        if value > 0.0 or math.isnan(value):
            return logarithm(value)
        return -INFINITY if value == 0.0 else NAN

    return answer


def of_finite(function: Callable[[float], float]) -> Callable[[float], float]:
    return lambda value: NAN if math.isinf(value) else function(value)


def exponential(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return INFINITY


FLOAT_FUNCTIONS: dict[str, Callable[[float], float]] = {
    "neg": lambda value: -value,
    "abs": abs,
    "sqrt": lambda value: math.sqrt(value) if not value < 0.0 else NAN,
    "exp": exponential,
    "log": of_positive(math.log),
    "log2": of_positive(math.log2),
    "log10": of_positive(math.log10),
    "sin": of_finite(math.sin),
    "cos": of_finite(math.cos),
    "tan": of_finite(math.tan),
    "floor": to_integral(math.floor),
    "ceil": to_integral(math.ceil),
    "rint": to_integral(round),
    "trunc": to_integral(math.trunc),
}


_NUMBERS: dict[pa.DataType, loop.Type] = {
    pa.bool_(): loop.BOOL,
    pa.int8(): loop.I8,
    pa.int16(): loop.I16,
    pa.int32(): loop.I32,
    pa.int64(): loop.I64,
    pa.uint8(): loop.U8,
    pa.uint16(): loop.U16,
    pa.uint32(): loop.U32,
    pa.uint64(): loop.U64,
    pa.float32(): loop.F32,
    pa.float64(): loop.F64,
    pa.date32(): loop.I32,
    pa.date64(): loop.I64,
}


def is_text(dtype: pa.DataType) -> bool:
    """Return whether values are strings, plain or dictionary-encoded."""
    if pa.types.is_dictionary(dtype):
        return is_text(dtype.value_type)
    texts = pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view
    return any(is_kind(dtype) for is_kind in texts)


def embeds(source: loop.Type, goal: loop.Type) -> bool:
    """Return whether an integer type holds every value of another."""
    if source.kind == goal.kind or source == loop.BOOL:
        return source.bits <= goal.bits
    return source.kind == "uint" and source.bits < goal.bits


def machine_type(dtype: pa.DataType) -> loop.Type | None:
    """Return the machine type of fixed-width values, or None for types kernels do not compute with.

    A decimal is its digits without the point.
    """
    if kind_of(dtype) == "decimal":
        return loop.I64 if dtype.precision <= FEW_DIGITS else loop.I128
    if pa.types.is_timestamp(dtype) or pa.types.is_duration(dtype):
        return loop.I64
    return _NUMBERS.get(dtype)


# --- Morsels: ranges of rows that threads claim independently.


@dataclass(frozen=True, slots=True)
class Morsels:
    """Rows from `begin` up to `end` in morsels of `size` rows; `taken[0]` counts claims, including failed ones.

    Native code increments the counter in place; `next` is for interpreted kernels.

    >>> shares = Morsels(10, 15, 3)
    >>> shares.many, shares.next(), shares.next(), shares.next(), shares.left
    (2, (10, 13), (13, 15), None, 0)
    """

    begin: int
    end: int
    size: int
    taken: array[int] = field(default_factory=lambda: array("q", [0]))
    _lock: Lock = field(default_factory=Lock)

    @property
    def many(self) -> int:
        return -(-(self.end - self.begin) // self.size)

    @property
    def left(self) -> int:
        """The number of unclaimed morsels."""
        return max(self.many - self.taken[0], 0)

    def next(self) -> tuple[int, int] | None:
        """Claim a morsel; None if none is left."""
        with self._lock:
            lo = self.begin + self.taken[0] * self.size
            self.taken[0] += 1
        return (lo, min(lo + self.size, self.end)) if lo < self.end else None


class Progress(NamedTuple):
    """The rows processed; if the kernel stopped within a morsel, the row where it stopped and the morsel's end."""

    rows: int
    stop: tuple[int, int] | None
