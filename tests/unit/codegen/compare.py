"""Run a kernel twice, interpreted and compiled, and compare every buffer bit by bit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.codegen.llvm import OptimisationLevel
from penstock.codegen.native import NativeKernel, compile_kernel
from penstock.loop.interpret import dtype_of, interpret
from penstock.loop.nodes import Buffer, Kernel, Type
from penstock.loop.numbers import bits_of, from_bits

Values = Mapping[str, Any]
_WORD = 0xFFFF_FFFF_FFFF_FFFF


def array(type: Type, numbers: list[Any]) -> npt.NDArray[Any]:
    """Lay numbers out as a buffer's memory."""
    if type.bits != 128:
        return np.array(numbers, dtype_of(type))
    words = [from_bits(word, _I64) for number in numbers for word in (number & _WORD, (number >> 64) & _WORD)]
    return np.array(words, np.int64)


def zeros(type: Type, length: int) -> npt.NDArray[Any]:
    return array(type, [0] * length)


def agree(kernel: Kernel, values: Values, natives: tuple[NativeKernel, ...] = ()) -> None:
    """Assert that all runs return the same status and leave the same memory behind."""
    natives = natives or both(kernel)
    expected = _copies(values)
    status = interpret(kernel, expected)
    for native in natives:
        found = _copies(values)
        assert native(found) == status
        _same(kernel, found, expected)


def both(kernel: Kernel) -> tuple[NativeKernel, ...]:
    """Compile with each effort."""
    return tuple(compile_kernel(kernel, effort=effort) for effort in OptimisationLevel)


def _same(kernel: Kernel, found: Values, expected: Values) -> None:
    for parameter in kernel.params:
        if isinstance(parameter, Buffer):
            np.testing.assert_array_equal(
                _bits(found[parameter.name]), _bits(expected[parameter.name]), err_msg=parameter.name
            )


def _copies(values: Values) -> dict[str, Any]:
    return {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in values.items()}


def _bits(data: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """See the difference between 0.0 and -0.0, but none between NaNs."""
    if data.dtype.kind != "f":
        return data
    with np.errstate(invalid="ignore"):  # widening a signalling NaN
        wide = data.astype(np.float64)
    return np.where(np.isnan(data), bits_of(float("nan"), _F64), wide.view(np.uint64))


_I64 = Type("i64", "int", 64)
_F64 = Type("f64", "float", 64)
