"""Every operator on every type: compiled code agrees with the interpreter, bit by bit."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.codegen.native import NativeKernel, compile_kernel
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import (
    BOOL,
    COMPARISON,
    F32,
    F64,
    I64,
    I128,
    MACHINE_TYPES,
    U8,
    Binary,
    Bitcast,
    Buffer,
    Cast,
    GroupReduce,
    GroupScan,
    Kernel,
    Load,
    Overflows,
    Peek,
    Select,
    Type,
    Unary,
    Value,
    const,
)
from penstock.loop.numbers import limits
from penstock.loop.verify import BINARY_OPS, GROUP_OPS, OVERFLOW_OPS, UNARY_OPS
from tests.unit.codegen.compare import agree, array, both, zeros
from tests.unit.codegen.numbers_of import numbers

ALL = sorted(MACHINE_TYPES.values(), key=str)
WHOLE = [type for type in ALL if type.kind in ("int", "uint")]
Results = dict[str, Value]
FEW = settings(max_examples=15, deadline=None)


def table(types: list[Type], results: Callable[..., Results]) -> Kernel:
    """Build a kernel that stores each result, row by row, in a buffer of its own."""
    k = KernelBuilder("table")
    inputs = [k.buffer(f"in{place}", type) for place, type in enumerate(types)]
    n = k.scalar("n")
    outputs = {name: k.buffer(name, value.type) for name, value in _rows(inputs, const(0, I64), results)}
    with k.for_(0, n) as i:
        for name, value in _rows(inputs, i, results):
            k.store(outputs[name], i, value)
    return k.build()


def _rows(inputs: list[Buffer], index: Value, results: Callable[..., Results]) -> list[tuple[str, Value]]:
    return list(results(*(input_[index] for input_ in inputs)).items())


@cache
def compiled(kernel: Kernel) -> tuple[NativeKernel, ...]:
    return both(kernel)


def check(kernel: Kernel, *columns: list[object]) -> None:
    values: dict[str, object] = {"n": len(columns[0])}
    for parameter in kernel.params:
        if isinstance(parameter, Buffer):
            values[parameter.name] = zeros(parameter.type, len(columns[0]))
    inputs = [statement for statement in kernel.params if isinstance(statement, Buffer)][: len(columns)]
    for parameter, column in zip(inputs, columns, strict=True):
        values[parameter.name] = array(parameter.type, column)
    agree(kernel, values, compiled(kernel))


def rows(*types: Type) -> st.SearchStrategy[list[tuple[object, ...]]]:
    return st.lists(st.tuples(*map(numbers, types)), min_size=1, max_size=8)


@cache
def binary_kernel(type: Type) -> Kernel:
    return table([type, type], lambda a, b: {op: Binary(op, a, b) for op in sorted(BINARY_OPS[type.kind])})


@pytest.mark.parametrize("type", ALL, ids=str)
@FEW
@given(data=st.data())
def test_binary_operators_agree(type: Type, data: st.DataObject) -> None:
    check(binary_kernel(type), *map(list, zip(*data.draw(rows(type, type)), strict=True)))


@cache
def unary_kernel(type: Type) -> Kernel:
    return table([type], lambda a: {op: Unary(op, a) for op in sorted(UNARY_OPS[type.kind])})


@pytest.mark.parametrize("type", ALL, ids=str)
@FEW
@given(data=st.data())
def test_unary_operators_agree(type: Type, data: st.DataObject) -> None:
    check(unary_kernel(type), data.draw(st.lists(numbers(type), min_size=1, max_size=8)))


@cache
def overflow_kernel(type: Type) -> Kernel:
    return table([type, type], lambda a, b: {op: Overflows(op, a, b) for op in sorted(OVERFLOW_OPS)})


@pytest.mark.parametrize("type", WHOLE, ids=str)
@FEW
@given(data=st.data())
def test_overflow_is_seen_exactly_when_it_happens(type: Type, data: st.DataObject) -> None:
    check(overflow_kernel(type), *map(list, zip(*data.draw(rows(type, type)), strict=True)))


@cache
def cast_kernel(type: Type) -> Kernel:
    return table([type], lambda a: {f"to_{target}": Cast(a, target) for target in ALL})


@pytest.mark.parametrize("type", ALL, ids=str)
@FEW
@given(data=st.data())
def test_casts_from_each_type_to_each_agree(type: Type, data: st.DataObject) -> None:
    check(cast_kernel(type), data.draw(st.lists(numbers(type), min_size=1, max_size=8)))


def divisors(type: Type) -> list[int]:
    low, high = limits(type)
    return [value for value in (0, 1, -1, 7, -7, 16, low, high, high - 1) if low <= value <= high]


@cache
def constant_division_kernel(type: Type) -> Kernel:
    def results(a: Value) -> Results:
        pairs = [(op, divisor) for op in ("div", "rem") for divisor in divisors(type)]
        return {f"{op}{place}": Binary(op, a, const(value, type)) for place, (op, value) in enumerate(pairs)}

    return table([type], results)


@pytest.mark.parametrize("type", WHOLE, ids=str)
@FEW
@given(data=st.data())
def test_division_by_constants_agrees_and_never_traps(type: Type, data: st.DataObject) -> None:
    check(constant_division_kernel(type), data.draw(st.lists(numbers(type), min_size=1, max_size=8)))


POWERS = [0.0, -0.0, 0.5, 1.0, 2.0, 3.0, -1.0, -0.5, float("inf"), float("nan")]


@cache
def constant_power_kernel(type: Type) -> Kernel:
    def results(a: Value) -> Results:
        up = {f"up{place}": Binary("pow", a, const(value, type)) for place, value in enumerate(POWERS)}
        of = {f"of{place}": Binary("pow", const(value, type), a) for place, value in enumerate(POWERS)}
        return up | of

    return table([type], results)


@pytest.mark.parametrize("type", [F32, F64], ids=str)
@FEW
@given(data=st.data())
def test_powers_with_constants_agree_to_the_last_bit(type: Type, data: st.DataObject) -> None:
    check(constant_power_kernel(type), data.draw(st.lists(numbers(type), min_size=1, max_size=8)))


@cache
def bitcast_kernel(type: Type) -> Kernel:
    same_width = [kind for kind in ALL if kind.bits == type.bits]
    return table([type], lambda a: {f"as_{target}": Bitcast(a, target) for target in same_width})


@pytest.mark.parametrize("type", ALL, ids=str)
@FEW
@given(data=st.data())
def test_bitcasts_agree_for_all_but_nan(type: Type, data: st.DataObject) -> None:
    drawn = numbers(type).filter(lambda value: value == value)
    check(bitcast_kernel(type), data.draw(st.lists(drawn, min_size=1, max_size=8)))


@cache
def constants_kernel(type: Type) -> Kernel:
    edges: list[float] = [0, 1]
    if type.is_float:
        edges += [-0.0, float("inf"), float("-inf"), float("nan"), 0.1, 1e-320, 1e300]
    elif type.kind != "bool":
        edges += limits(type)
    return table(
        [type],
        lambda a: {f"c{n}": Select(a.eq(a), const(e, type), const(e, type)) for n, e in enumerate(edges)},
    )


@pytest.mark.parametrize("type", ALL, ids=str)
def test_constants_arrive_exactly(type: Type) -> None:
    check(constants_kernel(type), [1])


@cache
def group_kernel(type: Type) -> Kernel:
    ops = sorted(GROUP_OPS & BINARY_OPS[type.kind] - COMPARISON)
    return table(
        [type],
        lambda a: (
            {f"reduce_{op}": GroupReduce(op, a) for op in ops}
            | {f"scan_{op}": GroupScan(op, a) for op in ops}
        ),
    )


@pytest.mark.parametrize("type", ALL, ids=str)
def test_a_group_of_one_reduces_to_its_item_and_scans_from_the_identity(type: Type) -> None:
    check(group_kernel(type), [0, 1, 1])


@cache
def select_kernel(type: Type) -> Kernel:
    return table([BOOL, type, type], lambda c, a, b: {"chosen": Select(c, a, b)})


@pytest.mark.parametrize("type", ALL, ids=str)
@FEW
@given(data=st.data())
def test_select_agrees(type: Type, data: st.DataObject) -> None:
    check(select_kernel(type), *map(list, zip(*data.draw(rows(BOOL, type, type)), strict=True)))


PEEKED = [type for type in ALL if type is not BOOL]


@cache
def peek_kernel() -> Kernel:
    k = KernelBuilder("peek")
    data, outs = k.buffer("data", U8), [k.buffer(f"out_{type}", type) for type in PEEKED]
    with k.for_(0, 8) as i:
        for type, out in zip(PEEKED, outs, strict=True):
            k.store(out, i, Peek(data, i, type))
    return k.build()


@FEW
@given(st.binary(min_size=24, max_size=24))
def test_peeking_at_any_byte_agrees(data: bytes) -> None:
    values: dict[str, object] = {f"out_{type}": zeros(type, 8) for type in PEEKED}
    agree(peek_kernel(), values | {"data": array(U8, list(data))}, compiled(peek_kernel()))


def test_what_is_read_afresh_is_what_was_stored() -> None:
    k = KernelBuilder("afresh")
    out, partitions = k.buffer("out", F64), k.local("partitions", F64, 8)
    with k.for_(0, 3) as i:
        for partition in range(8):
            k.store(partitions, partition, (i * 8 + partition).to(F64))
        for partition in range(8):
            k.store(out, i * 8 + partition, Load(partitions, const(partition, I64), fresh=True))
    kernel = k.build()
    values: dict[str, object] = {"out": zeros(F64, 24)}
    agree(kernel, values, compiled(kernel))


def test_exact_sums_beyond_64_bits_are_kept() -> None:
    k = KernelBuilder("wide")
    x, out, n = k.buffer("x", I64), k.buffer("out", I128), k.scalar("n")
    total = k.var("total", 0, I128)
    with k.for_(0, n) as i:
        k.set(total, total + x[i].to(I128))
    k.store(out, 0, total)
    largest = limits(I64)[1]
    values = {"x": array(I64, [largest] * 5), "out": array(I128, [0]), "n": 5}
    agree(k.build(), values)
    compile_kernel(k.build())(values)
    assert values["out"].tolist() == array(I128, [5 * largest]).tolist()
