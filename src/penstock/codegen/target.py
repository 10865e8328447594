"""Drive LLVM: parse, optimise, emit, load. The only module that imports llvmlite.

Import it inside functions: loading LLVM takes 60-150 ms that a program which only declares queries
should not pay.
"""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass
from functools import cache
from typing import Any

import llvmlite.binding as llvm

from penstock.codegen.names import ENTRY

_LEVEL = 2
# libm for exp, pow and their like; libgcc for 128-bit division and conversion.
_LIBRARIES = {"linux": ("libm.so.6", "libgcc_s.so.1")}


@dataclass(frozen=True, slots=True)
class Target:
    """The machine code is made for, and the LLVM that makes it."""

    triple: str
    cpu: str
    features: str
    version: str

    def __str__(self) -> str:
        return f"{self.triple} {self.cpu} {self.features} llvm-{self.version}"


@cache
def host() -> Target:
    """Describe this machine, starting LLVM on the first call."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    for library in _LIBRARIES.get(sys.platform, (None,)):
        llvm.load_library_permanently(library)
    version = ".".join(map(str, llvm.llvm_version_info))
    features = llvm.get_host_cpu_features().flatten()
    return Target(llvm.get_process_triple(), llvm.get_host_cpu_name(), features, version)


def _machine(target: Target) -> Any:
    """Make a target machine for code that may lie anywhere.

    The large code model spells addresses out in full. The small one would need code, constants and the
    C library within 2 GB of each other, which the engine cannot promise and LLVM answers with an abort.
    """
    return llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=_LEVEL, reloc="static", codemodel="large", jit=True
    )


@cache
def _shared_machine(target: Target) -> Any:
    return _machine(target)


def _optimised(text: str, machine: Any) -> Any:
    module = llvm.parse_assembly(text, llvm.create_context())
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=_LEVEL)
    options.loop_vectorization = True
    options.slp_vectorization = True
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return module


def to_object(text: str) -> bytes:
    """Compile a module to object code: the bytes that are run, cached and shipped."""
    machine = _shared_machine(host())
    return bytes(machine.emit_object(_optimised(text, machine)))


def to_llvm(text: str) -> str:
    """Give the optimised module as text."""
    return str(_optimised(text, _shared_machine(host())))


def to_assembly(text: str) -> str:
    """Give the machine's assembly as text."""
    machine = _shared_machine(host())
    return str(machine.emit_assembly(_optimised(text, machine)))


class Loaded:
    """Object code in executable memory; the memory lives as long as this object."""

    __slots__ = ("_engine", "call")

    def __init__(self, code: bytes) -> None:
        machine = _machine(host())  # the engine takes ownership
        module = llvm.parse_assembly("", llvm.create_context())
        self._engine = llvm.create_mcjit_compiler(module, machine)
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self._engine.finalize_object()
        address = self._engine.get_function_address(ENTRY)
        self.call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_char_p)(address)
