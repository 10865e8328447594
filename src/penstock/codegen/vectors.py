"""Emit a short parallel loop as vectors: one SIMD lane per iteration.

LLVM vectorises long loops by itself. A short loop inside another is unrolled first, and then seldom
vectorised. This module therefore emits vector instructions explicitly.

Values shared by all lanes stay scalar, and are broadcast where they meet a vector. A number that increases by
one per lane is represented by its value in the first lane: as an index, it is the address of a contiguous
vector.
"""

from __future__ import annotations

from typing import Protocol

from penstock.codegen.values import ValueWriter, alignment, constant, memory_name, type_name
from penstock.loop.nodes import (
    BOOL,
    I64,
    Assign,
    Binary,
    Bitcast,
    Buffer,
    Cast,
    Const,
    Declare,
    For,
    Literal,
    Load,
    Overflows,
    Peek,
    Select,
    Stmt,
    Store,
    Type,
    Unary,
    Value,
    Var,
)

_MOST_LANES = 16
_BYTE = 8  # lanes whose packed bits are one byte


class NotInLanesError(Exception):
    """This loop body cannot be vectorised; emit the scalar loop."""


class Variables(Protocol):
    """Variables shared by all lanes."""

    def define(self, var: Var, value: str) -> None: ...
    def set(self, var: Var, value: str) -> None: ...


def lanes_of(loop: For) -> int:
    """Return the number of lanes of a loop; 0 if it cannot be vectorised."""
    match loop:
        case For(start=Const(0), stop=Const(int(turns)), parallel=True) if 1 < turns <= _MOST_LANES:
            return turns
    return 0


class VectorWriter(ValueWriter):
    """Emits the statements and values of a loop for all lanes at once."""

    def __init__(self, around: ValueWriter, shared: Variables, loop: For) -> None:
        super().__init__(around.names)
        self._around = around
        self._shared = shared
        self._lanes = lanes_of(loop)
        self._number = loop.var.name
        self._places = {self._number: "0"}  # variables that increase by one per lane: value in the first lane
        self._own: set[str] = set()  # variables per lane, even if all lanes have the same initial value
        self._varying: dict[int, bool] = {}
        self.lines, self.declarations, self.buffers = around.lines, around.declarations, around.buffers

    def forget(self) -> None:
        super().forget()
        self._varying.clear()
        self._around.forget()

    def statement(self, stmt: Stmt) -> None:
        self.forget()
        match stmt:
            case Declare(var, value):
                self._declare(var, value)
            case Store(buffer, index, value):
                self.store(buffer, self.address(buffer, self._place(index)), self.value(value))
            case Assign(var, Binary("or", before, value)) if before == var:
                self._gather_bits(var, value)
            case _:
                raise NotInLanesError

    def _declare(self, var: Var, value: Value) -> None:
        self._own.add(var.name)
        place = self._found_place(value)
        if not self._varies(value):
            self._shared.define(var, self._around.value(value))
        elif place is None:
            self.registers[var.name] = self.value(value)
        else:
            self._places[var.name] = place

    def _gather_bits(self, var: Var, value: Value) -> None:
        """Set the bits of a shared variable that are set in any lane."""
        if var.name in self._own:
            raise NotInLanesError
        found = self._bit_of_each(value) or self._bits_of_all(value)
        self._shared.set(var, self.op(f"or {type_name(var.type)} {self._around.value(var)}, {found}"))

    def _bit_of_each(self, value: Value) -> str | None:
        """Pack the flags of the lanes into bits, where each lane shifts its flag by its number: one machine instruction."""
        match value:
            case Binary("shl", Cast(flag, type), Var(name)) if flag.type == BOOL and name == self._number:
                bits = self.op(f"bitcast {self.name(BOOL)} {self.value(flag)} to i{self._lanes}")
                return self.op(f"zext i{self._lanes} {bits} to {type_name(type)}")
        return None

    def _bits_of_all(self, value: Value) -> str:
        type = value.type
        return self.call(
            f"llvm.vector.reduce.or.{self.suffix(type)}",
            type_name(type),
            (self.name(type), self.value(value)),
        )

    # -- values shared by all lanes --------------------------------------------------------------------

    def _varies(self, node: Value) -> bool:
        known = self._varying.get(id(node))
        if known is None:
            known = self._varying[id(node)] = self._does_vary(node)
        return known

    def _does_vary(self, node: Value) -> bool:
        match node:
            case Const() | Literal():
                return False
            case Var(name):
                return name in self._places or name in self.registers
            case Binary(_, a, b) | Overflows(_, a, b):
                return self._varies(a) or self._varies(b)
            case Unary(_, a) | Cast(a) | Bitcast(a) | Load(_, a) | Peek(_, a):
                return self._varies(a)
            case Select(condition, a, b):
                return self._varies(condition) or self._varies(a) or self._varies(b)
        raise NotInLanesError

    def _place(self, index: Value) -> str:
        place = self._found_place(index)
        if place is None:
            raise NotInLanesError
        return place

    def _found_place(self, node: Value) -> str | None:
        """The first lane's value of a number that increases by one per lane, or None."""
        match node:
            case Var(name):
                return self._places.get(name)
            case Binary("add" | "sub" as op, a, b) if not self._varies(b):
                return self._moved(op, a, b)
            case Binary("add", a, b) if not self._varies(a):
                return self._moved("add", b, a)
        return None

    def _moved(self, op: str, node: Value, by: Value) -> str | None:
        place = self._found_place(node)
        return None if place is None else self.op(f"{op} i64 {place}, {self._around.value(by)}")

    # -- values ----------------------------------------------------------------------------------------

    def name(self, type: Type) -> str:
        return f"<{self._lanes} x {type_name(type)}>"

    def suffix(self, type: Type) -> str:
        return f"v{self._lanes}{super().suffix(type)}"

    def literal(self, value: int | float | bool, type: Type) -> str:
        return f"splat ({type_name(type)} {constant(value, type)})"

    def _compute(self, node: Value) -> str:
        if node.type.bits > I64.bits:
            raise NotInLanesError
        match node:
            case Const(number, type):
                return self.literal(number, type)
            case Var(name) if name in self.registers:
                return self.registers[name]
            case _ if not self._varies(node):
                return self._spread(self._around.value(node), node.type)
            case Var(name):
                return self._counted(self._places[name])
            case Load(buffer, index, False):
                return self._loaded(buffer, index)
            case Peek(buffer, index, type) if type == BOOL and self._lanes == _BYTE:
                return self._bits(buffer, self._place(index))
            case Load() | Peek() | Overflows("mul"):
                raise NotInLanesError
        return super()._compute(node)

    def _divide(self, op: str, x: str, y: str, type: Type) -> str:
        raise NotInLanesError  # there is no vector instruction for integer division

    def _divide_by_constant(self, op: str, x: str, divisor: int, type: Type) -> str:
        if type == I64:  # and few machines multiply vectors to 128 bits
            raise NotInLanesError
        return super()._divide_by_constant(op, x, divisor, type)

    def _library(self, name: str, type: Type, *operands: str) -> str:
        raise NotInLanesError

    def _spread(self, operand: str, type: Type) -> str:
        name = self.name(type)
        first = self.op(f"insertelement {name} poison, {type_name(type)} {operand}, i64 0")
        return self.op(f"shufflevector {name} {first}, {name} poison, <{self._lanes} x i32> zeroinitializer")

    def _counted(self, first: str) -> str:
        steps = ", ".join(f"i64 {lane}" for lane in range(self._lanes))
        return self.op(f"add {self.name(I64)} {self._spread(first, I64)}, <{steps}>")

    # -- memory ----------------------------------------------------------------------------------------

    def _loaded(self, buffer: Buffer, index: Value) -> str:
        place = self._found_place(index)
        if place is None:
            return self._gathered(buffer, self.value(index))
        address, kind = self.address(buffer, place), self._in_memory(buffer)
        return self.from_memory(
            self.op(f"load {kind}, ptr {address}, align {alignment(buffer.type)}"), buffer.type
        )

    def _gathered(self, buffer: Buffer, indices: str) -> str:
        """Load elements that are not contiguous one by one."""
        found, name = "poison", self.name(buffer.type)
        for lane in range(self._lanes):
            index = self.op(f"extractelement {self.name(I64)} {indices}, i64 {lane}")
            one = self._around.load(buffer, self.address(buffer, index))
            found = self.op(f"insertelement {name} {found}, {type_name(buffer.type)} {one}, i64 {lane}")
        return found

    def _bits(self, buffer: Buffer, place: str) -> str:
        """Load the bits from a place on, which lie in one or two bytes. A byte without any of them is not read."""
        first, last = (
            self.op(f"ashr i64 {bit}, 3") for bit in (place, self.op(f"add i64 {place}, {_BYTE - 1}"))
        )
        bytes_of = (self._around.load(buffer, self.address(buffer, byte)) for byte in (first, last))
        low, high = (self.op(f"zext i8 {byte} to i16") for byte in bytes_of)
        both = self.op(f"or i16 {low}, {self.op(f'shl i16 {high}, {_BYTE}')}")
        shift = self.op(f"trunc i64 {self.op(f'and i64 {place}, {_BYTE - 1}')} to i16")
        bits = self.op(f"trunc i16 {self.op(f'lshr i16 {both}, {shift}')} to i8")
        return self.op(f"bitcast i8 {bits} to {self.name(BOOL)}")

    def store(self, buffer: Buffer, address: str, value: str) -> None:
        raw = self.to_memory(value, buffer.type)
        self.line(f"  store {self._in_memory(buffer)} {raw}, ptr {address}, align {alignment(buffer.type)}")

    def _in_memory(self, buffer: Buffer) -> str:
        return f"<{self._lanes} x {memory_name(buffer.type)}>"
