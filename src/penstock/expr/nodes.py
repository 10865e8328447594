"""The scalar expression language shared by the logical plan and the time-centric IR.

    expr ::= Column(name)                    a column of the current row
           | Literal(value, type)            a constant; value None is a typed null
           | Call(function, args, options)   a scalar function of the catalogue in `functions.py`
           | Cast(arg, type)                 an explicit, checked conversion
           | Case(branches, otherwise)       first branch whose condition is true
           | IsIn(arg, values)               membership in a list of literals
           | Aggregate(function, args, where, options)   a reduction over a window's rows
           | Reduced(index)                  inside the IR: the value of a numbered reduction

Nodes are immutable and compare by structure, so equal subexpressions are found with `==`. They carry
no types: only `typing.type_of(expr, schema)` computes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from penstock.types.arrow import require_name

Options = tuple[tuple[str, object], ...]


@dataclass(frozen=True, slots=True)
class Column:
    name: str


@dataclass(frozen=True, slots=True)
class Literal:
    value: object
    type: pa.DataType

    def __hash__(self) -> int:
        return hash((str(self.type), repr(self.value)))

    def __eq__(self, other: object) -> bool:
        """Compare by representation, so that NaN equals itself and 0.0 differs from -0.0."""
        return (
            isinstance(other, Literal) and self.type == other.type and repr(self.value) == repr(other.value)
        )


@dataclass(frozen=True, slots=True)
class Call:
    function: str
    args: tuple[Expr, ...]
    options: Options = ()


@dataclass(frozen=True, slots=True)
class Cast:
    arg: Expr
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Case:
    branches: tuple[tuple[Expr, Expr], ...]
    otherwise: Expr


@dataclass(frozen=True, slots=True)
class IsIn:
    arg: Expr
    values: tuple[Literal, ...]


@dataclass(frozen=True, slots=True)
class Aggregate:
    function: str
    args: tuple[Expr, ...]
    where: Expr | None = None
    options: Options = ()


@dataclass(frozen=True, slots=True)
class Reduced:
    index: int


Expr = Column | Literal | Call | Cast | Case | IsIn | Aggregate | Reduced


@dataclass(frozen=True, slots=True)
class Field:
    """A named output column: `name = expr`."""

    name: str
    expr: Expr

    def __post_init__(self) -> None:
        """Reject a name that Arrow cannot store."""
        require_name(self.name)


def children(expr: Expr) -> tuple[Expr, ...]:
    """List the direct subexpressions, in evaluation order."""
    match expr:
        case Call(args=args):
            return args
        case Cast(arg=arg) | IsIn(arg=arg):
            return (arg,)
        case Case(branches=branches, otherwise=otherwise):
            return (*(part for branch in branches for part in branch), otherwise)
        case Aggregate(args=args, where=where):
            return args if where is None else (*args, where)
        case _:
            return ()


def with_children(expr: Expr, new: tuple[Expr, ...]) -> Expr:
    """Rebuild `expr` with other subexpressions, in the order of `children`."""
    match expr:
        case Call(function=function, options=options):
            return Call(function, new, options)
        case Cast(type=dtype):
            return Cast(new[0], dtype)
        case IsIn(values=values):
            return IsIn(new[0], values)
        case Case():
            pairs = tuple(zip(new[0:-1:2], new[1:-1:2], strict=True))
            return Case(pairs, new[-1])
        case Aggregate(function=function, args=args, options=options):
            where = new[len(args)] if len(new) > len(args) else None
            return Aggregate(function, new[: len(args)], where, options)
        case _:
            return expr


def rewrite(expr: Expr, rule: Callable[[Expr], Expr]) -> Expr:
    """Apply `rule` to every node, leaves first."""
    old = children(expr)
    new = tuple(rewrite(child, rule) for child in old)
    return rule(expr if new == old else with_children(expr, new))


def substitute(expr: Expr, columns: dict[str, Expr]) -> Expr:
    """Replace columns by their defining expressions."""

    def rule(node: Expr) -> Expr:
        return columns.get(node.name, node) if isinstance(node, Column) else node

    return rewrite(expr, rule)


def walk(expr: Expr) -> Iterator[Expr]:
    """Yield every node, parents before children."""
    yield expr
    for child in children(expr):
        yield from walk(child)


def columns_of(expr: Expr) -> frozenset[str]:
    """Return the columns an expression reads."""
    return frozenset(node.name for node in walk(expr) if isinstance(node, Column))


def has_aggregate(expr: Expr) -> bool:
    """Return whether the expression contains an aggregate."""
    return any(isinstance(node, Aggregate) for node in walk(expr))
