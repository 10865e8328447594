"""The scalar expression language shared by the logical plan and the time-centric IR.

    expr ::= Column(name)                    a column of the current row
           | Literal(value, type)            a constant; value None is a typed null
           | Call(function, args, options)   a scalar function of the catalogue in `functions.py`
           | Cast(arg, type)                 an explicit, checked conversion
           | Case(branches, otherwise)       first branch whose condition is true
           | IsIn(arg, values)               membership in a list of literals
           | Aggregate(function, args, where, options)   a reduction over a window's rows
           | Reduced(index)                  inside the IR: the value of a numbered reduction

Nodes are immutable and compare by structure, so equal subexpressions are found with `==`. Composite nodes are interned
(`interning.py`): an expression is a graph, and every traversal visits each of its nodes once. Nodes carry no types:
only `typing.type_of(expr, schema)` computes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from penstock.expr import interning
from penstock.expr.interning import InternedNode
from penstock.types.arrow import require_name

T = TypeVar("T")
Options = tuple[tuple[str, object], ...]
MEMBER = "field"  # the function that reads a field of a struct; its option "name" names the field


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


@dataclass(frozen=True, slots=True, eq=False)
class Call(InternedNode):
    function: str
    args: tuple[Expr, ...]
    options: Options = ()


@dataclass(frozen=True, slots=True, eq=False)
class Cast(InternedNode):
    arg: Expr
    type: pa.DataType


@dataclass(frozen=True, slots=True, eq=False)
class Case(InternedNode):
    branches: tuple[tuple[Expr, Expr], ...]
    otherwise: Expr


@dataclass(frozen=True, slots=True, eq=False)
class IsIn(InternedNode):
    arg: Expr
    values: tuple[Literal, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Aggregate(InternedNode):
    function: str
    args: tuple[Expr, ...]
    where: Expr | None = None
    options: Options = ()


@dataclass(frozen=True, slots=True)
class Reduced:
    index: int


Composite = Call | Cast | Case | IsIn | Aggregate
Expr = Column | Literal | Reduced | Composite


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


def composites(expr: Expr) -> list[Composite]:
    """List the direct subexpressions that are neither columns nor constants."""
    return [child for child in children(expr) if isinstance(child, InternedNode)]


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


def ordered(*exprs: Expr) -> list[Expr]:
    """List the distinct nodes of expressions, children before their parents."""
    return interning.ordered(exprs, children)


def fold(expr: Expr, rule: Callable[[Expr, tuple[T, ...]], T]) -> T:
    """Compute a value for every distinct node once, from the values of its children."""
    if not isinstance(expr, InternedNode):
        return rule(expr, ())
    made: dict[int, T] = {}
    for node in ordered(expr):
        made[id(node)] = rule(node, tuple(made[id(child)] for child in children(node)))
    return made[id(expr)]


def rewrite(expr: Expr, rule: Callable[[Expr], Expr]) -> Expr:
    """Apply `rule` to every distinct node once, leaves first."""
    if not children(expr):
        return rule(expr)
    return fold(expr, lambda node, new: rule(node if new == children(node) else with_children(node, new)))


def substitute(expr: Expr, columns: dict[str, Expr]) -> Expr:
    """Replace columns by their defining expressions."""

    def rule(node: Expr) -> Expr:
        return columns.get(node.name, node) if isinstance(node, Column) else node

    return rewrite(expr, rule)


def walk(expr: Expr) -> Iterator[Expr]:
    """Yield every distinct node once, in the order in which they are written."""
    seen: set[int] = set()
    waiting = [expr]
    while waiting:
        node = waiting.pop()
        if id(node) not in seen:
            seen.add(id(node))
            yield node
            waiting.extend(reversed(children(node)))


def occurrences(*exprs: Expr) -> list[tuple[Expr, int]]:
    """List the distinct nodes, parents first, each with the number of times it occurs in the expressions written as trees."""
    nodes = ordered(*exprs)
    counts = dict.fromkeys(map(id, nodes), 0)
    for operand in exprs:
        counts[id(operand)] += 1
    for node in reversed(nodes):
        for child in children(node):
            counts[id(child)] += counts[id(node)]
    return [(node, counts[id(node)]) for node in reversed(nodes)]


def depth(expr: Expr) -> int:
    """Count the nodes on the longest path down an expression."""
    if not isinstance(expr, InternedNode):
        return 1
    if "depth" not in expr.facts:
        for node in interning.ordered(
            [expr], lambda node: [c for c in composites(node) if "depth" not in c.facts]
        ):
            node.facts["depth"] = 1 + max(map(depth, children(node)), default=0)
    found: int = expr.facts["depth"]
    return found


def path_of(expr: Expr) -> tuple[str, ...] | None:
    """Return the names of a column and of nested fields of it; None for other expressions.

    >>> path_of(Call("field", (Column("place"),), (("name", "city"),)))
    ('place', 'city')
    """
    names: list[str] = []
    while isinstance(expr, Call) and expr.function == MEMBER:
        names.append(str(dict(expr.options)["name"]))
        expr = expr.args[0]
    return (expr.name, *reversed(names)) if isinstance(expr, Column) else None


def columns_of(expr: Expr) -> frozenset[str]:
    """Return the columns an expression reads."""
    if isinstance(expr, Column):
        return frozenset({expr.name})
    return frozenset(node.name for node in walk(expr) if isinstance(node, Column))


def has_aggregate(expr: Expr) -> bool:
    """Return whether the expression contains an aggregate."""
    return any(isinstance(node, Aggregate) for node in walk(expr))


# --- Split expressions of a rolling join into aggregates over the right input and expressions over their results.


def split_aggregates(expr: Expr, found: list[Aggregate] | None = None) -> tuple[Expr, list[Aggregate]]:
    """Replace each aggregate by its index in `found`; append new aggregates to `found`.

    >>> from penstock.expr.nodes import Call, Column
    >>> split_aggregates(Call("sub", (Column("p"), Aggregate("mean", (Column("q"),)))))[0]
    Call(function='sub', args=(Column(name='p'), Reduced(index=0)), options=())
    """
    aggregates = [] if found is None else found
    places = {aggregate: place for place, aggregate in enumerate(aggregates)}

    def rule(node: Expr) -> Expr:
        if not isinstance(node, Aggregate):
            return node
        if node not in places:
            places[node] = len(aggregates)
            aggregates.append(node)
        return Reduced(places[node])

    return rewrite(expr, rule), aggregates
