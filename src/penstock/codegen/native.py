"""Compile kernels to machine code and call them.

`target` is imported inside functions: it loads LLVM, which the declaration of a query must not do.

    run = compile_kernel(kernel)
    status = run({"x": x, "out": out, "n": len(x)})     # releases the GIL while it runs
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.codegen.llvm import OptimisationLevel, llvm_module
from penstock.codegen.morsel_scheduler import HAS_THREADS, MORSEL_SCHEDULER, ArgumentFrame
from penstock.codegen.values import alignment
from penstock.loop.nodes import Buffer, Kernel, Literal, Var
from penstock.loop.numbers import Morsels, Progress
from penstock.loop.verify import verify
from penstock.runtime.kernels import StandingFrame

if TYPE_CHECKING:
    from penstock.codegen.cache import KernelCache

Argument = npt.NDArray[Any] | int | float
ALL = (1 << 63) - 1


class Code:
    """Machine code in executable memory, shared by all kernels that differ in literals alone.

    The memory is freed with this object, so callers keep a reference during a call.
    """

    __slots__ = ("__weakref__", "_loaded", "address", "call", "effort", "object_code", "run")

    def __init__(self, object_code: bytes, effort: OptimisationLevel = OptimisationLevel.FULL) -> None:
        from penstock.codegen.target import Loaded  # noqa: PLC0415 - loads LLVM

        self.object_code = object_code
        self.effort = effort
        self._loaded = Loaded(object_code)
        self.call: Callable[[bytes], int] = self._loaded.call
        self.run: Callable[[int], int] = self._loaded.run
        self.address: int = self._loaded.address

    def through(
        self, frames: Sequence[ArgumentFrame], shares: Sequence[Morsels], most: int = ALL
    ) -> list[Progress]:
        """Process morsels of rows, with one thread per frame."""
        return MORSEL_SCHEDULER.through(self._loaded.address, frames, shares, most)

    def apart(self, frames: Sequence[ArgumentFrame], shares: Sequence[Morsels]) -> list[Progress]:
        """Process the i-th list of morsels by the i-th frame, each on a thread where there are some."""
        if not HAS_THREADS:
            return [self.through([frame], [own])[0] for frame, own in zip(frames, shares, strict=True)]
        return MORSEL_SCHEDULER.through(self._loaded.address, frames, shares, ALL, apart=True)


class Arguments:
    """The layout of a kernel's parameters in words, and the words of its literals."""

    __slots__ = ("_frame", "_limits", "_literals", "_params", "_places")

    def __init__(self, kernel: Kernel) -> None:
        self._params = tuple((param.name, _width(param)) for param in kernel.params)
        names = [param.name for param in kernel.params]
        self._places = {name: place for place, name in enumerate(names)}
        self._limits = [names.index(name) for name in ("lo", "hi") if name in names]
        self._frame = _words(kernel.params)
        self._literals = _words(kernel.literals).pack(*(literal.value for literal in kernel.literals))

    def filled(self, values: Mapping[str, Argument]) -> bytes:
        """The words of a call; literals come last."""
        return (
            self._frame.pack(
                *[
                    _address(value, width) if isinstance(value := values[name], np.ndarray) else value
                    for name, width in self._params
                ]
            )
            + self._literals
        )

    def frame(self, values: Mapping[str, Argument]) -> ArgumentFrame:
        """Lay out the arguments of a kernel over rows, without the row limits; callers keep the memory alive."""
        return ArgumentFrame.of(array("q", self.filled({**values, "lo": 0, "hi": 0})), *self._limits)

    def standing(self, values: Mapping[str, Argument]) -> StandingFrame:
        """Lay out the arguments of calls of which each overwrites a few."""
        words = array("q", self.filled(values))
        return StandingFrame(words, words.buffer_info()[0], self._places)


class NativeKernel:
    """A kernel in executable memory, called with its parameters by name.

    A buffer is given as a NumPy array (contiguous, of the parameter's type; bool as uint8) or as its address,
    in which case the caller keeps the memory alive.
    """

    __slots__ = ("_arguments", "code", "kernel")

    def __init__(self, kernel: Kernel, code: Code) -> None:
        self.kernel = kernel
        self.code = code
        self._arguments = Arguments(kernel)

    @property
    def object_code(self) -> bytes:
        """The object code, as stored in files."""
        return self.code.object_code

    @property
    def effort(self) -> OptimisationLevel:
        """The optimisation level of the code."""
        return self.code.effort

    def __call__(self, values: Mapping[str, Argument]) -> int:
        return self.code.call(self._arguments.filled(values))

    def frame(self, values: Mapping[str, Argument]) -> ArgumentFrame:
        """Lay out the arguments of a kernel over rows, without the row limits."""
        return self._arguments.frame(values)

    def standing(self, values: Mapping[str, Argument]) -> StandingFrame:
        """Lay out the arguments of calls of which each overwrites a few."""
        return self._arguments.standing(values)

    def run(self, start: int) -> int:
        """Call the kernel with the words at an address."""
        return self.code.run(start)

    def pinned(self) -> tuple[int, object, bool]:
        """The address of the code, what keeps it in memory, and that it will not be replaced."""
        return self.code.address, self.code, True

    def spend(self, seconds: float) -> None:
        """Ignore the time of native callers: the code will not be replaced."""

    def over(self, frame: ArgumentFrame, shares: Morsels, most: int = ALL) -> Progress:
        """Process morsels until none is left, the kernel stops, or `most` morsels are processed."""
        return self.code.through([frame], [shares], most)[0]

    def prepare(self) -> None:
        """Do nothing: the code has been compiled."""

    def together(self, frames: Sequence[ArgumentFrame], shares: Sequence[Morsels]) -> list[Progress] | None:
        """Process morsels with one thread per frame: thread i starts with the i-th list, then steals from others."""
        return self.code.through(frames, shares) if HAS_THREADS else None

    def apart(self, frames: Sequence[ArgumentFrame], shares: Sequence[Morsels]) -> list[Progress]:
        """Process the i-th list of morsels by the i-th frame, in parallel."""
        return self.code.apart(frames, shares)


def _address(value: npt.NDArray[Any], width: int) -> int:
    """Return the address of a contiguous array with elements of `width` bytes; other arrays export no buffer."""
    assert value.itemsize == width or (value.itemsize, width) == (16, 8), (
        f"an array of {value.dtype} where {width} bytes are due"
    )
    # NumPy's own attributes build a dictionary or an object first, which takes six times as long.
    address: int = pa.py_buffer(value).address
    return address


def _words(parameters: Sequence[Var | Buffer | Literal]) -> struct.Struct:
    return struct.Struct("<" + "".join(map(_word, parameters)))


def _word(parameter: Var | Buffer | Literal) -> str:
    """Choose the struct code that fills one 8-byte word."""
    if isinstance(parameter, Buffer):
        return "Q"
    if parameter.type.kind == "bool":
        return "?7x"
    if parameter.type.is_float:
        return "d" if parameter.type.bits == 64 else "f4x"
    return "q" if parameter.type.kind == "int" else "Q"


def _width(parameter: Var | Buffer) -> int:
    """Return the bytes between a buffer's elements, or 0 for a scalar."""
    return alignment(parameter.type) if isinstance(parameter, Buffer) else 0


def compile_kernel(
    kernel: Kernel, cache: KernelCache | None = None, effort: OptimisationLevel = OptimisationLevel.FULL
) -> NativeKernel:
    """Compile a kernel for this machine, or take it from the cache."""
    if cache is not None:
        return cache.get(kernel, compile_object, effort)
    return NativeKernel(kernel, Code(compile_object(kernel, effort), effort))


def compile_object(kernel: Kernel, effort: OptimisationLevel = OptimisationLevel.FULL) -> bytes:
    """Compile a kernel to the object code that is executed, cached and sent to executors."""
    from penstock.codegen.target import to_object  # noqa: PLC0415 - loads LLVM

    verify(kernel)
    return to_object(llvm_module(kernel, effort), effort)


def llvm_text(kernel: Kernel) -> str:
    """Return a kernel's optimised LLVM IR."""
    from penstock.codegen.target import to_llvm  # noqa: PLC0415 - loads LLVM

    return to_llvm(llvm_module(kernel))


def assembly_text(kernel: Kernel) -> str:
    """Return a kernel's machine code as assembly."""
    from penstock.codegen.target import to_assembly  # noqa: PLC0415 - loads LLVM

    return to_assembly(llvm_module(kernel))
