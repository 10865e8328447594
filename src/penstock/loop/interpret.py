"""Interpret a kernel in plain Python: slow, obvious, and the definition of the loop IR.

    interpret(kernel, {"x": x, "out": out, "n": len(x)})     # the same call as a compiled kernel's

Buffers are NumPy arrays changed in place: bool as uint8 holding 0 or 1, i128 as int64 with the low and the
high word of element i at 2i and 2i + 1. Local buffers start with garbage, so a kernel that relies on zeros
differs from its compiled form in a test. A work group has one item.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.loop import numbers
from penstock.loop.nodes import (
    COMPARISON,
    Assign,
    Atomic,
    Binary,
    Bitcast,
    Block,
    Buffer,
    Cast,
    Const,
    Declare,
    For,
    GroupReduce,
    GroupScan,
    If,
    Kernel,
    Literal,
    Load,
    Overflows,
    Peek,
    Return,
    Select,
    Stmt,
    Store,
    Type,
    Unary,
    Value,
    Var,
    While,
)
from penstock.loop.numbers import Morsels, Number, Progress

Array = npt.NDArray[Any]
_GARBAGE = 0xA5

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
_FLOAT: dict[str, Callable[[float, float], float]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": numbers.divide,
    "rem": numbers.remainder,
    "pow": numbers.power,
}
_INTEGER: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
}


def interpret(kernel: Kernel, values: Mapping[str, Array | int | float]) -> int:
    """Run a kernel on arguments by name; return 0 if the kernel does not return."""
    machine = _Machine()
    for parameter in kernel.params:
        machine.bind(parameter, values[parameter.name])
    for buffer in kernel.locals:
        machine.arrays[buffer.name] = _scratch(buffer)
    result = machine.run(kernel.body)
    return 0 if result is None else result


@dataclass(frozen=True, slots=True)
class Interpreted:
    """A kernel that is interpreted wherever it is called."""

    kernel: Kernel

    def __call__(self, values: Mapping[str, Array | int | float]) -> int:
        return interpret(self.kernel, values)

    def frame(self, values: Mapping[str, Array | int | float]) -> Mapping[str, Array | int | float]:
        """Return the arguments unchanged."""
        return values

    def standing(self, values: object) -> None:
        """Return None: interpreted kernels read arrays, not addresses."""

    def run(self, start: int) -> int:
        """Refuse an address."""
        raise AssertionError("interpreted kernels have no standing frame")

    def pinned(self) -> None:
        """Return None: interpreted kernels have no address."""

    def spend(self, seconds: float) -> None:
        """Ignore the time of native callers: there are none."""

    def over(self, values: Mapping[str, Array | int | float], shares: Morsels) -> Progress:
        """Process morsels, rows `lo` up to `hi` each, until none is left or the kernel stops."""
        rows = 0
        while (share := shares.next()) is not None:
            lo, hi = share
            rows += hi - lo
            upto = self({**values, "lo": lo, "hi": hi})
            if upto < hi:
                return Progress(rows, (upto, hi))
        return Progress(rows, None)

    def prepare(self) -> None:
        """Do nothing: there is no code to compile."""

    def apart(
        self, several: Sequence[Mapping[str, Array | int | float]], shares: Sequence[Morsels]
    ) -> list[Progress]:
        """Process the i-th list of morsels with the i-th arguments, one list after the other."""
        return [self.over(values, own) for values, own in zip(several, shares, strict=True)]

    def together(self, several: object, shares: object) -> None:
        """Return None, so that the caller runs threads: interpreted kernels would contend for the GIL."""


def apply(op: str, a: Number, b: Number, type: Type) -> Number:
    """Combine two numbers of one type."""
    if op in COMPARISON:
        return _COMPARE[op](a, b)
    if op == "min":
        return a if a < b else b  # noqa: FURB136 - exact for NaN and signed zeros
    if op == "max":
        return a if a > b else b  # noqa: FURB136 - as above
    if type.is_float:
        result = _FLOAT[op](a, b)
        return numbers.round_f32(result) if type.bits == 32 else result
    if type.kind == "bool":
        return bool(_INTEGER[op](int(a), int(b)))
    return numbers.wrap(_integer(op, int(a), int(b), type), type)


def _integer(op: str, a: int, b: int, type: Type) -> int:
    if op == "shl":
        return a << (b % type.bits)
    if op == "shr":
        return a >> (b % type.bits)
    if op not in ("div", "rem"):
        return _INTEGER[op](a, b)
    if b == 0:
        return 0
    quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return quotient if op == "div" else a - b * quotient


def unary(op: str, a: Number, type: Type) -> Number:
    if type.is_float:
        result = numbers.FLOAT_FUNCTIONS[op](a)
        return numbers.round_f32(result) if type.bits == 32 else result
    if type.kind == "bool":
        return not a
    bits = numbers.bits_of(a, type)
    match op:
        case "neg":
            return numbers.wrap(-int(a), type)
        case "not":
            return numbers.wrap(~int(a), type)
        case "abs":
            return numbers.wrap(abs(int(a)), type)
        case "popcount":
            return numbers.wrap(bits.bit_count(), type)
        case "clz":
            return numbers.wrap(type.bits - bits.bit_length(), type)
    return numbers.wrap((bits & -bits).bit_length() - 1 if bits else type.bits, type)


def cast(a: Number, source: Type, target: Type) -> Number:
    if target.kind == "bool":
        return a != 0
    if not target.is_float:
        return numbers.float_to_int(a, target) if source.is_float else numbers.wrap(int(a), target)
    if not source.is_float:
        return numbers.int_to_float(int(a), target)
    return numbers.round_f32(a) if target.bits == 32 else a


class _Machine:
    """The variables and buffers of a kernel, and the memo of the current statement."""

    def __init__(self) -> None:
        self.variables: dict[str, Number] = {}
        self.arrays: dict[str, Array] = {}
        # Nothing changes within a statement, so a node used twice in it is computed once.
        self._memo: dict[int, Number] = {}

    def bind(self, parameter: Var | Buffer, value: Array | int | float) -> None:
        if isinstance(parameter, Buffer):
            assert isinstance(value, np.ndarray)
            self.arrays[parameter.name] = value if value.dtype.kind != "V" else value.view(np.int64)
        else:
            assert not isinstance(value, np.ndarray)
            self.variables[parameter.name] = _argument(value, parameter.type)

    def run(self, block: Block) -> int | None:
        for stmt in block:
            self._memo.clear()
            result = self._step(stmt)
            if result is not None:
                return result
        return None

    def _step(self, stmt: Stmt) -> int | None:
        """Run one statement; a number means the kernel returned it."""
        match stmt:
            case Declare(var, value) | Assign(var, value):
                self.variables[var.name] = self.value(value)
            case Store(buffer, index, value):
                self.store(buffer, int(self.value(index)), self.value(value))
            case Atomic():
                self._atomic(stmt)
            case If(condition, then, orelse):
                return self.run(then if self.value(condition) else orelse)
            case For():
                return self._for(stmt)
            case While():
                return self._while(stmt)
            case Return(value):
                return int(self.value(value))
        return None

    def _for(self, stmt: For) -> int | None:
        for index in range(int(self.value(stmt.start)), int(self.value(stmt.stop))):
            self.variables[stmt.var.name] = index
            result = self.run(stmt.body)
            if result is not None:
                return result
        return None

    def _while(self, stmt: While) -> int | None:
        while self.value(stmt.condition):
            result = self.run(stmt.body)
            if result is not None:
                return result
            self._memo.clear()
        return None

    def _atomic(self, stmt: Atomic) -> None:
        index, value = int(self.value(stmt.index)), self.value(stmt.value)
        old = self.load(stmt.buffer, index)
        self.store(stmt.buffer, index, apply(stmt.op, old, value, stmt.buffer.type))
        if stmt.old is not None:
            self.variables[stmt.old.name] = old

    def value(self, node: Value) -> Number:
        known = self._memo.get(id(node))
        if known is None:
            known = self._memo[id(node)] = self._compute(node)
        return known

    def _compute(self, node: Value) -> Number:
        match node:
            case Const(number, type) | Literal(_, number, type):
                return _argument(number, type)
            case Var(name, _):
                return self.variables[name]
            case Load(buffer, index):
                return self.load(buffer, int(self.value(index)))
            case Peek(buffer, index, type):
                return self.peek(buffer, int(self.value(index)), type)
            case Binary("pow", a, Const(2.0, _)):  # one multiplication, in compiled code too
                return apply("mul", self.value(a), self.value(a), a.type)
            case Binary(op, a, b):
                return apply(op, self.value(a), self.value(b), a.type)
            case Unary(op, a):
                return unary(op, self.value(a), a.type)
            case Overflows(op, a, b):
                return not numbers.fits(_INTEGER[op](int(self.value(a)), int(self.value(b))), a.type)
            case Select(condition, a, b):  # both sides are computed: there is no branch
                chosen, other = self.value(a), self.value(b)
                return chosen if self.value(condition) else other
            case Cast(a, type):
                return cast(self.value(a), a.type, type)
            case Bitcast(a, type):
                return numbers.from_bits(numbers.bits_of(self.value(a), a.type), type)
            case GroupReduce(_, a):
                return self.value(a)
            case GroupScan(op, a):
                return numbers.identity(op, a.type)
        raise AssertionError(f"not a value of the loop IR: {node!r}")

    def load(self, buffer: Buffer, index: int) -> Number:
        array, at = self._cell(buffer, index)
        if buffer.type.bits == 128:
            return (int(array[at + 1]) << 64) | (int(array[at]) & 0xFFFF_FFFF_FFFF_FFFF)
        if buffer.type.kind == "bool":
            return bool(array[at])
        return float(array[at]) if buffer.type.is_float else int(array[at])

    def peek(self, buffer: Buffer, index: int, type: Type) -> Number:
        if type.kind == "bool":
            return bool(int(self.load(buffer, index >> 3)) >> (index & 7) & 1)
        last = index + type.bits // 8 - 1
        self._cell(buffer, last)
        array, first = self._cell(buffer, index)
        return numbers.from_bits(int.from_bytes(array[first : last + 1].tobytes(), "little"), type)

    def store(self, buffer: Buffer, index: int, value: Number) -> None:
        array, at = self._cell(buffer, index)
        if buffer.type.bits == 128:
            low = int(value) & 0xFFFF_FFFF_FFFF_FFFF
            array[at] = low - (1 << 64) if low >> 63 else low
            array[at + 1] = int(value) >> 64
        else:
            array[at] = value

    def _cell(self, buffer: Buffer, index: int) -> tuple[Array, int]:
        array, width = self.arrays[buffer.name], 2 if buffer.type.bits == 128 else 1
        if not 0 <= index < len(array) // width:
            raise IndexError(f"{buffer.name}[{index}] lies outside its {len(array) // width} elements")
        return array, index * width


def _argument(value: int | float, type: Type) -> Number:
    if type.kind == "bool":
        return bool(value)
    if not type.is_float:
        return int(value)
    return numbers.round_f32(float(value)) if type.bits == 32 else float(value)


def dtype_of(type: Type) -> np.dtype[Any]:
    """Return the NumPy type of the arrays that hold a buffer."""
    if type.kind == "bool":
        return np.dtype(np.uint8)
    if type.bits == 128:
        return np.dtype(np.int64)
    return np.dtype(f"{type.kind}{type.bits}")


def _scratch(buffer: Buffer) -> Array:
    assert buffer.length is not None
    bytes_per_element = max(buffer.type.bits // 8, 1)
    return np.full(buffer.length * bytes_per_element, _GARBAGE, np.uint8).view(dtype_of(buffer.type))
