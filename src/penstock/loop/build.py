"""Build loop-IR kernels in Python: `with k.for_(0, n) as i: k.store(out, i, x[i] + 1)`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from penstock.loop.nodes import (
    I64,
    Assign,
    Atomic,
    Block,
    Buffer,
    Const,
    Declare,
    For,
    If,
    Kernel,
    Literal,
    Operand,
    Return,
    Space,
    Stmt,
    Store,
    Type,
    Value,
    Var,
    While,
    as_value,
    const,
)


class KernelBuilder:
    """Collects parameters and statements; `build()` returns the immutable kernel.

    Names are hints for readers of `show`: each is made unique with a number, and none contains user text.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._params: list[Var | Buffer] = []
        self._locals: list[Buffer] = []
        self._literals: list[Literal] = []
        self._blocks: list[list[Stmt]] = [[]]
        self._used: dict[str, int] = {}
        self.shared: dict[tuple[str, str], Buffer] = {}

    def _unique(self, hint: str) -> str:
        count = self._used.get(hint, 0)
        self._used[hint] = count + 1
        return hint if count == 0 else f"{hint}.{count}"

    def scalar(self, hint: str, type: Type = I64) -> Var:
        """Add a scalar parameter."""
        var = Var(self._unique(hint), type)
        self._params.append(var)
        return var

    def buffer(self, hint: str, type: Type, space: Space = Space.GLOBAL) -> Buffer:
        """Add a buffer parameter."""
        buffer = Buffer(self._unique(hint), type, space)
        self._params.append(buffer)
        return buffer

    def literal(self, value: int | float, type: Type) -> Literal | Const:
        """Add a constant of the query, passed as an argument; booleans, NaN and 128 bits become constants of the code."""
        known = const(value, type)
        if type.kind == "bool" or type.bits > I64.bits or known.value != known.value:
            return known
        literal = Literal(self._unique("constant"), known.value, type)
        self._literals.append(literal)
        return literal

    def shared_buffer(self, role: str, owner: str, type: Type) -> Buffer:
        """Return the buffer parameter for a role and an owner, declared on first use."""
        if (role, owner) not in self.shared:
            self.shared[role, owner] = self.buffer(role, type)
        return self.shared[role, owner]

    def local(self, hint: str, type: Type, length: int) -> Buffer:
        """Add a scratch buffer that lives for one call. Its contents are undefined at first."""
        buffer = Buffer(self._unique(hint), type, Space.LOCAL, length)
        self._locals.append(buffer)
        return buffer

    def _emit(self, stmt: Stmt) -> None:
        self._blocks[-1].append(stmt)

    def var(self, hint: str, value: Operand, type: Type = I64) -> Var:
        """Declare a scalar, mutable with `set`. The type is the value's unless it is a plain number."""
        initial = as_value(value, type)
        var = Var(self._unique(hint), initial.type)
        self._emit(Declare(var, initial))
        return var

    def set(self, var: Var, value: Operand) -> None:
        self._emit(Assign(var, as_value(value, var.type)))

    def store(self, buffer: Buffer, index: Operand, value: Operand) -> None:
        self._emit(Store(buffer, as_value(index, I64), as_value(value, buffer.type)))

    def atomic(
        self, op: str, buffer: Buffer, index: Operand, value: Operand, old: str | None = None
    ) -> Var | None:
        """Combine into a buffer atomically; with `old`, return the previous value."""
        result = Var(self._unique(old), buffer.type) if old is not None else None
        self._emit(Atomic(op, buffer, as_value(index, I64), as_value(value, buffer.type), result))
        return result

    def ret(self, value: Operand) -> None:
        self._emit(Return(as_value(value, I64)))

    @contextmanager
    def _block(self) -> Iterator[list[Stmt]]:
        self._blocks.append([])
        yield self._blocks[-1]
        self._blocks.pop()

    @contextmanager
    def for_(
        self,
        start: Operand,
        stop: Operand,
        hint: str = "i",
        parallel: bool = False,
        scalar: bool = False,
        brief: bool = False,
        unrolled: bool = False,
    ) -> Iterator[Var]:
        index = Var(self._unique(hint), I64)
        with self._block() as body:
            yield index
        bounds = as_value(start, I64), as_value(stop, I64)
        self._emit(For(index, *bounds, tuple(body), parallel, scalar, brief, unrolled))

    @contextmanager
    def while_(self, condition: Value) -> Iterator[None]:
        with self._block() as body:
            yield
        self._emit(While(condition, tuple(body)))

    @contextmanager
    def if_(self, condition: Value) -> Iterator[None]:
        with self._block() as then:
            yield
        self._emit(If(condition, tuple(then)))

    @contextmanager
    def else_(self) -> Iterator[None]:
        """Add an else branch to the preceding `if_`."""
        before = self._blocks[-1].pop()
        assert isinstance(before, If) and not before.orelse, "else_ must follow if_"
        with self._block() as orelse:
            yield
        self._emit(If(before.condition, before.then, tuple(orelse)))

    def build(self) -> Kernel:
        body: Block = tuple(self._blocks[0])
        return Kernel(self.name, tuple(self._params), tuple(self._locals), body, tuple(self._literals))
