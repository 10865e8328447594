"""Check that a kernel obeys the grammar of `nodes.py`.

This check establishes once what later stages rely on: types agree, names are declared before they are used
and only once, indices are i64, conditions are bool, every operator is defined for its type. A violation is a
bug of Penstock, never of a user's query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

from penstock.errors import VerificationError
from penstock.loop.nodes import (
    BOOL,
    COMPARISON,
    I64,
    MACHINE_TYPES,
    U8,
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
    Space,
    Stmt,
    Store,
    Type,
    Unary,
    Value,
    Var,
    While,
)
from penstock.loop.numbers import fits
from penstock.loop.show import show_statement

# Local buffers lie on the stack of the thread that runs the kernel.
MOST_LOCAL_BYTES = 1 << 20

_BITWISE = frozenset({"and", "or", "xor"})
_ORDER = frozenset({"min", "max"})
_SHARED = frozenset({"add", "sub", "mul", "div", "rem"})
BINARY_OPS = {
    "bool": _BITWISE | _ORDER | COMPARISON,
    "int": _SHARED | _BITWISE | _ORDER | COMPARISON | {"shl", "shr"},
    "uint": _SHARED | _BITWISE | _ORDER | COMPARISON | {"shl", "shr"},
    "float": _SHARED | _ORDER | COMPARISON | {"pow"},
}
_INTEGER_UNARY = frozenset({"neg", "not", "abs", "popcount", "ctz", "clz"})
UNARY_OPS = {
    "bool": frozenset({"not"}),
    "int": _INTEGER_UNARY,
    "uint": _INTEGER_UNARY,
    "float": frozenset({"neg", "abs", "sqrt", "exp", "log", "log2", "log10", "sin", "cos", "tan"})
    | {"floor", "ceil", "rint", "trunc"},
}
_WORDS = frozenset({8, 16, 32, 64})  # bits of a literal
OVERFLOW_OPS = frozenset({"add", "sub", "mul"})
GROUP_OPS = frozenset({"add", "mul", "and", "or", "xor", "min", "max"})


def verify(kernel: Kernel) -> None:
    """Raise `VerificationError`, naming the statement, unless the kernel is well formed."""
    checker = _Checker(kernel)
    checker.declarations()
    checker.block(kernel.body)


class _Checker:
    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._where: Callable[[], str] = lambda: "parameters"
        self._seen: set[str] = set()  # all names of the kernel: unique in it, not only in scope
        self._scope: dict[str, Var] = {}
        self._buffers: dict[str, Buffer] = {}
        self._fixed: set[str] = set()  # loop indices
        self._literals: dict[str, Literal] = {}
        self._checked: set[int] = set()

    def _require(self, condition: bool, problem: str) -> None:
        if not condition:
            self._refuse(problem)

    def _refuse(self, problem: str) -> NoReturn:
        """Raise the error. Checks of every value call this only on failure: formatting a message costs more than a check."""
        raise VerificationError(f"kernel {self._kernel.name}, {self._where()}: {problem}")

    def declarations(self) -> None:
        for parameter in self._kernel.params:
            self._type(parameter.type)
            if isinstance(parameter, Buffer):
                self._require(parameter.length is None, f"parameter {parameter.name} has a fixed length")
                self._require(parameter.space != Space.LOCAL, f"parameter {parameter.name} is local")
                self._add_buffer(parameter)
            else:
                self._require(parameter.type.bits <= 64, f"parameter {parameter.name} is wider than a word")
                self._declare(parameter)
        self._declare_literals()
        self._local_buffers()

    def _declare_literals(self) -> None:
        for literal in self._kernel.literals:
            self._require(literal.type.bits in _WORDS, f"the literal {literal.name} is not a word")
            self._constant(Const(literal.value, literal.type))
            self._new_name(literal.name)
            self._literals[literal.name] = literal

    def _local_buffers(self) -> None:
        size = 0
        for buffer in self._kernel.locals:
            self._type(buffer.type)
            self._require(buffer.space == Space.LOCAL, f"scratch buffer {buffer.name} is not local")
            self._require(bool(buffer.length) and (buffer.length or 0) > 0, f"{buffer.name} has no length")
            self._add_buffer(buffer)
            size += (buffer.length or 0) * max(buffer.type.bits // 8, 1)
        self._require(size <= MOST_LOCAL_BYTES, f"{size} bytes of local buffers do not fit the stack")

    def _type(self, type: Type) -> None:
        known = MACHINE_TYPES.get(type.name)
        if known is not type and known != type:
            self._refuse(f"{type!r} is not a type of the loop IR")

    def _new_name(self, name: str) -> None:
        if name in self._seen:
            self._refuse(f"the name {name!r} is declared twice")
        self._seen.add(name)

    def _declare(self, var: Var) -> None:
        self._type(var.type)
        self._new_name(var.name)
        self._scope[var.name] = var

    def _add_buffer(self, buffer: Buffer) -> None:
        self._new_name(buffer.name)
        self._buffers[buffer.name] = buffer

    @contextmanager
    def _inner_scope(self) -> Iterator[None]:
        outer = len(self._scope)
        yield
        while len(self._scope) > outer:  # names are unique, so those declared inside are the last ones
            self._scope.popitem()

    # -- statements -----------------------------------------------------------------------------

    def block(self, block: Block) -> None:
        for stmt in block:
            self._where = lambda stmt=stmt: f"`{show_statement(stmt)}`"  # type: ignore[misc]
            self._checked.clear()
            self._statement(stmt)

    def _statement(self, stmt: Stmt) -> None:
        match stmt:
            case Declare(var, value):
                self._typed(value, var.type)
                self._declare(var)
            case Assign(var, value):
                self._typed(value, var.type)
                self._variable(var)
                self._require(var.name not in self._fixed, f"{var.name} is a loop's index")
            case Store(buffer, index, value):
                self._access(buffer, index, write=True)
                self._typed(value, buffer.type)
            case Atomic():
                self._atomic(stmt)
            case For():
                self._for(stmt)
            case While(condition, body):
                self._typed(condition, BOOL)
                self._nested(body)
            case If(condition, then, orelse):
                self._typed(condition, BOOL)
                self._nested(then)
                self._nested(orelse)
            case Return(value):
                self._typed(value, I64)
            case _:
                self._require(False, "not a statement of the loop IR")

    def _nested(self, block: Block) -> None:
        with self._inner_scope():
            self.block(block)

    def _for(self, stmt: For) -> None:
        self._typed(stmt.start, I64)
        self._typed(stmt.stop, I64)
        self._require(stmt.var.type == I64, f"the index {stmt.var.name} is not i64")
        with self._inner_scope():
            self._declare(stmt.var)
            self._fixed.add(stmt.var.name)
            self.block(stmt.body)

    def _atomic(self, stmt: Atomic) -> None:
        type = stmt.buffer.type
        self._access(stmt.buffer, stmt.index, write=True)
        self._typed(stmt.value, type)
        legal = stmt.op in BINARY_OPS[type.kind] and stmt.op not in COMPARISON
        self._require(legal, f"{stmt.op} is not an operator on {type}")
        self._require(type.bits <= 64, f"no machine combines {type} atomically")
        if stmt.old is not None:
            self._require(stmt.old.type == type, f"{stmt.old.name} is {stmt.old.type}, the buffer {type}")
            self._declare(stmt.old)

    # -- values ---------------------------------------------------------------------------------

    def _typed(self, value: Value, type: Type) -> None:
        self._value(value)
        if not _same(value.type, type):
            self._refuse(f"expected {type}, found {value.type}")

    def _access(self, buffer: Buffer, index: Value, write: bool = False) -> None:
        known = self._buffers.get(buffer.name)
        if known is not buffer and known != buffer:
            self._refuse(f"the buffer {buffer.name} is not declared so")
        if write and buffer.space == Space.CONSTANT:
            self._refuse(f"{buffer.name} is constant")
        self._typed(index, I64)

    def _variable(self, var: Var) -> None:
        known = self._scope.get(var.name)
        if known is None:
            self._refuse(f"{var.name} is not declared here")
        if known is not var and known != var:
            self._refuse(f"{var.name} is declared as another type than {var.type}")

    def _value(self, node: Value) -> None:
        if id(node) not in self._checked:
            self._check(node)
            self._checked.add(id(node))

    def _check(self, node: Value) -> None:
        match node:
            case Const():
                self._constant(node)
            case Literal(name):
                if self._literals.get(name) is not node:
                    self._refuse(f"the literal {name} is not one of this kernel")
            case Var():
                self._variable(node)
            case Load(buffer, index):
                self._access(buffer, index)
            case Peek(buffer, index, type):
                self._access(buffer, index)
                self._type(type)
                self._require(buffer.type == U8, f"cannot peek {type} in {buffer.type}s")
            case Binary(op, a, b):
                self._pair(a, b)
                if op not in BINARY_OPS[a.type.kind]:
                    self._refuse(f"{op} is not an operator on {a.type}")
            case Unary(op, a):
                self._value(a)
                self._require(op in UNARY_OPS[a.type.kind], f"{op} is not an operator on {a.type}")
            case Overflows(op, a, b):
                self._pair(a, b)
                legal = op in OVERFLOW_OPS and a.type.kind in ("int", "uint")
                self._require(legal and node.type == BOOL, f"{op} does not overflow on {a.type}")
            case Select(condition, a, b):
                self._typed(condition, BOOL)
                self._pair(a, b)
            case Cast(a, type):
                self._value(a)
                self._type(type)
            case Bitcast(a, type):
                self._value(a)
                self._type(type)
                self._require(a.type.bits == type.bits, f"{a.type} and {type} differ in width")
            case GroupReduce(op, a) | GroupScan(op, a):
                self._value(a)
                legal = op in GROUP_OPS & BINARY_OPS[a.type.kind]
                self._require(legal, f"a group cannot {op} {a.type}")
            case _:
                self._require(False, "not a value of the loop IR")

    def _pair(self, a: Value, b: Value) -> None:
        self._value(a)
        self._value(b)
        if not _same(a.type, b.type):
            self._refuse(f"{a.type} meets {b.type}")

    def _constant(self, const: Const) -> None:
        self._type(const.type)
        kind = {"bool": bool, "float": float}.get(const.type.kind, int)
        if type(const.value) is not kind:
            self._refuse(f"{const.value!r} is not a {const.type}")
        if kind is int and not fits(int(const.value), const.type):
            self._refuse(f"{const.value} does not fit {const.type}")


def _same(a: Type, b: Type) -> bool:
    return a is b or a == b
