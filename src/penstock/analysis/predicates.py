"""Split and combine predicates without changing which rows they keep or fail on."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from penstock.expr.nodes import Call, Case, Expr, Literal

FALSE = Literal(False, pa.bool_())


def then(first: Expr | None, second: Expr | None, *, total: bool) -> Expr | None:
    """Combine two filters into one predicate; None keeps every row.

    `first and second` is true exactly when both are, so one filter replaces two. But `and` evaluates both
    sides: a second predicate that can fail must be evaluated only where the first is true.
    """
    if first is None or second is None:
        return second if first is None else first
    return Call("and", (first, second)) if total else Case(((first, second),), FALSE)


def conjuncts(predicate: Expr | None) -> tuple[Expr, ...]:
    """Split a predicate into its conjuncts."""
    match predicate:
        case None:
            return ()
        case Call(function="and", args=args):
            return tuple(part for arg in args for part in conjuncts(arg))
        case _:
            return (predicate,)


def conjunction(parts: Iterable[Expr]) -> Expr | None:
    """Combine conjuncts into one predicate; None if there are none."""
    whole: Expr | None = None
    for part in parts:
        whole = then(whole, part, total=True)
    return whole
