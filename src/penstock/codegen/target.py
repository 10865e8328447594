"""LLVM driver: parse, optimise, emit, load. The only module that imports llvmlite.

Import it inside functions: loading LLVM takes 60-150 ms, which programs that only declare queries should not
pay.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import llvmlite.binding as llvm

from penstock.codegen.llvm import OptimisationLevel
from penstock.codegen.values import ENTRY

_LEVEL = 2
# Level of the instruction selector: 0 is the fast one, which makes one pass over the code.
_SELECTION = {OptimisationLevel.QUICK: 0, OptimisationLevel.FULL: 2}
# libm for exp, pow and similar functions; libgcc for 128-bit division and conversion.
_LIBRARIES = {"linux": ("libm.so.6", "libgcc_s.so.1")}


@dataclass(frozen=True, slots=True)
class Target:
    """The target machine and the LLVM version."""

    triple: str
    cpu: str
    features: str
    version: str

    def __str__(self) -> str:
        return f"{self.triple} {self.cpu} {self.features} llvm-{self.version}"


@cache
def host() -> Target:
    """Describe this machine; the first call initialises LLVM."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    for library in _LIBRARIES.get(sys.platform, (None,)):
        llvm.load_library_permanently(library)
    version = ".".join(map(str, llvm.llvm_version_info))
    features = llvm.get_host_cpu_features().flatten()
    return Target(llvm.get_process_triple(), llvm.get_host_cpu_name(), features, version)


def _machine(target: Target, effort: OptimisationLevel) -> Any:
    """Create a target machine for code at arbitrary addresses.

    The large code model uses full addresses. The small one requires code, constants and the C library within
    2 GB, which the engine cannot guarantee; LLVM aborts otherwise.
    """
    return llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu,
        features=target.features,
        opt=_SELECTION[effort],
        reloc="static",
        codemodel="large",
        jit=True,
    )


@cache
def _shared_machine(target: Target, effort: OptimisationLevel) -> Any:
    return _machine(target, effort)


@contextmanager
def _parsed(text: str, machine: Any) -> Iterator[Any]:
    """Parse a module, and free it before its context.

    The garbage collector may free the two in the other order, which crashes.
    """
    with llvm.create_context() as context, llvm.parse_assembly(text, context) as module:
        module.triple = machine.triple
        module.data_layout = str(machine.target_data)
        yield module


@contextmanager
def _optimised(text: str, machine: Any) -> Iterator[Any]:
    """Run LLVM's full pipeline, for kernels that run long enough to repay it."""
    options = llvm.create_pipeline_tuning_options(speed_level=_LEVEL)
    options.loop_vectorization = True
    options.loop_interleaving = True
    options.slp_vectorization = True
    with _parsed(text, machine) as module, llvm.create_pass_builder(machine, options) as builder:
        builder.getModulePassManager().run(module, builder)
        yield module


def to_object(text: str, effort: OptimisationLevel = OptimisationLevel.FULL) -> bytes:
    """Compile a module to object code: the bytes that are executed, cached and sent to executors."""
    machine = _shared_machine(host(), effort)
    prepared = _parsed if effort is OptimisationLevel.QUICK else _optimised
    with prepared(text, machine) as module:
        return bytes(machine.emit_object(module))


def to_llvm(text: str) -> str:
    """Return the optimised module as text."""
    with _optimised(text, _shared_machine(host(), OptimisationLevel.FULL)) as module:
        return str(module)


def to_assembly(text: str) -> str:
    """Return the machine code as assembly text."""
    machine = _shared_machine(host(), OptimisationLevel.FULL)
    with _optimised(text, machine) as module:
        return str(machine.emit_assembly(module))


class Loaded:
    """Object code in executable memory; the memory is freed with this object."""

    __slots__ = ("_engine", "address", "call", "run")

    def __init__(self, code: bytes) -> None:
        machine = _machine(
            host(), OptimisationLevel.QUICK
        )  # compiles nothing here; the engine takes ownership
        # An engine requires a module. This one lives in the global context, which is never freed too early.
        module = llvm.parse_assembly("")
        self._engine = llvm.create_mcjit_compiler(module, machine)
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self._engine.finalize_object()
        self.address: int = self._engine.get_function_address(ENTRY)
        self.call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_char_p)(self.address)
        self.run = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(self.address)  # of words that may change

    def address_of(self, name: str) -> int:
        """The address of a function."""
        found: int = self._engine.get_function_address(name)
        return found
