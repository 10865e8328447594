"""Printed kernels are readable, and equal only if the kernels are."""

from __future__ import annotations

import struct

import pytest

from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import (
    BOOL,
    F32,
    F64,
    I32,
    I64,
    I128,
    U8,
    U64,
    Bitcast,
    Buffer,
    Const,
    Declare,
    GroupReduce,
    GroupScan,
    Kernel,
    Load,
    Overflows,
    Peek,
    Return,
    Space,
    Unary,
    Value,
    Var,
    binary,
    const,
    maximum,
    select,
)
from penstock.loop.show import fingerprint, show


def everything() -> Kernel:
    k = KernelBuilder("everything")
    x, mask, table = k.buffer("x", F64), k.buffer("mask", BOOL), k.buffer("table", I64, Space.CONSTANT)
    data, n, low = k.buffer("data", U8), k.scalar("n"), k.scalar("low", F32)
    lanes = k.local("lanes", I64, 8)
    t = k.var("t", 0)
    with k.for_(0, n) as i:
        with k.if_(mask[i] & (x[i] > low.to(F64))):
            k.set(t, t + table[i & 7])
        with k.else_(), k.while_(t > 0):
            k.set(t, t - 1)
    with k.for_(0, 8, parallel=True) as i:
        k.store(lanes, i, Unary("neg", maximum(t, i)))
        k.atomic("add", lanes, i, 1)
        old = k.atomic("max", lanes, i, 2, old="old")
        assert old is not None
        k.store(lanes, i, select(Overflows("mul", old, t), 0, Bitcast(x[i], I64)))
    k.store(lanes, 0, GroupReduce("add", t) + GroupScan("min", t) + Peek(data, t, U64).to(I64))
    k.store(lanes, 1, Load(lanes, t, fresh=True))
    with k.if_(const(True, BOOL)):
        pass
    with k.for_(0, t, "j", scalar=True):
        k.set(t, 0)
    k.ret(t)
    return k.build()


EVERYTHING = """\
kernel everything(x: global f64[], mask: global bool[], table: constant i64[], data: global u8[], n: i64, low: f32)
  local lanes: local i64[8]
  var t: i64 = 0
  for i in 0 .. n:
    if (mask[i] & (x[i] > to_f64(low))):
      t = (t + table[(i & 7)])
    else:
      while (t > 0):
        t = (t - 1)
  parallel for i.1 in 0 .. 8:
    lanes[i.1] = neg(max(t, i.1))
    atomic add lanes[i.1], 1
    var old: i64 = atomic max lanes[i.1], 2
    lanes[i.1] = select(overflows_mul(old, t), 0, bits_as_i64(x[i.1]))
  lanes[0] = ((group_reduce_add(t) + group_scan_min(t)) + to_i64(peek_u64(data, t)))
  lanes[1] = fresh lanes[t]
  if true:
    pass
  scalar for j in 0 .. t:
    t = 0
  return t
"""


def test_every_construct_has_its_line() -> None:
    assert show(everything()) == EVERYTHING


NEGATIVE_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_0001))[0]
CONSTANTS = [
    (const(7, I64), "7"),
    (const(7, I32), "7:i32"),
    (const(-1, I128), "-1:i128"),
    (const(2**64 - 1, U64), "18446744073709551615:u64"),
    (const(7, F64), "7.0"),
    (const(7, F32), "7.0:f32"),
    (const(0.1, F64), "0.1"),
    (const(0.0, F64), "0.0"),
    (const(-0.0, F64), "-0.0"),
    (const(float("inf"), F64), "inf"),
    (const(float("nan"), F64), "nan_7ff8000000000000"),
    (const(NEGATIVE_NAN, F64), "nan_fff8000000000001"),
    (const(True, BOOL), "true"),
    (Const(1, F64), "1.0"),
]


@pytest.mark.parametrize(("constant", "text"), CONSTANTS)
def test_constants_show_their_type_and_every_bit(constant: Const, text: str) -> None:
    kernel = Kernel("c", (), (), (Declare(Var("v", constant.type), constant),))
    assert show(kernel).endswith(f" = {text}\n")


def returning(value: Value) -> Kernel:
    return Kernel("k", (), (), (Return(value),))


def test_a_name_cannot_pose_as_something_else() -> None:
    texts = [show(returning(Var(name, I64))) for name in ("true", "1", "a b", "a\nreturn 2", "nan", "é", "")]
    assert len(set(texts)) == len(texts)
    assert all(text.count("\n") == 2 and text.isascii() for text in texts)
    assert show(returning(Var("true", I64))) != show(returning(const(True, BOOL)))


def test_long_values_are_abbreviated_in_front() -> None:
    value: Value = Var("x", I64)
    for _ in range(40):
        value = binary("add", value, Var("x", I64))
    head, *lets, last = show(returning(value)).splitlines()
    assert max(map(len, [head, *lets, last])) < 130
    assert [let.split(" = ")[0] for let in lets] == ["  let $1", "  let $2"]
    assert last == "  return (((((($2 + x) + x) + x) + x) + x) + x)"


def test_values_shared_many_times_print_in_linear_space() -> None:
    value: Value = Var("x", I64)
    for _ in range(200):
        value = binary("mul", value, value)
    assert len(show(returning(value))) < 20_000


def test_sharing_does_not_change_the_fingerprint() -> None:
    def square(x: Value, y: Value) -> Kernel:
        return returning(binary("mul", binary("add", x, x), binary("add", y, y)))

    shared = Var("x", I64)
    assert fingerprint(square(shared, shared)) == fingerprint(square(Var("x", I64), Var("x", I64)))


DIFFERENT = [
    Kernel("k", (Buffer("x", I64),), (), ()),
    Kernel("k", (Buffer("x", I32),), (), ()),
    Kernel("k", (Buffer("x", I64, Space.CONSTANT),), (), ()),
    Kernel("k", (Var("x", I64),), (), ()),
    Kernel("k", (), (Buffer("x", I64, Space.LOCAL, 4),), ()),
    Kernel("k", (), (Buffer("x", I64, Space.LOCAL, 5),), ()),
    Kernel("k", (), (), ()),
    Kernel("l", (), (), ()),
]


def test_fingerprints_tell_kernels_apart() -> None:
    assert len({fingerprint(kernel) for kernel in DIFFERENT}) == len(DIFFERENT)
