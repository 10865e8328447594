"""Split and combine predicates without changing which rows they keep or fail on."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from penstock.expr.nodes import Call, Case, Expr, Literal, depth

DEEPEST_PREDICATE = 100
FALSE = Literal(False, pa.bool_())


def then(first: Expr | None, second: Expr | None, *, total: bool) -> Expr | None:
    """Combine two filters into one predicate; None keeps every row.

    `first and second` is true exactly when both are, so one filter replaces two. But `and` evaluates both
    sides: a second predicate that can fail must be evaluated only where the first is true.
    """
    if first is None or second is None:
        return second if first is None else first
    return both(first, second) if total else Case(((first, second),), FALSE)


def both(first: Expr, second: Expr) -> Expr:
    """Return a conjunction; a chain of `and` that would nest deeply becomes one of many operands."""
    match first:
        case Call(function="and", args=args) if depth(first) >= DEEPEST_PREDICATE:
            return Call("and", (*args, second))
        case _:
            return Call("and", (first, second))


def conjuncts(predicate: Expr | None) -> tuple[Expr, ...]:
    """Split a predicate into its conjuncts."""
    found: list[Expr] = []
    opened: set[Expr] = set()  # a shared conjunction counts once: it may stand for billions of conjuncts
    waiting = [] if predicate is None else [predicate]
    while waiting:
        match waiting.pop():
            case Call(function="and", args=args) as node:
                waiting.extend(() if node in opened else reversed(args))
                opened.add(node)
            case node:
                found.append(node)
    return tuple(found)


def conjunction(parts: Iterable[Expr]) -> Expr | None:
    """Combine conjuncts into one predicate; None if there are none."""
    whole: Expr | None = None
    for part in parts:
        whole = then(whole, part, total=True)
    return whole
