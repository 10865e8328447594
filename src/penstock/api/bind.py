"""Bind expressions to a stream: convert durations to ticks, type nulls, check everything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from penstock.api.expr import Expr, column_or_node
from penstock.api.literals import shown
from penstock.api.resolve_temporal_types import timed
from penstock.errors import (
    ExpressionTypeError,
    SchemaMismatchError,
    UnknownColumnError,
    UnsupportedError,
)
from penstock.expr import nodes
from penstock.expr.coerce_decimals import coerced_decimals
from penstock.expr.custom import Definition
from penstock.expr.nodes import Column, Field
from penstock.expr.show import show
from penstock.expr.typing import listed, null_as, require_bool, type_of, typed_nulls
from penstock.types.arrow import kind_of
from penstock.types.choices import repeated
from penstock.types.time import Time

DEEPEST_EXPRESSION = 100


def bound(expr: nodes.Expr, schema: pa.Schema, time: Time) -> nodes.Expr:
    """Resolve an expression over a stream's columns; raise user-facing errors."""
    expr = flattened(expr)
    refuse_depth(expr)

    def rule(node: nodes.Expr) -> nodes.Expr:
        typed = typed_nulls(timed(node, schema, time), schema)
        return _typed_definition(coerced_decimals(typed, schema), schema)

    resolved = nodes.rewrite(expr, rule)
    type_of(resolved, schema)
    return resolved


def refuse_depth(expr: nodes.Expr) -> None:
    """Reject an expression too deep for the steps that walk it recursively."""
    if nodes.depth(expr) <= DEEPEST_EXPRESSION:
        return
    raise UnsupportedError(
        f"an expression is nested more than {DEEPEST_EXPRESSION} deep; name its parts with with_columns, "
        "or sum many terms pairwise"
    )


def flattened(expr: nodes.Expr) -> nodes.Expr:
    """Write the chains of `and` and `or` in a deep expression as calls with many operands.

    >>> from penstock.expr.nodes import Call, Column
    >>> chain = Column("a")
    >>> for name in map(str, range(200)):
    ...     chain = Call("or", (chain, Column(name)))
    >>> nodes.depth(chain), nodes.depth(flattened(chain)), len(flattened(chain).args)
    (201, 2, 201)
    """
    return expr if nodes.depth(expr) <= DEEPEST_EXPRESSION else nodes.rewrite(expr, _spliced)


def _spliced(node: nodes.Expr) -> nodes.Expr:
    """Splice operands that are calls of the same connector; a repeated operand changes nothing."""
    if not isinstance(node, nodes.Call) or node.function not in ("and", "or"):
        return node
    operands: dict[nodes.Expr, None] = {}
    for arg in node.args:
        same = isinstance(arg, nodes.Call) and arg.function == node.function
        operands |= dict.fromkeys(arg.args if same and isinstance(arg, nodes.Call) else (arg,))
    return nodes.Call(node.function, tuple(operands)) if len(operands) > 1 else next(iter(operands))


def _typed_definition(node: nodes.Expr, schema: pa.Schema) -> nodes.Expr:
    """Bind a custom aggregate to the types of its arguments."""
    match node:
        case nodes.Aggregate("custom", args, where, (("definition", Definition() as definition),)):
            types = [type_of(arg, schema) for arg in args]
            return nodes.Aggregate("custom", args, where, (("definition", definition.typed(types)),))
        case _:
            return node


def predicate(expr: object, schema: pa.Schema, time: Time, what: str) -> nodes.Expr:
    """Resolve a predicate on rows."""
    node = bound(column_or_node(expr), schema, time)
    _refuse_aggregates(node, what)
    require_bool(node, type_of(node, schema), what)
    return null_as(node, pa.bool_(), schema)


def row_fields(
    exprs: Sequence[object], named: Mapping[str, object], schema: pa.Schema, time: Time, what: str
) -> tuple[Field, ...]:
    """Resolve the columns of a projection."""
    fields = window_fields(exprs, named, schema, time, what)
    for field in fields:
        _refuse_aggregates(field.expr, what)
    return fields


def window_fields(
    exprs: Sequence[object], named: Mapping[str, object], schema: pa.Schema, time: Time, what: str
) -> tuple[Field, ...]:
    """Resolve named expressions that may contain aggregates."""
    pairs = [(_name_of(expr, what), column_or_node(expr)) for expr in flat(exprs)]
    pairs += [(name, column_or_node(value)) for name, value in named.items()]
    refuse_twice([name for name, _ in pairs], what)
    _refuse_constants(named, schema, what)
    return tuple(Field(name, _sound(bound(node, schema, time), schema, name)) for name, node in pairs)


def _refuse_constants(named: Mapping[str, object], schema: pa.Schema, what: str) -> None:
    """Explain how to write a constant where a string names no column: strings are column names here."""
    for name, value in named.items():
        if isinstance(value, str) and value not in schema.names:
            raise UnknownColumnError(
                f"{what} has {name}={value!r:.40}, and there is no such column (columns: {listed(schema.names)}); "
                f"a constant is written pk.lit({value!r:.40})"
            )


def flat(given: Iterable[object]) -> list[object]:
    """Flatten lists of arguments."""
    return [
        part
        for argument in given
        for part in (argument if isinstance(argument, (list, tuple)) else [argument])
    ]


def _name_of(given: object, what: str) -> str:
    name = given if isinstance(given, str) else own_name(given) if isinstance(given, Expr) else None
    if name is None:
        text = show(column_or_node(given)) if not isinstance(given, (list, tuple)) else shown(given)
        raise ExpressionTypeError(
            f"{what} needs a name for {text}; write name=expression, or expression.alias('name')"
        )
    return name


def own_name(given: Expr) -> str | None:
    """Return the name of an expression, else that of the first column in it (as in Polars)."""
    waiting, seen = [given.node], set[int]()
    while given.name is None and waiting:
        node = waiting.pop()
        match node:
            case Column(name=name):
                return name
            case nodes.Call(function="field", options=options):
                return str(dict(options)["name"])
        waiting += [] if id(node) in seen else reversed(_valued(node))
        seen.add(id(node))
    return given.name


def _valued(node: nodes.Expr) -> tuple[nodes.Expr, ...]:
    """Return the parts that determine the name: of a `when`, its branches."""
    match node:
        case nodes.Case(branches=branches, otherwise=otherwise):
            return (*(value for _, value in branches), otherwise)
        case _:
            return nodes.children(node)


def refuse_twice(names: Sequence[str], what: str) -> None:
    """Reject duplicate column names."""
    twice = repeated(names)
    if twice:
        raise SchemaMismatchError(
            f"{what} would give more than one column named {twice[0]!r}; choose other names"
        )


def _sound(expr: nodes.Expr, schema: pa.Schema, name: str) -> nodes.Expr:
    if kind_of(type_of(expr, schema)) == "null" and not isinstance(expr, Column):
        raise ExpressionTypeError(
            f"the column {name!r} would be null without a type; write pk.lit(None, 'int64')"
        )
    return expr


def _refuse_aggregates(expr: nodes.Expr, what: str) -> None:
    if nodes.has_aggregate(expr):
        raise ExpressionTypeError(
            f"{what} works on single rows, but {show(expr)} aggregates many; "
            "aggregate with .window(...).agg(...) or .window(...).with_columns(...)"
        )
