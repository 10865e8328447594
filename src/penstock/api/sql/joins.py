"""Joins of two sources: in windows, by time, with a table, or with the last row of each key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from penstock.api.aggregates import count
from penstock.api.expr import Expr
from penstock.api.functions import col
from penstock.api.names import free_name
from penstock.api.sql.join_conditions import (
    Equality,
    Joining,
    check_keys,
    equality_of,
    named_alike,
    split,
    within,
)
from penstock.api.sql.scope import ColumnResolver, Relation, Visible, attached, extended, partition_column
from penstock.api.sql.source_span import Text
from penstock.expr import nodes as ex
from penstock.expr.nodes import Column
from penstock.types.windows import JOIN_TIME, LEFT_ROW_KINDS

# --- Joins with one row per key: the nearest in time, or the last before a window ends.


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
    columns = [column for column in needed if not column.table or column.table.lower() in sources]
    return tuple(dict.fromkeys(found for column in columns if (found := names.found(column)) is not None))


def _plain(conditions: Sequence[Expr]) -> list[Expr]:
    """Remove the sides from conditions on pairs: result rows have the columns of both."""

    def rule(node: ex.Expr) -> ex.Expr:
        return Column(node.name.partition(".")[2]) if isinstance(node, Column) else node

    return [Expr(ex.rewrite(condition.node, rule)) for condition in conditions]


def joined(
    left: Relation,
    right: Relation,
    join: Joining,
    conditions: Sequence[exp.Expression],
    needed: Sequence[exp.Column] | None,
    text: Text,
) -> tuple[Relation, list[exp.Expression]]:
    """Join two relations, using WHERE conditions on both; return the result and the remaining conditions."""
    left = _renamed(left, {JOIN_TIME: free_name(f"{JOIN_TIME}'", {*left.schema.names, *right.schema.names})})
    right = _apart(left, right)
    both = ColumnResolver(
        replace(left, columns=left.columns + right.columns, times=left.times + right.times), text
    )
    open_to_where = join.how == "inner" and not join.nearest
    taken, kept = split(conditions, both, left, right) if open_to_where else ([], list(conditions))
    equality = equality_of([*join.on, *taken], both, left, right, join.nearest)
    for shared in join.using:
        equality.pairs.append(named_alike(shared, left, right, text))
    with text.at(join.node):
        check_keys(equality.pairs, left, right, text)
        if join.nearest:
            made = with_nearest(left, right, equality, join, text)
        elif right.window is not None and right.window.partition:
            made = with_latest(left, right, equality, join, needed, text)
        else:
            made = _paired(left, right, equality, join, text)
    merged = {str(column.this).lower() for column in join.using}
    sources = {column.source for column in right.columns}
    columns = tuple(
        replace(column, merged=column.merged or (column.source in sources and column.name.lower() in merged))
        for column in made.columns
    )
    return replace(made, columns=columns), kept


def _apart(left: Relation, right: Relation) -> Relation:
    """Rename right columns in the plan that clash with left columns."""
    taken = {*left.schema.names, *right.schema.names}
    names: dict[str, str] = {}
    kept = set(right.schema.names) & {"window_start", "window_end"} if right.carries else set()
    for name in right.schema.names:
        if name in left.schema.names and name not in kept:
            names[name] = free_name(f"{right.columns[0].source}.{name}", taken)
            taken.add(names[name])
    return _renamed(right, names)


def _renamed(relation: Relation, names: dict[str, str]) -> Relation:
    """Rename columns in the plan, if they exist."""
    names = {name: new for name, new in names.items() if name in relation.schema.names}
    if not names:
        return relation
    return replace(
        relation,
        stream=relation.stream.rename(names),
        columns=tuple(
            replace(column, column=names.get(column.column, column.column)) for column in relation.columns
        ),
        times=tuple((source, names.get(column, column)) for source, column in relation.times),
    )


# --- pairs ------------------------------------------------------------------------------------------


def _paired(left: Relation, right: Relation, equality: Equality, join: Joining, text: Text) -> Relation:
    near = within(equality.bounds, left.time)
    if near is None:
        left, right, window = _in_one_window(left, right, text, join)
        when: dict[str, object] = {"window": window}
    else:
        when = {"within": near}
    keyed = _keyed(left, right, equality, join.how)
    if keyed.on:
        when |= {"left_on": [a for a, _ in keyed.on], "right_on": [b for _, b in keyed.on]}
    stream = keyed.left.stream.join(keyed.right.stream, how=join.how, where=keyed.where, **when)  # type: ignore[arg-type]
    gone = {b: a for a, b in keyed.on}
    columns = left.columns
    if join.how not in LEFT_ROW_KINDS:
        columns += tuple(
            replace(column, column=gone.get(column.column, column.column)) for column in right.columns
        )
    waiting = left.window if right.is_table else right.window if left.is_table else None
    return Relation(stream, columns, _times(left, right, join, gone), waiting, left.latest or right.latest)


def _times(
    left: Relation, right: Relation, join: Joining, gone: dict[str, str]
) -> tuple[tuple[str, str], ...]:
    if join.how in LEFT_ROW_KINDS:
        return left.times
    return left.times + tuple((source, gone.get(column, column)) for source, column in right.times)


def _in_one_window(
    left: Relation, right: Relation, text: Text, join: Joining
) -> tuple[Relation, Relation, object]:
    """Put both sides into windows: those of their window clauses, or those that rows carry."""
    if left.is_table or right.is_table:
        return left, right, None
    if left.window is not None and right.window is not None and join.how not in LEFT_ROW_KINDS:
        windows = left.window.window(left.time), right.window.window(right.time)
        return left, right, windows[0] if windows[0] == windows[1] else windows
    for side, other in ((left, right), (right, left)):
        if side.window is None and not side.carries:
            near = ", or say within which interval their times lie, with BETWEEN"
            raise text.error(
                f"rows of {side.columns[0].source!r} need a window to meet others in: write [range …] behind the stream"
                + (f"; those of {other.columns[0].source!r} are in windows" if other.in_windows else near),
                join.node,
            )
    return attached(left), attached(right), None


@dataclass(frozen=True)
class _Keyed:
    left: Relation
    right: Relation
    on: list[tuple[str, str]]
    where: Expr | None


def _keyed(left: Relation, right: Relation, equality: Equality, how: str) -> _Keyed:
    """Choose key columns: the existing ones in inner joins, else copies, so that both sides keep theirs."""
    on: list[tuple[str, str]] = []
    made: tuple[dict[str, Expr], dict[str, Expr]] = {}, {}
    for place, (first, second) in enumerate(equality.pairs):
        if how == "inner" and _direct(first, second, left, right, on):
            on.append((first.node.name, second.node.name))  # type: ignore[union-attr]
            continue
        name = free_name(f"key {place}", {*left.schema.names, *right.schema.names})
        made[0][name], made[1][f"{name}'"] = first, second
        on.append((name, f"{name}'"))
    return _Keyed(extended(left, made[0]), extended(right, made[1]), on, equality.where)


def _direct(first: Expr, second: Expr, left: Relation, right: Relation, on: list[tuple[str, str]]) -> bool:
    """Return whether two columns can be keys directly: of one type, used once, and not times."""
    if not isinstance(first.node, Column) or not isinstance(second.node, Column):
        return False
    names = first.node.name, second.node.name
    used = {name for pair in on for name in pair} | {left.time.column, right.time.column}
    alike = left.schema.field(names[0]).type == right.schema.field(names[1]).type
    return alike and not used & set(names)
