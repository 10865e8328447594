"""Draw random kernels: typed, terminating, and never outside a buffer."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import (
    BOOL,
    COMPARISON,
    F32,
    F64,
    I8,
    I32,
    I64,
    I128,
    U8,
    U16,
    U64,
    Binary,
    Buffer,
    Cast,
    Kernel,
    Overflows,
    Peek,
    Select,
    Type,
    Unary,
    Value,
    Var,
    const,
)
from penstock.loop.verify import BINARY_OPS, OVERFLOW_OPS, UNARY_OPS
from tests.unit.codegen.numbers_of import numbers

SCALARS = [BOOL, I8, I32, I64, I128, U8, U16, U64, F32, F64]
STORED = [BOOL, I32, I64, U8, F64]
LENGTH = 8
_DEEPEST = 2


@dataclass
class _Scope:
    """What a statement may use."""

    k: KernelBuilder
    draw: st.DrawFn
    buffers: list[Buffer]
    readable: list[Var]
    writable: list[Var]
    depth: int = 0
    partition: Var | None = None  # inside a loop whose turns may run at once, its index; there are so many
    partitions: int = 0

    def inner(self) -> _Scope:
        lists = list(self.buffers), list(self.readable), list(self.writable)
        return _Scope(self.k, self.draw, *lists, self.depth + 1)


@st.composite
def kernels(draw: st.DrawFn) -> Kernel:
    """Draw a kernel over buffers of LENGTH elements and two scalars."""
    k = KernelBuilder("random")
    buffers = [k.buffer(f"b_{type}", type) for type in STORED]
    scalars = [k.scalar("n", I64), k.scalar("x", F64), k.scalar("flag", BOOL)]
    scratch = k.local("scratch", I64, LENGTH)
    with k.for_(0, LENGTH) as i:
        k.store(scratch, i, i)
    scope = _Scope(k, draw, [*buffers, scratch], scalars, scalars[:])
    _statements(scope, draw(st.integers(1, 6)))
    k.ret(_value(scope, I64, 2))
    return k.build()


def _statements(scope: _Scope, count: int) -> None:
    for _ in range(count):
        choices = [_declare, _assign, _store, _atomic]
        if scope.depth < _DEEPEST:
            choices += [_if, _for, _while, _parallel]
        scope.draw(st.sampled_from(choices))(scope)


def _declare(scope: _Scope) -> None:
    type = scope.draw(st.sampled_from(SCALARS))
    var = scope.k.var("v", _value(scope, type, 3), type)
    scope.readable.append(var)
    scope.writable.append(var)


def _assign(scope: _Scope) -> None:
    var = scope.draw(st.sampled_from(scope.writable))
    scope.k.set(var, _value(scope, var.type, 3))


def _store(scope: _Scope) -> None:
    buffer = scope.draw(st.sampled_from(scope.buffers))
    scope.k.store(buffer, _index(scope), _value(scope, buffer.type, 3))


def _atomic(scope: _Scope) -> None:
    buffer = scope.draw(st.sampled_from(scope.buffers))
    op = scope.draw(st.sampled_from(sorted(BINARY_OPS[buffer.type.kind] - COMPARISON)))
    old = scope.k.atomic(op, buffer, _index(scope), _value(scope, buffer.type, 2), old="old")
    assert old is not None
    scope.readable.append(old)


def _if(scope: _Scope) -> None:
    with scope.k.if_(_value(scope, BOOL, 2)):
        _body(scope)
    if scope.draw(st.booleans()):
        with scope.k.else_():
            _body(scope)


def _body(scope: _Scope) -> None:
    inner = scope.inner()
    _statements(inner, scope.draw(st.integers(1, 3)))
    if scope.draw(st.integers(0, 9)) == 0:
        scope.k.ret(_value(inner, I64, 1))


def _for(scope: _Scope) -> None:
    start = scope.draw(st.integers(-2, 2))
    stop = start + scope.draw(st.integers(-1, 9))
    way = scope.draw(st.sampled_from(["", "scalar", "brief", "unrolled"]))
    with scope.k.for_(start, stop, **{way: True} if way else {}) as index:
        inner = scope.inner()
        inner.readable.append(index)
        _statements(inner, scope.draw(st.integers(1, 3)))


def _parallel(scope: _Scope) -> None:
    """A loop whose turns may run at once: each writes places of its own, and reads none that another writes."""
    k, partitions = scope.k, scope.draw(st.sampled_from([2, 3, 4, 8]))
    written = k.local("written", scope.draw(st.sampled_from(STORED)), 2 * LENGTH)
    with k.for_(0, 2 * LENGTH) as i:
        k.store(written, i, const(1, written.type))
    bits, some = k.var("bits", _value(scope, I64, 1)), k.var("some", _value(scope, BOOL, 1))
    with k.for_(0, partitions, parallel=True) as partition:
        inner = scope.inner()
        inner.readable.append(partition)
        inner.partition, inner.partitions = partition, partitions
        for _ in range(scope.draw(st.integers(0, 2))):
            _declare(inner)
        k.store(written, partition + scope.draw(st.integers(0, LENGTH)), _value(inner, written.type, 3))
        flag = _value(inner, BOOL, 2)
        k.set(some, some | flag)
        k.set(bits, bits | scope.draw(st.sampled_from([flag.to(I64) << partition, _value(inner, I64, 2)])))
    scope.buffers.append(written)
    scope.readable += [bits, some]


def _while(scope: _Scope) -> None:
    fuel = scope.k.var("fuel", scope.draw(st.integers(0, 5)))
    with scope.k.while_((fuel > 0) & _value(scope, BOOL, 1)):
        scope.k.set(fuel, fuel - 1)
        _body(scope)


def _index(scope: _Scope) -> Value:
    if scope.partition is not None and scope.draw(st.booleans()):
        return scope.partition + scope.draw(st.integers(0, LENGTH - scope.partitions))
    return _value(scope, I64, 1) & (LENGTH - 1)


def _value(scope: _Scope, type: Type, depth: int) -> Value:
    leaves = [_constant, *([_variable] if any(variable.type == type for variable in scope.readable) else [])]
    leaves += [_load] if any(buffer.type == type for buffer in scope.buffers) else []
    inner = [_binary, _select, _cast, *([_unary] if UNARY_OPS[type.kind] else [])]
    inner += [_compare, _overflows] if type == BOOL else []
    inner += [_peek] if type.bits in (1, 8, 16) else []
    return scope.draw(st.sampled_from(leaves if depth == 0 else leaves + inner))(scope, type, depth - 1)


def _constant(scope: _Scope, type: Type, depth: int) -> Value:
    return const(scope.draw(numbers(type)), type)


def _variable(scope: _Scope, type: Type, depth: int) -> Value:
    return scope.draw(st.sampled_from([variable for variable in scope.readable if variable.type == type]))


def _load(scope: _Scope, type: Type, depth: int) -> Value:
    return scope.draw(st.sampled_from([buffer for buffer in scope.buffers if buffer.type == type]))[
        _index(scope)
    ]


def _peek(scope: _Scope, type: Type, depth: int) -> Value:
    data = next(buffer for buffer in scope.buffers if buffer.type == U8)
    if type == BOOL and scope.partition is not None:
        return Peek(data, scope.partition + scope.draw(st.integers(0, 8 * (LENGTH - 1))), BOOL)
    return Peek(data, _value(scope, I64, 1) & (8 * LENGTH - 1 if type == BOOL else 3), type)


def _binary(scope: _Scope, type: Type, depth: int) -> Value:
    op = scope.draw(st.sampled_from(sorted(BINARY_OPS[type.kind] - COMPARISON)))
    return Binary(op, _value(scope, type, depth), _value(scope, type, depth))


def _compare(scope: _Scope, type: Type, depth: int) -> Value:
    of = scope.draw(st.sampled_from(SCALARS))
    op = scope.draw(st.sampled_from(sorted(COMPARISON)))
    return Binary(op, _value(scope, of, depth), _value(scope, of, depth))


def _overflows(scope: _Scope, type: Type, depth: int) -> Value:
    of = scope.draw(st.sampled_from([I8, I32, I64, U8, U64, I128]))
    op = scope.draw(st.sampled_from(sorted(OVERFLOW_OPS)))
    return Overflows(op, _value(scope, of, depth), _value(scope, of, depth))


def _unary(scope: _Scope, type: Type, depth: int) -> Value:
    return Unary(scope.draw(st.sampled_from(sorted(UNARY_OPS[type.kind]))), _value(scope, type, depth))


def _select(scope: _Scope, type: Type, depth: int) -> Value:
    return Select(_value(scope, BOOL, depth), _value(scope, type, depth), _value(scope, type, depth))


def _cast(scope: _Scope, type: Type, depth: int) -> Value:
    return Cast(_value(scope, scope.draw(st.sampled_from(SCALARS)), depth), type)
