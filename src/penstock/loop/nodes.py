"""The loop IR: the language of all kernels.

    kernel ::= name (params) locals body literals   returns i64: a status or a position
    param  ::= Var | Buffer                         buffers are indexed, never pointers
    stmt   ::= Declare(var, value)                  a new mutable scalar
             | Assign(var, value)
             | Store(buffer, index, value)
             | Atomic(op, buffer, index, value, old)   old = buffer[index]; buffer[index] = op(old, value)
             | For(var, start, stop, body, parallel, scalar, brief, unrolled)   parallel: iterations in any order or at once (2 to 16
                                                    form a vector); scalar: not vectorised, for few or long iterations; brief:
                                                    vectorised with little code; unrolled: for many short iterations
             | While(condition, body)
             | If(condition, then, orelse)
             | Return(value)
    value  ::= Const | Literal(name, value, type)   a constant of the query; kernels that differ in literals alone share code
             | Var | Load(buffer, index, fresh)     fresh: read from memory, even if the stored value is known
             | Peek(buffer, index, type)            the little-endian value at a byte offset of a u8 buffer; a bool: at an offset in bits
             | Unary(op, a) | Binary(op, a, b) | Overflows(op, a, b) | Select(condition, a, b)
             | Cast(a, type)                        numeric conversion; float → int saturates, NaN → 0
             | Bitcast(a, type)                     same width, other reading
             | GroupReduce(op, a) | GroupScan(op, a)   over the work items of a group; scans are exclusive
    op     ::= add sub mul div rem min max and or xor shl shr pow   (integers wrap, div truncates)
             | eq ne lt le gt ge                    → bool; floats compare as IEEE 754
             | neg not abs sqrt exp log log2 log10 sin cos tan floor ceil rint trunc popcount ctz clz
    type   ::= bool i8 i16 i32 i64 i128 u8 u16 u32 u64 f32 f64
    space  ::= global | local (shared by a group, or the kernel's own scratch on a CPU) | constant

No behaviour is undefined: shifts count modulo the width, division by zero gives 0 for integers, and a read
outside a buffer is a bug of the kernel's builder. `interpret.py` is the definition. Distinct buffer
parameters never overlap.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal as Lit


@dataclass(frozen=True, slots=True)
class Type:
    name: str
    kind: Lit["bool", "int", "uint", "float"]
    bits: int

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_signed(self) -> bool:
        return self.kind in ("int", "float")

    def __str__(self) -> str:
        return self.name


BOOL = Type("bool", "bool", 1)
I8, I16, I32, I64, I128 = (Type(f"i{bits}", "int", bits) for bits in (8, 16, 32, 64, 128))
U8, U16, U32, U64 = (Type(f"u{bits}", "uint", bits) for bits in (8, 16, 32, 64))
F32, F64 = (Type(f"f{bits}", "float", bits) for bits in (32, 64))
MACHINE_TYPES = {dtype.name: dtype for dtype in (BOOL, I8, I16, I32, I64, I128, U8, U16, U32, U64, F32, F64)}

COMPARISON = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})


class Space(StrEnum):
    GLOBAL = "global"
    LOCAL = "local"
    CONSTANT = "constant"


class Value:
    """A typed value. Operators build larger values; Python numbers become constants of the other operand's type."""

    __slots__ = ()
    type: Type

    def __add__(self, other: Operand) -> Value:
        return binary("add", self, other)

    def __sub__(self, other: Operand) -> Value:
        return binary("sub", self, other)

    def __mul__(self, other: Operand) -> Value:
        return binary("mul", self, other)

    def __and__(self, other: Operand) -> Value:
        return binary("and", self, other)

    def __or__(self, other: Operand) -> Value:
        return binary("or", self, other)

    def __xor__(self, other: Operand) -> Value:
        return binary("xor", self, other)

    def __lshift__(self, other: Operand) -> Value:
        return binary("shl", self, other)

    def __rshift__(self, other: Operand) -> Value:
        return binary("shr", self, other)

    def __invert__(self) -> Value:
        return Unary("not", self)

    def __neg__(self) -> Value:
        return Unary("neg", self)

    def __lt__(self, other: Operand) -> Value:
        return binary("lt", self, other)

    def __le__(self, other: Operand) -> Value:
        return binary("le", self, other)

    def __gt__(self, other: Operand) -> Value:
        return binary("gt", self, other)

    def __ge__(self, other: Operand) -> Value:
        return binary("ge", self, other)

    def eq(self, other: Operand) -> Value:
        return binary("eq", self, other)

    def ne(self, other: Operand) -> Value:
        return binary("ne", self, other)

    def div(self, other: Operand) -> Value:
        return binary("div", self, other)

    def rem(self, other: Operand) -> Value:
        return binary("rem", self, other)

    def to(self, type: Type) -> Value:
        return self if self.type == type else Cast(self, type)


Operand = Value | int | float | bool
_FAR = 1 << 62


@dataclass(frozen=True, slots=True)
class Const(Value):
    value: int | float | bool
    type: Type

    def __hash__(self) -> int:
        return hash((repr(self.value), self.type))

    def __eq__(self, other: object) -> bool:
        """Compare by representation: NaN equals itself, 0.0 differs from -0.0."""
        return isinstance(other, Const) and self.type == other.type and repr(self.value) == repr(other.value)


@dataclass(frozen=True, slots=True)
class Literal(Value):
    """A constant of the query, passed to compiled code: builders may use only its properties, such as its sign."""

    name: str
    value: int | float
    type: Type


@dataclass(frozen=True, slots=True)
class Var(Value):
    name: str
    type: Type


@dataclass(frozen=True, slots=True)
class Buffer:
    """An array of one type. `length` is set for local buffers only."""

    name: str
    type: Type
    space: Space = Space.GLOBAL
    length: int | None = None

    def __getitem__(self, index: Operand) -> Value:
        return Load(self, as_value(index, I64))


@dataclass(frozen=True, slots=True)
class Load(Value):
    """Read an element. `fresh` forces compilers to store register contents first, in whole vectors."""

    buffer: Buffer
    index: Value
    fresh: bool = False

    @property
    def type(self) -> Type:  # type: ignore[override]
        return self.buffer.type


@dataclass(frozen=True, slots=True)
class Peek(Value):
    """Read a wider value from bytes at any alignment: strings, bitmaps and masks, several elements at a time."""

    buffer: Buffer
    index: Value
    type: Type


class _Alike(Value):
    """A value of the type of its operand."""

    __slots__ = ()
    a: Value

    @property
    def type(self) -> Type:  # type: ignore[override]
        return self.a.type


@dataclass(frozen=True, slots=True)
class Unary(_Alike):
    op: str
    a: Value


@dataclass(frozen=True, slots=True)
class Binary(Value):
    op: str
    a: Value
    b: Value

    @property
    def type(self) -> Type:  # type: ignore[override]
        return BOOL if self.op in COMPARISON else self.a.type


@dataclass(frozen=True, slots=True)
class Overflows(Value):
    """Whether integer `a op b` (add, sub or mul) leaves the range of its type."""

    op: str
    a: Value
    b: Value
    type: Type = field(default=BOOL)


@dataclass(frozen=True, slots=True)
class Select(_Alike):
    condition: Value
    a: Value
    b: Value


@dataclass(frozen=True, slots=True)
class Cast(Value):
    a: Value
    type: Type


@dataclass(frozen=True, slots=True)
class Bitcast(Value):
    a: Value
    type: Type


@dataclass(frozen=True, slots=True)
class GroupReduce(_Alike):
    op: str
    a: Value


@dataclass(frozen=True, slots=True)
class GroupScan(_Alike):
    op: str
    a: Value


@dataclass(frozen=True, slots=True)
class Declare:
    var: Var
    value: Value


@dataclass(frozen=True, slots=True)
class Assign:
    var: Var
    value: Value


@dataclass(frozen=True, slots=True)
class Store:
    buffer: Buffer
    index: Value
    value: Value


@dataclass(frozen=True, slots=True)
class Atomic:
    op: str
    buffer: Buffer
    index: Value
    value: Value
    old: Var | None = None


@dataclass(frozen=True, slots=True)
class For:
    var: Var
    start: Value
    stop: Value
    body: Block
    parallel: bool = False
    scalar: bool = False
    brief: bool = False  # vectorised, with little code
    unrolled: bool = False  # not vectorised, but unrolled


@dataclass(frozen=True, slots=True)
class While:
    condition: Value
    body: Block


@dataclass(frozen=True, slots=True)
class If:
    condition: Value
    then: Block
    orelse: Block = ()


@dataclass(frozen=True, slots=True)
class Return:
    value: Value


Stmt = Declare | Assign | Store | Atomic | For | While | If | Return
Block = tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Kernel:
    name: str
    params: tuple[Var | Buffer, ...]
    locals: tuple[Buffer, ...]
    body: Block
    literals: tuple[Literal, ...] = ()


def as_value(operand: Operand, like: Type) -> Value:
    """Convert a plain number to a constant of the given type; return values unchanged."""
    return operand if isinstance(operand, Value) else const(operand, like)


def const(value: int | float | bool, type: Type) -> Const:
    """Make a constant, converted to the Python type of its machine type."""
    python = {"bool": bool, "float": float}.get(type.kind, int)
    return Const(python(value), type)


def binary(op: str, a: Operand, b: Operand) -> Value:
    """Combine two operands; at least one is a value and determines the type."""
    if isinstance(a, Value):
        return _combined(op, a, as_value(b, a.type))
    assert isinstance(b, Value)
    return _combined(op, as_value(a, b.type), b)


def _combined(op: str, a: Value, b: Value) -> Value:
    """Fold constants: kernels contain many offsets and counts, and each remaining one costs compile time."""
    if isinstance(b, Const) and b.type is I64 and op in ("add", "sub"):
        return _moved(a, int(b.value) if op == "add" else -int(b.value)) or Binary(op, a, b)
    if op == "eq" and isinstance(a, Const) and isinstance(b, Const) and a.type is b.type is I64:
        return Const(a.value == b.value, BOOL)
    return Binary(op, a, b)


def _moved(a: Value, by: int) -> Value | None:
    """Add a constant offset without a new operation, or return None; sums that might wrap are not folded."""
    match a:
        case Const(number) if abs(int(number) + by) < _FAR:
            return Const(int(number) + by, I64)
        case Binary("add" | "sub" as op, place, Const(number)):
            by += int(number) if op == "add" else -int(number)
            moved = Binary("add" if by > 0 else "sub", place, Const(abs(by), I64)) if by else place
            return moved if abs(by) < _FAR else None
    return None if by else a


def select(condition: Value, a: Operand, b: Operand) -> Value:
    """Choose without branching; at least one side is a value and determines the type."""
    like = a.type if isinstance(a, Value) else b.type if isinstance(b, Value) else None
    assert like is not None
    if isinstance(condition, Const):
        return as_value(a if condition.value else b, like)
    return Select(condition, as_value(a, like), as_value(b, like))


def minimum(a: Operand, b: Operand) -> Value:
    """The smaller of two (for floats: a if a < b else b)."""
    return binary("min", a, b)


def maximum(a: Operand, b: Operand) -> Value:
    """The larger of two (for floats: a if a > b else b)."""
    return binary("max", a, b)
