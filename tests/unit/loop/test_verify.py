"""Every rule of the grammar, broken once."""

from __future__ import annotations

import pytest

from penstock.errors import VerificationError
from penstock.loop.nodes import (
    BOOL,
    F64,
    I32,
    I64,
    I128,
    U8,
    U64,
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
    GroupScan,
    If,
    Kernel,
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
    binary,
    const,
)
from penstock.loop.verify import verify

X, F, M = Buffer("x", I64), Buffer("f", F64), Buffer("m", U8)
FIXED = Buffer("fixed", I64, Space.CONSTANT)
WIDE = Buffer("wide", I128)
N = Var("n", I64)
ZERO, ONE, TRUE, HALF = const(0, I64), const(1, I64), const(True, BOOL), const(0.5, F64)
A = Var("a", I64)


def kernel(*body: Stmt) -> Kernel:
    return Kernel("sample", (X, F, M, FIXED, WIDE, N), (), body)


def value(node: Value, type: Type = I64) -> Block:
    return (Declare(Var("v", type), node),)


BROKEN: list[tuple[str, Block, str]] = [
    ("use before declaration", (Assign(A, ZERO),), "a is not declared here"),
    ("read before declaration", (Return(A),), "a is not declared here"),
    ("declared twice", (Declare(A, ZERO), Declare(A, ZERO)), "declared twice"),
    ("shadows a parameter", (Declare(N, ZERO),), "declared twice"),
    ("shadows a buffer", (Declare(Var("x", I64), ZERO),), "declared twice"),
    ("escapes its block", (If(TRUE, (Declare(A, ZERO),)), Return(A)), "a is not declared here"),
    ("index escapes its loop", (For(A, ZERO, N, ()), Return(A)), "a is not declared here"),
    ("itself as initial value", (Declare(A, A),), "a is not declared here"),
    ("other type on use", (Declare(A, ZERO), Return(Cast(Var("a", I32), I64))), "another type"),
    ("wrong initial type", (Declare(A, HALF),), "expected i64, found f64"),
    ("wrong assigned type", (Declare(A, ZERO), Assign(A, TRUE)), "expected i64, found bool"),
    ("wrong stored type", (Store(X, ZERO, HALF),), "expected i64, found f64"),
    ("wrong index type", (Store(X, const(0, I32), ZERO),), "expected i64, found i32"),
    ("wrong load index", value(Load(X, HALF)), "expected i64, found f64"),
    ("unknown buffer", (Store(Buffer("y", I64), ZERO, ZERO),), "buffer y is not declared so"),
    ("buffer of another type", (Store(Buffer("x", F64), ZERO, HALF),), "buffer x is not declared so"),
    ("store to constant", (Store(FIXED, ZERO, ZERO),), "fixed is constant"),
    ("atomic on constant", (Atomic("add", FIXED, ZERO, ZERO),), "fixed is constant"),
    ("atomic comparison", (Atomic("eq", X, ZERO, ZERO),), "eq is not an operator on i64"),
    ("atomic on the wrong type", (Atomic("xor", F, ZERO, HALF),), "xor is not an operator on f64"),
    ("atomic too wide", (Atomic("add", WIDE, ZERO, const(0, I128)),), "atomically"),
    ("atomic result type", (Atomic("add", X, ZERO, ZERO, Var("a", I32)),), "a is i32"),
    ("condition not bool", (If(ONE, ()),), "expected bool, found i64"),
    ("loop condition not bool", (While(ONE, ()),), "expected bool, found i64"),
    ("bounds not i64", (For(A, const(0, I32), N, ()),), "expected i64, found i32"),
    ("index not i64", (For(Var("a", I32), ZERO, N, ()),), "a is not i64"),
    ("index assigned", (For(A, ZERO, N, (Assign(A, ZERO),)),), "a is a loop's index"),
    ("return not i64", (Return(HALF),), "expected i64, found f64"),
    ("mixed operands", value(binary("add", N, const(1, I32))), "i64 meets i32"),
    ("mixed choices", value(Select(TRUE, N, const(1, I32))), "i64 meets i32"),
    ("choice by a number", value(Select(ONE, N, N)), "expected bool, found i64"),
    ("power of integers", value(binary("pow", N, N)), "pow is not an operator on i64"),
    ("bits of floats", value(binary("and", HALF, HALF), F64), "and is not an operator on f64"),
    ("sum of bools", value(binary("add", TRUE, TRUE), BOOL), "add is not an operator on bool"),
    ("unknown operator", value(Binary("fma", N, N)), "fma is not an operator on i64"),
    ("root of integers", value(Unary("sqrt", N)), "sqrt is not an operator on i64"),
    ("not of floats", value(Unary("not", HALF), F64), "not is not an operator on f64"),
    ("overflow of floats", value(Overflows("add", HALF, HALF), BOOL), "does not overflow"),
    ("overflow of division", value(Overflows("div", N, N), BOOL), "does not overflow"),
    ("bitcast across widths", value(Bitcast(const(1, I32), I64)), "differ in width"),
    ("scan by subtraction", value(GroupScan("sub", N)), "a group cannot sub i64"),
    ("peek outside bytes", value(Peek(X, ZERO, U64), U64), "cannot peek u64 in i64s"),
    ("peek at bits outside bytes", value(Peek(X, ZERO, BOOL), BOOL), "cannot peek bool in i64s"),
    ("constant too large", value(const(256, U8), U8), "256 does not fit u8"),
    ("constant negative", value(const(-1, U64), U64), "-1 does not fit u64"),
    ("constant of another kind", value(Const(1, F64), F64), "1 is not a f64"),
    ("type from nowhere", value(Cast(N, Type("i7", "int", 7)), Type("i7", "int", 7)), "not a type"),
]


@pytest.mark.parametrize(
    ("body", "problem"), [statement[1:] for statement in BROKEN], ids=[statement[0] for statement in BROKEN]
)
def test_a_broken_rule_is_named(body: Block, problem: str) -> None:
    with pytest.raises(VerificationError, match=r"kernel sample, `.*`: ") as caught:
        verify(kernel(*body))
    assert problem in str(caught.value)


def test_the_error_shows_the_statement() -> None:
    with pytest.raises(VerificationError) as caught:
        verify(kernel(For(A, ZERO, N, (Store(X, A, HALF),))))
    assert str(caught.value) == "kernel sample, `x[a] = 0.5`: expected i64, found f64"


LOCAL = Buffer("l", I64, Space.LOCAL, 4)
HEADS = [
    ("local without length", Kernel("h", (), (Buffer("l", I64, Space.LOCAL),), ()), "has no length"),
    ("empty local", Kernel("h", (), (Buffer("l", I64, Space.LOCAL, 0),), ()), "has no length"),
    ("scratch in global space", Kernel("h", (), (Buffer("l", I64, Space.GLOBAL, 4),), ()), "not local"),
    ("local as parameter", Kernel("h", (Buffer("l", I64, Space.LOCAL),), (), ()), "is local"),
    ("parameter with length", Kernel("h", (Buffer("l", I64, Space.GLOBAL, 4),), (), ()), "fixed length"),
    ("two of one name", Kernel("h", (Var("l", I64),), (LOCAL,), ()), "declared twice"),
    ("parameter of 128 bits", Kernel("h", (Var("w", I128),), (), ()), "wider than a word"),
    ("more than a stack", Kernel("h", (), (Buffer("l", I64, Space.LOCAL, 1 << 20),), ()), "do not fit"),
]


@pytest.mark.parametrize(("broken", "problem"), [item[1:] for item in HEADS], ids=[pair[0] for pair in HEADS])
def test_broken_parameters_and_locals_are_named(broken: Kernel, problem: str) -> None:
    with pytest.raises(VerificationError, match=problem):
        verify(broken)


SOUND: list[tuple[str, Block]] = [
    ("nothing", ()),
    (
        "names reused in sequence are numbered",
        (If(TRUE, (Declare(A, ZERO),), (Declare(Var("a.1", I64), ONE),)),),
    ),
    ("outer variable in inner block", (Declare(A, ZERO), While(A < N, (Assign(A, A + 1),)), Return(A))),
    ("old value of an atomic", (Atomic("add", X, ZERO, ONE, A), Return(A))),
    ("comparison gives bool", (If((X[N] < 3) & (F[0] >= 0.5), (Return(ONE),)),)),
    ("bitcast of a double", value(Bitcast(HALF, I64))),
]


@pytest.mark.parametrize(
    "body", [statement[1] for statement in SOUND], ids=[statement[0] for statement in SOUND]
)
def test_sound_kernels_pass(body: Block) -> None:
    verify(kernel(*body))


def test_values_shared_many_times_are_checked_once() -> None:
    shared: Value = N
    for _ in range(200):
        shared = binary("mul", shared, shared)
    verify(kernel(Return(shared)))
