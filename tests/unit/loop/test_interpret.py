"""The interpreter defines the loop IR, so its answers are written out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from penstock.loop.build import KernelBuilder
from penstock.loop.interpret import interpret
from penstock.loop.nodes import (
    BOOL,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    I128,
    U8,
    U32,
    U64,
    Binary,
    Cast,
    Overflows,
    Peek,
    Type,
    Unary,
    Value,
    const,
)
from penstock.loop.numbers import Number, bits_of, int_to_float, round_f32

INF, NAN = math.inf, math.nan
LOW, HIGH = -(2**63), 2**63 - 1


def evaluate(value: Value) -> Number:
    """Compute one value through a kernel that stores it."""
    k = KernelBuilder("one")
    out = k.buffer("out", value.type)
    k.store(out, 0, value)
    kind = "u1" if value.type.kind == "bool" else f"{value.type.kind[0]}{value.type.bits // 8}"
    data = np.zeros(2, np.int64) if value.type.bits == 128 else np.zeros(1, kind)
    interpret(k.build(), {"out": data})
    return (int(data[1]) << 64) + int(data[0]) % 2**64 if value.type.bits == 128 else data[0].item()


BINARY: list[tuple[str, Type, Number, Number, Number]] = [
    ("add", I64, HIGH, 1, LOW),
    ("add", U8, 255, 1, 0),
    ("sub", U64, 0, 1, 2**64 - 1),
    ("mul", I8, 64, 2, -128),
    ("mul", I128, 2**100, 2**20, 2**120),
    ("div", I64, -7, 2, -3),
    ("div", I64, LOW, -1, LOW),
    ("div", I64, 5, 0, 0),
    ("rem", I64, -7, 2, -1),
    ("rem", I64, 7, -2, 1),
    ("rem", I64, LOW, -1, 0),
    ("rem", U32, 5, 0, 0),
    ("shl", I32, 1, 31, -(2**31)),
    ("shl", I32, 1, 32, 1),
    ("shr", I32, -8, 1, -4),
    ("shr", U32, 2**31, 31, 1),
    ("shr", I32, 8, -31, 4),
    ("and", I16, -1, 255, 255),
    ("xor", U8, 255, 15, 240),
    ("min", I64, -1, 1, -1),
    ("max", U64, 2**63, 1, 2**63),
    ("lt", U64, 2**63, 1, False),
    ("lt", I64, LOW, 1, True),
    ("or", BOOL, False, True, True),
    ("lt", BOOL, False, True, True),
    ("add", F32, 16_777_216.0, 1.0, 16_777_216.0),
    ("mul", F32, 1e30, 1e30, INF),
    ("div", F64, 1.0, 0.0, INF),
    ("div", F64, 1.0, -0.0, -INF),
    ("div", F64, 0.0, 0.0, NAN),
    ("rem", F64, -7.5, 2.0, -1.5),
    ("rem", F64, 1.0, 0.0, NAN),
    ("rem", F64, INF, 2.0, NAN),
    ("rem", F64, 2.0, INF, 2.0),
    ("pow", F64, 0.0, -1.0, INF),
    ("pow", F64, -0.0, -1.0, -INF),
    ("pow", F64, -2.0, 0.5, NAN),
    ("pow", F64, -10.0, 309.0, -INF),
    ("pow", F64, NAN, 0.0, 1.0),
    ("min", F64, NAN, 1.0, 1.0),
    ("min", F64, 1.0, NAN, NAN),
    ("min", F64, 0.0, -0.0, -0.0),
    ("max", F64, -0.0, 0.0, 0.0),
    ("eq", F64, NAN, NAN, False),
    ("ne", F64, NAN, NAN, True),
    ("eq", F64, 0.0, -0.0, True),
]


@pytest.mark.parametrize(("op", "type", "a", "b", "expected"), BINARY)
def test_binary_operators(op: str, type: Type, a: Number, b: Number, expected: Number) -> None:
    assert_same(evaluate(Binary(op, const(a, type), const(b, type))), expected)


UNARY: list[tuple[str, Type, Number, Number]] = [
    ("neg", I64, LOW, LOW),
    ("neg", U8, 1, 255),
    ("neg", F64, 0.0, -0.0),
    ("abs", I8, -128, -128),
    ("abs", F64, -0.0, 0.0),
    ("not", I64, 0, -1),
    ("not", U8, 1, 254),
    ("not", BOOL, True, False),
    ("popcount", I64, -1, 64),
    ("popcount", I128, -1, 128),
    ("ctz", I32, 8, 3),
    ("ctz", I32, 0, 32),
    ("ctz", I64, LOW, 63),
    ("clz", I32, 8, 28),
    ("clz", I32, 0, 32),
    ("clz", I64, LOW, 0),
    ("clz", I64, -1, 0),
    ("sqrt", F64, -1.0, NAN),
    ("sqrt", F64, -0.0, -0.0),
    ("exp", F64, 1000.0, INF),
    ("exp", F64, -INF, 0.0),
    ("log", F64, 0.0, -INF),
    ("log", F64, -1.0, NAN),
    ("log", F64, INF, INF),
    ("log2", F64, 8.0, 3.0),
    ("log10", F64, 1000.0, 3.0),
    ("sin", F64, INF, NAN),
    ("floor", F64, -0.5, -1.0),
    ("ceil", F64, -0.5, -0.0),
    ("trunc", F64, -1.5, -1.0),
    ("rint", F64, 2.5, 2.0),
    ("rint", F64, -0.4, -0.0),
    ("floor", F64, INF, INF),
    ("rint", F64, NAN, NAN),
]


@pytest.mark.parametrize(("op", "type", "a", "expected"), UNARY)
def test_unary_operators(op: str, type: Type, a: Number, expected: Number) -> None:
    assert_same(evaluate(Unary(op, const(a, type))), expected)


CASTS: list[tuple[Type, Number, Type, Number]] = [
    (I64, 300, U8, 44),
    (I64, -1, U64, 2**64 - 1),
    (U64, 2**64 - 1, I64, -1),
    (I8, -1, I128, -1),
    (U8, 255, I8, -1),
    (F64, 1e300, I64, HIGH),
    (F64, -1e300, I64, LOW),
    (F64, -1.0, U64, 0),
    (F64, 2.0**64, U64, 2**64 - 1),
    (F64, NAN, I64, 0),
    (F64, -2.9, I64, -2),
    (F64, 300.0, I8, 127),
    (F64, 1e300, I128, 2**127 - 1),
    (F64, 0.1, F32, 0.10000000149011612),
    (F64, 1e300, F32, INF),
    (I64, 2**53 + 1, F64, 2.0**53),
    (I128, -(2**127), F64, -(2.0**127)),
    (I64, 2**40 + 2**16 + 1, F32, 2.0**40 + 2.0**17),  # through double it would be 2**40
    (BOOL, True, F64, 1.0),
    (BOOL, True, I8, 1),
    (I64, 256, BOOL, True),
    (F64, -0.0, BOOL, False),
    (F64, NAN, BOOL, True),
]


@pytest.mark.parametrize(("source", "value", "target", "expected"), CASTS)
def test_casts(source: Type, value: Number, target: Type, expected: Number) -> None:
    assert_same(evaluate(Cast(const(value, source), target)), expected)


OVERFLOWS = [
    ("add", I64, HIGH, 0, False),
    ("add", I64, HIGH, 1, True),
    ("sub", I64, LOW, 1, True),
    ("sub", U64, 1, 2, True),
    ("mul", I64, 2**32, 2**31, True),
    ("mul", I64, 2**32, 2**31 - 1, False),
    ("mul", I64, LOW, -1, True),
    ("mul", I128, 2**64, 2**63, True),
]


@pytest.mark.parametrize(("op", "type", "a", "b", "expected"), OVERFLOWS)
def test_overflow(op: str, type: Type, a: int, b: int, expected: bool) -> None:
    assert bool(evaluate(Overflows(op, const(a, type), const(b, type)))) is expected


def assert_same(found: Number, expected: Number) -> None:
    """Compare exactly, telling -0.0 from 0.0 but not NaN from NaN."""
    if isinstance(expected, float):
        assert (math.isnan(found) and math.isnan(expected)) or bits_of(found, F64) == bits_of(expected, F64)
    else:
        assert found == expected


def test_an_index_outside_its_buffer_is_an_error() -> None:
    k = KernelBuilder("outside")
    x, at = k.buffer("x", I64), k.scalar("at")
    k.ret(x[at])
    kernel = k.build()
    assert interpret(kernel, {"x": np.array([5, 6]), "at": 1}) == 6
    for at_index in (-1, 2):
        with pytest.raises(IndexError, match="outside"):
            interpret(kernel, {"x": np.array([5, 6]), "at": at_index})


def test_a_peek_past_the_end_is_an_error() -> None:
    k = KernelBuilder("peeking")
    data, at = k.buffer("data", U8), k.scalar("at")
    k.ret(Peek(data, at, U32).to(I64))
    kernel, data_array = k.build(), np.array([1, 2, 3, 4, 5], np.uint8)
    assert interpret(kernel, {"data": data_array, "at": 1}) == 0x05040302
    with pytest.raises(IndexError, match="outside"):
        interpret(kernel, {"data": data_array, "at": 2})


def test_scratch_does_not_start_as_zeros() -> None:
    k = KernelBuilder("scratch")
    k.ret(k.local("scratch", I64, 4)[0])
    assert interpret(k.build(), {}) != 0


def test_single_precision_is_rounded_on_entry() -> None:
    k = KernelBuilder("entry")
    k.store(k.buffer("out", F64), 0, k.scalar("x", F32).to(F64))
    out = np.zeros(1)
    interpret(k.build(), {"out": out, "x": 0.1})
    assert out[0] == round_f32(0.1) != 0.1


@pytest.mark.parametrize(
    "value", [0, 1, -1, 2**24 - 1, -(2**24) - 1, 2**24 + 1, 2**25 + 2, 2**25 + 6, 2**30 - 1]
)
def test_integers_round_to_single_precision_as_numpy_rounds_exact_doubles(value: int) -> None:
    assert int_to_float(value, F32) == float(np.float32(float(value)))
