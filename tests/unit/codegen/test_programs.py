"""Whole kernels: what is compiled does what is interpreted."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.codegen.native import NativeKernel, compile_kernel
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import (
    BOOL,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    MACHINE_TYPES,
    U8,
    U16,
    U32,
    U64,
    Kernel,
    Overflows,
    Type,
)
from penstock.loop.show import show
from penstock.loop.verify import BINARY_OPS, verify
from tests.unit.codegen.compare import agree, array, both
from tests.unit.codegen.numbers_of import numbers
from tests.unit.codegen.programs import LENGTH, STORED, kernels

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]


@settings(max_examples=60, deadline=None, suppress_health_check=SLOW)
@given(kernels(), st.data())
def test_a_random_kernel_compiled_does_what_it_does_interpreted(kernel: Kernel, data: st.DataObject) -> None:
    verify(kernel)
    buffers = {
        f"b_{type}": array(type, data.draw(st.lists(numbers(type), min_size=LENGTH, max_size=LENGTH)))
        for type in STORED
    }
    scalars = {"n": data.draw(numbers(I64)), "x": data.draw(numbers(F64)), "flag": data.draw(st.booleans())}
    agree(kernel, buffers | scalars)


@settings(max_examples=30, deadline=None, suppress_health_check=SLOW)
@given(kernels(), kernels())
def test_kernels_that_differ_print_differently(one: Kernel, other: Kernel) -> None:
    assert (show(one) == show(other)) == (one == other)


def fibonacci() -> Kernel:
    k = KernelBuilder("fibonacci")
    n, a, b = k.scalar("n"), k.var("a", 0), k.var("b", 1)
    with k.for_(0, n):
        following = k.var("following", a + b)
        k.set(a, b)
        k.set(b, following)
    k.ret(a)
    return k.build()


def search() -> Kernel:
    """Return from inside two loops."""
    k = KernelBuilder("search")
    x, n, wanted = k.buffer("x", I64), k.scalar("n"), k.scalar("wanted")
    with k.for_(0, n) as i, k.for_(0, n) as j, k.if_((x[i] * x[j]).eq(wanted)):
        k.ret(i * 100 + j)
    k.ret(-1)
    return k.build()


def test_a_kernel_without_a_return_gives_zero() -> None:
    assert compile_kernel(KernelBuilder("empty").build())({}) == 0


def test_statements_after_a_return_are_dropped() -> None:
    k = KernelBuilder("early")
    k.ret(3)
    k.ret(4)
    assert compile_kernel(k.build())({}) == 3


def test_a_loop_whose_every_pass_returns_is_left_at_once() -> None:
    k = KernelBuilder("once")
    n = k.scalar("n")
    with k.for_(0, n) as i:
        k.ret(i + 7)
    k.ret(-1)
    run = compile_kernel(k.build())
    assert [run({"n": n}) for n in (0, 1, 5)] == [-1, 7, 7]


@pytest.mark.parametrize("n", [0, 1, 2, 10, 90])
def test_loops_carry_variables(n: int) -> None:
    agree(fibonacci(), {"n": n})


@pytest.mark.parametrize("wanted", [4, 6, 9, 35, 1000])
def test_a_return_leaves_every_loop(wanted: int) -> None:
    agree(search(), {"x": np.array([2, 3, 5, 7]), "n": 4, "wanted": wanted})


@pytest.mark.parametrize("type", [kind for kind in MACHINE_TYPES.values() if kind.bits <= 64], ids=str)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_scalars_of_every_type_cross_the_frame(type: Type, data: st.DataObject) -> None:
    kernel = scalar_kernel(type)
    agree(kernel, {"x": data.draw(numbers(type)), "out": array(type, [0])}, NATIVE[kernel])


def scalar_kernel(type: Type) -> Kernel:
    k = KernelBuilder(f"scalar_{type}")
    x, out = k.scalar("x", type), k.buffer("out", type)
    k.store(out, 0, x)
    return k.build()


class _Compiled(dict[Kernel, tuple[NativeKernel, ...]]):
    def __missing__(self, kernel: Kernel) -> tuple[NativeKernel, ...]:
        self[kernel] = both(kernel)
        return self[kernel]


NATIVE = _Compiled()
ATOMIC = [F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, BOOL]


@pytest.mark.parametrize("type", ATOMIC, ids=str)
def test_atomics_of_every_operator_agree(type: Type) -> None:
    ops = sorted(BINARY_OPS[type.kind] - {"eq", "ne", "lt", "le", "gt", "ge"})
    k = KernelBuilder("atomics")
    cells, olds, x = k.buffer("cells", type), k.buffer("olds", type), k.buffer("x", type)
    with k.for_(0, 4) as i:
        for place, op in enumerate(ops):
            old = k.atomic(op, cells, place, x[i], old="old")
            assert old is not None
            k.store(olds, i * len(ops) + place, old)
    fill = [1] * len(ops)
    values = {"cells": array(type, fill), "olds": array(type, fill * 4), "x": array(type, [1, 0, 1, 1])}
    agree(k.build(), values)


def test_threads_lose_no_atomic_update() -> None:
    k = KernelBuilder("contended")
    cells, most, n, me = k.buffer("cells", I64), k.buffer("most", F64), k.scalar("n"), k.scalar("me")
    with k.for_(0, n) as i:
        k.atomic("add", cells, 0, 1)
        k.atomic("max", most, 0, (i + me).to(F64))
    run = compile_kernel(k.build())
    shared, largest = np.zeros(1, np.int64), np.zeros(1)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda me: run({"cells": shared, "most": largest, "n": 50_000, "me": me}), range(4)))
    assert (shared[0], largest[0]) == (200_000, 50_002.0)


def test_a_checked_sum_stops_at_the_first_overflow() -> None:
    k = KernelBuilder("checked")
    x, n, total = k.buffer("x", I64), k.scalar("n"), k.var("total", 0)
    with k.for_(0, n) as i:
        with k.if_(Overflows("add", total, x[i])):
            k.ret(i)
        k.set(total, total + x[i])
    k.ret(-1)
    agree(k.build(), {"x": np.array([2**62, 2**62 - 1, 1, 0]), "n": 4})
    assert compile_kernel(k.build())({"x": np.array([2**62, 2**62 - 1, 1, 0]), "n": 4}) == 2


def test_a_value_shared_by_statements_is_read_anew_in_each() -> None:
    k = KernelBuilder("shared")
    x = k.buffer("x", I64)
    first = x[0] + 1
    k.store(x, 0, first)
    k.store(x, 0, first)
    k.ret(first)
    agree(k.build(), {"x": np.array([10])})
    assert compile_kernel(k.build())({"x": np.array([10])}) == 13


def test_values_shared_many_times_compile_in_linear_time() -> None:
    k = KernelBuilder("squares")
    value = k.scalar("x") + 1
    for _ in range(60):
        value = value * value
    k.ret(value)
    agree(k.build(), {"x": 2})
