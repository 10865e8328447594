"""Emit one loop-IR value as LLVM instructions.

The text is built directly rather than through `llvmlite.ir`: an instruction is a line, and 600 of them take 2
ms. Operands are names made here, numbers and types, never user text.

No fast-math flag is ever set, so floats have the semantics of `interpret.py` on every CPU.
"""

from __future__ import annotations

from penstock.loop.nodes import (
    BOOL,
    COMPARISON,
    F64,
    MACHINE_TYPES,
    U8,
    Binary,
    Bitcast,
    Buffer,
    Cast,
    Const,
    GroupReduce,
    GroupScan,
    Literal,
    Load,
    Overflows,
    Peek,
    Select,
    Type,
    Unary,
    Value,
    Var,
)
from penstock.loop.numbers import bits_of, identity, round_f32, wrap

# --- Generate all identifiers of generated code.
#
# Generated text consists of numbers, keywords and these names. Names typed by a user (columns, streams,
# aliases) and the hints of kernel builders never reach it, so quoting is unnecessary.

ENTRY = "penstock_entry"
INNER = "penstock_kernel"


class NameCounter:
    """A counter of names: `%v1`, `%v2`, … for values and `b1`, `b2`, … for blocks."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count = 0

    def value(self) -> str:
        self._count += 1
        return f"%v{self._count}"

    def label(self) -> str:
        self._count += 1
        return f"b{self._count}"


_NAMES = {name: f"i{type.bits}" for name, type in MACHINE_TYPES.items()} | {"f32": "float", "f64": "double"}
_FLOAT_COMPARE = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
_FLOAT_ARITHMETIC = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv", "rem": "frem"}
_PLAIN = frozenset({"add", "sub", "mul", "and", "or", "xor"})
# Calls into the C library, not intrinsics: LLVM rewrites those (pow(2, x) → exp2(x)) at the cost of the
# last bit. Single precision is computed in double and rounded: see loop/numbers.py.
_LIBRARY = frozenset({"exp", "log", "log2", "log10", "sin", "cos", "tan"})
_FLOAT_INTRINSICS = {
    "abs": "fabs", "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "rint": "rint", "trunc": "trunc",
}  # fmt: skip


def type_name(type: Type) -> str:
    """Return LLVM's name of a type in registers."""
    return _NAMES[type.name]


def memory_name(type: Type) -> str:
    """Return LLVM's name of a type in memory: a bool takes one byte."""
    return "i8" if type.kind == "bool" else type_name(type)


def alignment(type: Type) -> int:
    """Return the guaranteed alignment of a buffer: its element's, but at most a word's."""
    return min(max(type.bits // 8, 1), 8)


def constant(value: int | float | bool, type: Type) -> str:
    """Write a literal exactly. LLVM writes floats of both widths as the bits of a double."""
    if type.kind == "bool":
        return "true" if value else "false"
    if not type.is_float:
        return str(wrap(int(value), MACHINE_TYPES[f"i{type.bits}"]))
    number = round_f32(float(value)) if type.bits == 32 else float(value)
    return f"0x{bits_of(number, F64):016X}"


class ValueWriter:
    """Appends the instructions that compute values; every method returns the operand of the result.

    Memory and variables do not change within a statement, so a repeated node is computed once (`forget` ends
    the statement).
    """

    def __init__(self, names: NameCounter) -> None:
        self.names = names
        self.lines: list[str] = []
        self.declarations: set[str] = set()
        self.registers: dict[str, str] = {}
        self.slots: dict[str, str] = {}
        self.buffers: dict[str, str] = {}
        self.scalar = False  # inside a loop that cannot be vectorised
        self.fixed: frozenset[str] = frozenset()  # inside such a loop, the variables defined before it
        self._memo: dict[int, str] = {}

    def forget(self) -> None:
        self._memo.clear()

    # Names of types and constants; `vectors.py` overrides them for vectors.

    def name(self, type: Type) -> str:
        return type_name(type)

    def suffix(self, type: Type) -> str:
        return f"{'f' if type.is_float else 'i'}{type.bits}"

    def literal(self, value: int | float | bool, type: Type) -> str:
        return constant(value, type)

    def line(self, text: str) -> None:
        self.lines.append(text)

    def op(self, text: str) -> str:
        name = self.names.value()
        self.lines.append(f"  {name} = {text}")
        return name

    def value(self, node: Value) -> str:
        known = self._memo.get(id(node))
        if known is None:
            known = self._memo[id(node)] = self._compute(node)
        return known

    def _compute(self, node: Value) -> str:
        match node:
            case Const(number, type):
                return self.literal(number, type)
            case Var(name, type) | Literal(name, _, type):
                return self._variable(name, type)
            case Load(buffer, index, fresh):
                return self.load(buffer, self.element(buffer, index, fresh))
            case Peek(buffer, index, type):
                return self._peek(buffer, self.value(index), type)
            case Binary(op, a, b):
                return self._binary(op, a, b)
            case Select(condition, a, b):
                c, x, y = self.value(condition), self.value(a), self.value(b)
                return self.select(c, x, y, a.type)
            case Unary(op, a):
                return self._unary(op, self.value(a), a.type)
            case Cast(a, type):
                return self.cast(self.value(a), a.type, type)
            case Overflows(op, a, b):
                return self._overflows(op, self.value(a), self.value(b), a.type)
            case Bitcast(a, type):
                return self._bitcast(self.value(a), a.type, type)
            case GroupReduce(_, a):
                return self.value(a)
            case GroupScan(op, a):
                return constant(identity(op, a.type), a.type)
        raise AssertionError(f"not a value of the loop IR: {node!r}")

    # -- memory ---------------------------------------------------------------------------------

    def _variable(self, name: str, type: Type) -> str:
        slot = self.slots.get(name)
        return self.op(f"load {type_name(type)}, ptr {slot}") if slot else self.registers[name]

    def address(self, buffer: Buffer, index: str, fresh: bool = False) -> str:
        base = self.buffers[buffer.name]
        if fresh:  # hides the pointer's provenance, so that LLVM does not forward stores
            base = self.op(f'call ptr asm "", "=r,0"(ptr {base}) nounwind memory(none)')
        return self.op(f"getelementptr inbounds {memory_name(buffer.type)}, ptr {base}, i64 {index}")

    def element(self, buffer: Buffer, index: Value, fresh: bool = False) -> str:
        """Return the address of an element. The loop-invariant part of the index is added first, so that it is hoisted."""
        match index:
            case Binary("add", near, Var(name) as far) if name in self.fixed:
                start, type = self.address(buffer, self.value(far), fresh), memory_name(buffer.type)
                return self.op(f"getelementptr {type}, ptr {start}, i64 {self.value(near)}")
        return self.address(buffer, self.value(index), fresh)

    def load(self, buffer: Buffer, address: str) -> str:
        raw = self.op(f"load {memory_name(buffer.type)}, ptr {address}, align {alignment(buffer.type)}")
        return self.from_memory(raw, buffer.type)

    def _peek(self, buffer: Buffer, index: str, type: Type) -> str:
        if type.kind == "bool":
            byte = self.load(buffer, self.address(buffer, self.op(f"ashr i64 {index}, 3")))
            shift = self.op(f"trunc i64 {self.op(f'and i64 {index}, 7')} to i8")
            return self.op(f"trunc i8 {self.op(f'lshr i8 {byte}, {shift}')} to i1")
        address = self.address(buffer, index)
        return self.op(f"load {type_name(type)}, ptr {address}, align 1")

    def store(self, buffer: Buffer, address: str, value: str) -> None:
        raw = self.to_memory(value, buffer.type)
        self.line(f"  store {memory_name(buffer.type)} {raw}, ptr {address}, align {alignment(buffer.type)}")

    def from_memory(self, raw: str, type: Type) -> str:
        return self.cast(raw, U8, BOOL) if type.kind == "bool" else raw

    def to_memory(self, value: str, type: Type) -> str:
        return self.cast(value, BOOL, U8) if type.kind == "bool" else value

    # -- operators ------------------------------------------------------------------------------

    def select(self, condition: str, a: str, b: str, type: Type) -> str:
        name = self.name(type)
        return self.op(f"select {self.name(BOOL)} {condition}, {name} {a}, {name} {b}")

    def call(self, intrinsic: str, result: str, *arguments: tuple[str, str]) -> str:
        """Call an LLVM intrinsic with (type, operand) pairs; declare it on first use."""
        types = ", ".join(type for type, _ in arguments)
        self.declarations.add(f"declare {result} @{intrinsic}({types})")
        passed = ", ".join(f"{type} {operand}" for type, operand in arguments)
        return self.op(f"call {result} @{intrinsic}({passed})")

    def _library(self, name: str, type: Type, *operands: str) -> str:
        """Call the C library's double function of that name."""
        if type.bits == 32:
            wide = [self.op(f"fpext float {operand} to double") for operand in operands]
            return self.op(f"fptrunc double {self._library(name, F64, *wide)} to float")
        types = ", ".join("double" for _ in operands)
        self.declarations.add(f"declare double @{name}({types}) nobuiltin nounwind willreturn memory(none)")
        passed = ", ".join(f"double {operand}" for operand in operands)
        return self.op(f"call double @{name}({passed}) nobuiltin")

    def _binary(self, op: str, a: Value, b: Value) -> str:
        x, y = self.value(a), self.value(b)
        if op == "pow" and isinstance(b, Const) and b.value == 2.0:
            return self.combine("mul", x, x, a.type)
        if op in ("div", "rem") and isinstance(b, Const) and not b.type.is_float:
            return self._divide_by_constant(op, x, int(b.value), b.type)
        return self.combine(op, x, y, a.type)

    def combine(self, op: str, x: str, y: str, type: Type) -> str:
        """Apply a binary operator to two operands of one type."""
        if op in COMPARISON:
            return self._compare(op, x, y, type)
        if op in ("min", "max"):
            return self.select(self._compare("lt" if op == "min" else "gt", x, y, type), x, y, type)
        if type.is_float:
            return self._float_arithmetic(op, x, y, type)
        if op in _PLAIN:
            return self.op(f"{op} {self.name(type)} {x}, {y}")
        if op in ("shl", "shr"):
            return self._shift(op, x, y, type)
        return self._divide(op, x, y, type)

    def _compare(self, op: str, x: str, y: str, type: Type) -> str:
        if type.is_float:
            return self.op(f"fcmp {_FLOAT_COMPARE[op]} {self.name(type)} {x}, {y}")
        if op not in ("eq", "ne"):
            op = f"s{op}" if type.kind == "int" else f"u{op}"
        return self.op(f"icmp {op} {self.name(type)} {x}, {y}")

    def _float_arithmetic(self, op: str, x: str, y: str, type: Type) -> str:
        if op == "pow":
            return self._library("pow", type, x, y)
        return self.op(f"{_FLOAT_ARITHMETIC[op]} {self.name(type)} {x}, {y}")

    def _shift(self, op: str, x: str, y: str, type: Type) -> str:
        name = self.name(type)
        count = self.op(f"and {name} {y}, {self.literal(type.bits - 1, type)}")
        if op == "shr":
            op = "ashr" if type.kind == "int" else "lshr"
        return self.op(f"{op} {name} {x}, {count}")

    def _divide(self, op: str, x: str, y: str, type: Type) -> str:
        """Divide without a trap: by zero gives 0, and the smallest number by -1 wraps."""
        name = type_name(type)
        zero = self.op(f"icmp eq {name} {y}, 0")
        if type.kind == "uint":
            safe = self.op(f"select i1 {zero}, {name} 1, {name} {y}")
            quotient = self.op(f"u{op} {name} {x}, {safe}")
            return self.op(f"select i1 {zero}, {name} 0, {name} {quotient}")
        minus_one = self.op(f"icmp eq {name} {y}, -1")
        unsafe = self.op(f"or i1 {zero}, {minus_one}")
        safe = self.op(f"select i1 {unsafe}, {name} 1, {name} {y}")
        quotient = self.op(f"s{op} {name} {x}, {safe}")
        negated = self.op(f"sub {name} 0, {x}") if op == "div" else "0"
        quotient = self.op(f"select i1 {minus_one}, {name} {negated}, {name} {quotient}")
        return self.op(f"select i1 {zero}, {name} 0, {name} {quotient}")

    def _divide_by_constant(self, op: str, x: str, divisor: int, type: Type) -> str:
        zero = self.literal(0, type)
        if divisor == 0:
            return zero
        if divisor == -1:
            return self.op(f"sub {self.name(type)} {zero}, {x}") if op == "div" else zero
        sign = "s" if type.kind == "int" else "u"
        return self.op(f"{sign}{op} {self.name(type)} {x}, {self.literal(divisor, type)}")

    def _unary(self, op: str, x: str, type: Type) -> str:
        name, suffix = self.name(type), self.suffix(type)
        if type.is_float:
            return self._float_unary(op, x, type)
        match op:
            case "neg":
                return self.op(f"sub {name} {self.literal(0, type)}, {x}")
            case "not":
                return self.op(f"xor {name} {x}, {self.literal(-1, type)}")
            case "abs" if type.kind == "int":
                return self.call(f"llvm.abs.{suffix}", name, (name, x), ("i1", "false"))
            case "abs":
                return x
            case "popcount":
                return self.call(f"llvm.ctpop.{suffix}", name, (name, x))
        zeros = {"ctz": "cttz", "clz": "ctlz"}[op]
        return self.call(f"llvm.{zeros}.{suffix}", name, (name, x), ("i1", "false"))

    def _float_unary(self, op: str, x: str, type: Type) -> str:
        name = self.name(type)
        if op == "neg":
            return self.op(f"fneg {name} {x}")
        if op in _LIBRARY:
            return self._library(op, type, x)
        return self.call(f"llvm.{_FLOAT_INTRINSICS[op]}.{self.suffix(type)}", name, (name, x))

    def _overflows(self, op: str, x: str, y: str, type: Type) -> str:
        if op == "mul":
            return self._product_overflows(x, y, type)
        name = self.name(type)
        if self.scalar and type.kind == "int":
            pair = "{ " + name + ", i1 }"
            both = self.call(f"llvm.s{op}.with.overflow.{name}", pair, (name, x), (name, y))
            return self.op(f"extractvalue {pair} {both}, 1")
        # Comparing bits, unlike llvm.sadd.with.overflow, leaves the loop vectorisable.
        result = self.op(f"{op} {name} {x}, {y}")
        if type.kind == "uint":
            return self.op(f"icmp ult {name} {result if op == 'add' else x}, {x if op == 'add' else y}")
        first = self.op(f"xor {name} {x}, {result}")
        second = self.op(f"xor {name} {y}, {result}" if op == "add" else f"xor {name} {x}, {y}")
        both = self.op(f"and {name} {first}, {second}")
        return self.op(f"icmp slt {name} {both}, {self.literal(0, type)}")

    def _product_overflows(self, x: str, y: str, type: Type) -> str:
        name, sign = type_name(type), "s" if type.kind == "int" else "u"
        if type.bits >= 64:
            pair = "{ " + name + ", i1 }"
            both = self.call(f"llvm.{sign}mul.with.overflow.{name}", pair, (name, x), (name, y))
            return self.op(f"extractvalue {pair} {both}, 1")
        wide, extend = f"i{type.bits * 2}", "sext" if sign == "s" else "zext"
        first = self.op(f"{extend} {name} {x} to {wide}")
        second = self.op(f"{extend} {name} {y} to {wide}")
        product = self.op(f"mul {wide} {first}, {second}")
        kept = self.op(f"trunc {wide} {product} to {name}")
        again = self.op(f"{extend} {name} {kept} to {wide}")
        return self.op(f"icmp ne {wide} {again}, {product}")

    # -- conversions ----------------------------------------------------------------------------

    def cast(self, x: str, source: Type, target: Type) -> str:
        """Convert a number: integers wrap, floats saturate, anything but zero is true."""
        if source == target:
            return x
        before, after = self.name(source), self.name(target)
        if target.kind == "bool":
            return self._compare("ne", x, self.literal(0, source), source)
        if source.is_float and target.is_float:
            return self.op(f"{'fpext' if target.bits > source.bits else 'fptrunc'} {before} {x} to {after}")
        if source.is_float:
            sign = "s" if target.kind == "int" else "u"
            return self.call(
                f"llvm.fpto{sign}i.sat.{self.suffix(target)}.{self.suffix(source)}", after, (before, x)
            )
        sign = "s" if source.kind == "int" else "u"
        if target.is_float:
            return self.op(f"{sign}itofp {before} {x} to {after}")
        if target.bits == source.bits:
            return x
        if target.bits < source.bits:
            return self.op(f"trunc {before} {x} to {after}")
        return self.op(f"{'sext' if sign == 's' else 'zext'} {before} {x} to {after}")

    def _bitcast(self, x: str, source: Type, target: Type) -> str:
        before, after = self.name(source), self.name(target)
        return x if before == after else self.op(f"bitcast {before} {x} to {after}")
