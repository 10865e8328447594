"""Replace the columns that a reader references by their definitions, without changing any type."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from penstock.expr.nodes import Cast, Expr, Field, Literal, substitute
from penstock.ir.nodes import Reduction

Definitions = dict[str, Expr]


def definitions(fields: Iterable[Field]) -> Definitions:
    """Map each column to its defining expression."""
    return {field.name: opaque(field.expr) for field in fields}


def opaque(expr: Expr) -> Expr:
    """Wrap an integer literal in a cast, because type rules treat literals differently from columns.

    `u + 1` is unsigned when `u` is, but `u + c` is signed, even if `c` is always 1.
    """
    match expr:
        case Literal(value=bool()):
            return expr
        case Literal(value=int(), type=dtype):
            return Cast(expr, dtype)
        case _:
            return expr


def inlined(expr: Expr | None, known: Definitions) -> Expr | None:
    """Substitute in a predicate that may be absent."""
    return None if expr is None else substitute(expr, known)


def inlined_fields(fields: Iterable[Field], known: Definitions) -> tuple[Field, ...]:
    """Substitute in every field, keeping its name."""
    return tuple(Field(field.name, substitute(field.expr, known)) for field in fields)


def inlined_reduction(reduction: Reduction, known: Definitions) -> Reduction:
    """Substitute in a reduction's arguments and predicate."""
    args = tuple(substitute(arg, known) for arg in reduction.args)
    return replace(reduction, args=args, where=inlined(reduction.where, known))
