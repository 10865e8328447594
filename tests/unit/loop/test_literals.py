"""Literals are constants of a query, not of a kernel: code is found without them, and given them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from penstock.codegen.llvm import OptimisationLevel
from penstock.codegen.native import NativeKernel, compile_kernel
from penstock.errors import VerificationError
from penstock.loop.build import KernelBuilder
from penstock.loop.interpret import interpret
from penstock.loop.nodes import BOOL, F32, F64, I8, I32, I64, U8, U64, Bitcast, Const, Kernel, Literal, Type
from penstock.loop.show import fingerprint, show
from penstock.loop.verify import verify

VALUES: list[tuple[float, Type]] = [
    (0, I64),
    (-1, I64),
    (-(2**63), I64),
    (2**64 - 1, U64),
    (-128, I8),
    (255, U8),
    (-7, I32),
    (2.5, F64),
    (-0.0, F64),
    (math.inf, F64),
    (0.1, F32),
]


def bits(value: float, type: Type) -> Kernel:
    """A kernel that returns a number beside a literal, so that no word is at the wrong place."""
    k = KernelBuilder("bits")
    n = k.scalar("n")
    before, literal = k.literal(3, I64), k.literal(value, type)
    wide = literal if not type.is_float else Bitcast(literal, I64 if type.bits == 64 else I32)
    k.ret((n - before) ^ wide.to(I64))
    return k.build()


@pytest.mark.parametrize(("value", "type"), VALUES)
@pytest.mark.parametrize("effort", OptimisationLevel)
def test_compiled_code_is_given_the_literal_that_the_interpreter_reads(
    value: float, type: Type, effort: OptimisationLevel
) -> None:
    kernel = bits(value, type)
    assert compile_kernel(kernel, effort=effort)({"n": 12}) == interpret(kernel, {"n": 12})


def test_kernels_that_differ_in_literals_alone_share_code() -> None:
    one, other = bits(1, I64), bits(-5, I64)
    assert fingerprint(one) == fingerprint(other)
    code = compile_kernel(one, effort=OptimisationLevel.QUICK).code
    assert NativeKernel(other, code)({"n": 12}) == interpret(other, {"n": 12}) == 9 ^ -5


def test_the_type_of_a_literal_is_part_of_the_code() -> None:
    assert len({fingerprint(bits(1, type)) for type in (I8, I32, I64, U8, U64)}) == 5


def test_a_literal_is_printed_as_its_value() -> None:
    assert "(n - 3)" in show(bits(1, I64))
    assert show(bits(1, I64)) != show(bits(2, I64))


def test_truth_values_and_nan_are_part_of_the_code() -> None:
    k = KernelBuilder("known")
    assert k.literal(True, BOOL) == Const(True, BOOL)
    assert isinstance(k.literal(math.nan, F64), Const)
    assert k.build().literals == ()


def test_a_literal_of_another_kernel_is_refused() -> None:
    other = KernelBuilder("other").literal(1, I64)
    k = KernelBuilder("k")
    k.ret(other)
    with pytest.raises(VerificationError, match="not one of this kernel"):
        verify(k.build())


@pytest.mark.parametrize("wrong", [Literal("constant", 2**63, I64), Literal("constant", 1.5, I64)])
def test_a_literal_that_is_no_value_of_its_type_is_refused(wrong: Literal) -> None:
    with pytest.raises(VerificationError):
        verify(replace(bits(1, I64), literals=(wrong,)))
