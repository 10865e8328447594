"""Joins with one row per key: the nearest in time, or the last before a window ends."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from penstock.api.aggregates import count
from penstock.api.expr import Expr
from penstock.api.functions import col
from penstock.api.names import free_name
from penstock.api.sql.join_conditions import Equality, Joining
from penstock.api.sql.scope import ColumnResolver, Relation, Visible, extended, partition_column
from penstock.api.sql.source_span import Text
from penstock.expr import nodes as ex
from penstock.expr.nodes import Column


def with_nearest(left: Relation, right: Relation, equality: Equality, join: Joining, text: Text) -> Relation:
    """Join each row with the last row of its key before it, or the first after it (ASOF JOIN, as in DuckDB)."""
    if right.in_windows or right.is_table or left.is_table:
        raise text.error("ASOF JOIN takes two streams, the right one without a window", join.node)
    if join.how not in ("inner", "left") or equality.rest or len(equality.bounds) != 1:
        raise text.error(
            "ASOF JOIN takes equal keys and one comparison of both times, such as a.k = b.k AND a.ts >= b.ts",
            join.node,
        )
    (bound,) = equality.bounds
    if bound.limit:
        raise text.error(
            "ASOF JOIN compares the times as they are; a tolerance goes with .join_asof(...)", join.node
        )
    names = [
        free_name(f"key {place}", {*left.schema.names, *right.schema.names})
        for place in range(len(equality.pairs))
    ]
    first = extended(left, {name: pair[0] for name, pair in zip(names, equality.pairs, strict=True)})
    second = extended(right, {name: pair[1] for name, pair in zip(names, equality.pairs, strict=True)})
    direction = "forward" if bound.below else "backward"
    stream = first.stream.join_asof(
        second.stream, by=names or None, direction=direction, allow_exact_matches=bound.exact
    )
    if join.how == "inner":
        stream = stream.filter(col(right.time.column).is_not_null())
    return Relation(stream, left.columns + right.columns, left.times + right.times, left.window)


def with_latest(
    left: Relation,
    right: Relation,
    equality: Equality,
    join: Joining,
    needed: Sequence[exp.Column] | None,
    text: Text,
) -> Relation:
    """Join windows with `[partition by k rows 1]`: the last row of each key before the window ends (CQL).

    Each window is reduced to its distinct rows, with the window's time; each then joins the last row of its key.
    Multiplicities are lost, so SELECT DISTINCT must follow.
    """
    clause = right.window
    assert clause is not None
    partition = {partition_column(right, name) for name in clause.partition}
    keys = {b.node.name: a for a, b in equality.pairs if isinstance(b.node, Column)}
    if clause.count != 1 or clause.every is not None or join.how != "inner" or set(keys) != partition:
        raise text.error(
            "[partition by k rows 1] can be joined on equality of just k, in an inner join; for more rows, use .join_rolling(...)",
            join.node,
        )
    if left.window is None or left.window.kind != "range":
        raise text.error("the other side of [partition by k rows 1] needs a window [range …]", join.node)
    names = {
        column: free_name(f"key {place}", {*left.schema.names, *right.schema.names})
        for place, column in enumerate(sorted(keys))
    }
    window = left.window.window(left.time)
    left = extended(left, {names[column]: keys[column] for column in names})
    kept = _seen(left, needed, text)
    by = [*names.values(), *(column.column for column in kept if column.column not in names.values())]
    hidden = free_name("rows", {*by, *right.schema.names})
    windows = left.stream.window(window, by=by).agg(count().alias(hidden))
    latest = extended(right, {name: col(column) for column, name in names.items()})
    stream = windows.join_asof(latest.stream, by=list(names.values()))
    stream = stream.filter(col(right.time.column).is_not_null(), *_plain(equality.rest))
    return Relation(stream, (*kept, *right.columns), right.times, None, latest=True)


def _seen(left: Relation, needed: Sequence[exp.Column] | None, text: Text) -> tuple[Visible, ...]:
    """List the left columns that the query references."""
    if needed is None:
        return left.columns
    names = ColumnResolver(left, text)
    sources = {column.source.lower() for column in left.columns}
    asked = [column for column in needed if not column.table or column.table.lower() in sources]
    return tuple(dict.fromkeys(found for column in asked if (found := names.found(column)) is not None))


def _plain(conditions: Sequence[Expr]) -> list[Expr]:
    """Remove the sides from conditions on pairs: result rows have the columns of both."""

    def rule(node: ex.Expr) -> ex.Expr:
        return Column(node.name.partition(".")[2]) if isinstance(node, Column) else node

    return [Expr(ex.rewrite(condition.node, rule)) for condition in conditions]
