"""What is known while a kernel is written is computed then, and means what the machine would have made of it."""

from __future__ import annotations

import pytest

from penstock.loop.nodes import BOOL, F64, I64, Binary, Select, Var, const, select

X, FLAG = Var("x", I64), Var("flag", BOOL)
LARGEST = (1 << 63) - 1


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        (X + 0, X),
        (X - 0, X),
        (X - 6 + 13, Binary("add", X, const(7, I64))),
        (X + 6 - 13, Binary("sub", X, const(7, I64))),
        (X + 5 - 5, X),
        (const(2, I64) + 3, const(5, I64)),
        (const(0, I64).eq(0), const(True, BOOL)),
        (const(0, I64).eq(1), const(False, BOOL)),
        (select(const(True, BOOL), X, 3), X),
        (select(const(False, BOOL), X, 3), const(3, I64)),
    ],
)
def test_what_is_known_is_not_computed(written, kept) -> None:
    assert written == kept


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        (Var("f", F64) + 0.0, Binary("add", Var("f", F64), const(0.0, F64))),  # -0.0 + 0.0 is 0.0
        (const(LARGEST, I64) + 1, Binary("add", const(LARGEST, I64), const(1, I64))),
        (X + LARGEST + 1, Binary("add", Binary("add", X, const(LARGEST, I64)), const(1, I64))),
        (select(FLAG, X, 3), Select(FLAG, X, const(3, I64))),
    ],
)
def test_what_rounds_or_wraps_is_left_to_the_machine(written, kept) -> None:
    assert written == kept
