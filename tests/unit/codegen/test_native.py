"""Calling compiled kernels, and what their text looks like."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from penstock.codegen.llvm import llvm_module
from penstock.codegen.native import assembly_text, compile_kernel, llvm_text
from penstock.codegen.values import NameCounter
from penstock.errors import VerificationError
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import BOOL, F64, I64, Assign, Kernel, Overflows, Var, const, minimum, select


def total() -> Kernel:
    k = KernelBuilder("total")
    x, out, n = k.buffer("x", I64), k.buffer("out", I64), k.scalar("n")
    t = k.var("t", 0)
    with k.for_(0, n) as i:
        k.set(t, t + x[i])
    k.store(out, 0, t)
    return k.build()


def scalar_total() -> Kernel:
    k = KernelBuilder("scalar")
    x, n = k.buffer("x", I64), k.scalar("n")
    t = k.var("t", 0)
    with k.for_(0, n, scalar=True) as i:
        k.set(t, t + x[i])
    k.ret(t)
    return k.build()


def masked_total() -> Kernel:
    k = KernelBuilder("masked")
    x, mask, n = k.buffer("x", I64), k.buffer("mask", BOOL), k.scalar("n")
    t = k.var("t", 0)
    with k.for_(0, n) as i:
        k.set(t, t + select(mask[i], x[i], 0))
    k.ret(t)
    return k.build()


def branching_total() -> Kernel:
    k = KernelBuilder("branching")
    x, kind, n = k.buffer("x", I64), k.buffer("kind", I64), k.scalar("n")
    t = k.var("t", 0)
    with k.for_(0, n) as i, k.if_(kind[i].eq(1)):
        k.set(t, t + x[i])
    k.ret(t)
    return k.build()


def checked_stores() -> Kernel:
    k = KernelBuilder("stores")
    x, y, n = k.buffer("x", I64), k.buffer("y", I64), k.scalar("n")
    out, over = k.buffer("out", I64), k.buffer("over", BOOL)
    with k.for_(0, n) as i:
        k.store(out, i, x[i] + y[i])
        k.store(over, i, Overflows("add", x[i], y[i]))
    return k.build()


def lane_minimum() -> Kernel:
    """The least of doubles in sixteen fixed partitions: the form that vectorises without fast-math."""
    k = KernelBuilder("partitions")
    x, out, n = k.buffer("x", F64), k.buffer("out", F64), k.scalar("n")
    partitions = k.local("partitions", F64, 16)
    with k.for_(0, 16) as partition:
        k.store(partitions, partition, float("inf"))
    with k.for_(0, n >> 4) as i, k.for_(0, 16) as partition:
        k.store(partitions, partition, minimum(x[i * 16 + partition], partitions[partition]))
    with k.for_(0, 16) as partition:
        k.store(out, partition, partitions[partition])
    return k.build()


PLAIN_LOOPS = [total, masked_total, branching_total, checked_stores, lane_minimum]


@pytest.mark.parametrize("build", PLAIN_LOOPS, ids=lambda build: build.__name__)
def test_plain_loops_are_vectorised(build) -> None:
    assert re.search(r"<\d+ x (i64|double)>", llvm_text(build()))


def test_scalar_loops_are_not() -> None:
    assert not re.search(r"<\d+ x i64>", llvm_text(scalar_total()))


@pytest.mark.parametrize("build", PLAIN_LOOPS, ids=lambda build: build.__name__)
def test_no_float_operation_is_relaxed(build) -> None:
    flags = re.compile(r"\bf(add|sub|mul|div|rem|neg|cmp) (fast|nnan|ninf|nsz|arcp|contract|afn|reassoc)")
    assert not flags.search(llvm_text(build()))
    assert "fma" not in assembly_text(build())


def test_nothing_a_builder_names_reaches_the_text() -> None:
    k = KernelBuilder('evil"\n}; declare @')
    hidden = k.buffer('buf"; call void @abort()', I64)
    n = k.scalar("SECRET")
    k.store(hidden, 0, k.var("ATTACK", n + 1))
    text = llvm_module(k.build())
    assert not any(word in text for word in ("evil", "abort", "SECRET", "ATTACK", "buf"))


def test_assembly_is_the_machines() -> None:
    assert "penstock_entry" in assembly_text(total())


def test_a_kernel_that_breaks_the_grammar_is_not_compiled() -> None:
    broken = Kernel("broken", (), (), (Assign(Var("ghost", I64), const(1, I64)),))
    with pytest.raises(VerificationError, match="ghost"):
        compile_kernel(broken)


def test_arguments_of_another_width_are_refused() -> None:
    with pytest.raises(AssertionError, match="int32 where 8 bytes are due"):
        compile_kernel(total())({"x": np.zeros(4, np.int32), "out": np.zeros(1, np.int64), "n": 4})


def test_arguments_that_skip_memory_are_refused() -> None:
    with pytest.raises(ValueError, match="not contiguous"):
        compile_kernel(total())({"x": np.zeros(8, np.int64)[::2], "out": np.zeros(1, np.int64), "n": 4})


def test_buffers_may_be_given_by_address() -> None:
    x, out = np.arange(10), np.zeros(1, np.int64)
    compile_kernel(total())({"x": x.ctypes.data, "out": out, "n": 10})
    assert out[0] == 45


def test_read_only_arrays_can_be_read() -> None:
    x, out = np.arange(10), np.zeros(1, np.int64)
    x.flags.writeable = False
    compile_kernel(total())({"x": x, "out": out, "n": 10})
    assert out[0] == 45


def test_a_kernel_outlives_the_name_that_made_it() -> None:
    runs = [compile_kernel(total()) for _ in range(5)]
    last = runs[-1]
    del runs
    gc.collect()
    out = np.zeros(1, np.int64)
    last({"x": np.arange(4), "out": out, "n": 4})
    assert out[0] == 6


def test_kernels_caught_in_reference_cycles_are_freed_safely() -> None:
    """The collector frees a cycle's members in any order: an engine must not outlive what it needs."""
    program = """
import gc
from penstock.codegen.llvm import OptimisationLevel
from penstock.codegen.native import compile_kernel
from penstock.loop.build import KernelBuilder
for _ in range(10):
    cycle = [compile_kernel(KernelBuilder("k").build(), effort=OptimisationLevel.QUICK)]
    cycle.append(cycle)
    del cycle
    gc.collect()
print("alive")
"""
    assert output_of(program) == "alive"


def output_of(program: str) -> str:
    """Run a program in a process of its own, which may then crash without taking the tests along."""
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=paths
    )
    return done.stdout.strip()


def test_importing_the_compiler_does_not_load_llvm() -> None:
    program = "import sys, penstock.codegen.native, penstock.codegen.cache; print('llvmlite' in sys.modules)"
    assert output_of(program) == "False"


def test_names_never_repeat() -> None:
    names = NameCounter()
    drawn = [names.value() if turn % 2 else names.label() for turn in range(100)]
    assert len(set(drawn)) == 100


def test_an_array_in_place_of_a_number_is_refused() -> None:
    with pytest.raises(AssertionError, match="bytes are due"):
        compile_kernel(total())({"x": np.zeros(4, np.int64), "out": np.zeros(1, np.int64), "n": np.zeros(1)})
