"""Take predicates apart and put them together without changing which rows they keep or fail on."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from penstock.expr.nodes import Call, Case, Expr, Literal

FALSE = Literal(False, pa.bool_())


def then(first: Expr | None, second: Expr | None, *, total: bool) -> Expr | None:
    """Keep the rows of `first` for which `second` is true too; None keeps every row.

    `first and second` is true exactly when both are, so filtering twice is filtering once. But `and`
    evaluates both sides: a second predicate that can fail is only looked at where the first is true.
    """
    if first is None or second is None:
        return second if first is None else first
    return Call("and", (first, second)) if total else Case(((first, second),), FALSE)


def conjuncts(predicate: Expr | None) -> tuple[Expr, ...]:
    """List predicates that all have to be true for the whole to be true."""
    match predicate:
        case None:
            return ()
        case Call(function="and", args=args):
            return tuple(part for arg in args for part in conjuncts(arg))
        case _:
            return (predicate,)


def conjunction(parts: Iterable[Expr]) -> Expr | None:
    """Join predicates again; None when there is none."""
    whole: Expr | None = None
    for part in parts:
        whole = then(whole, part, total=True)
    return whole
