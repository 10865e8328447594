"""Joins: rows of two sources that meet in windows, in a table, or the last row of each key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
from sqlglot import exp

from penstock.api.aggregates import count
from penstock.api.expr import Expr
from penstock.api.functions import col
from penstock.api.sql.expressions import Translator
from penstock.api.sql.places import Text
from penstock.api.sql.scope import Names, Relation, Visible, free_name
from penstock.expr import nodes as ex
from penstock.expr.nodes import Column, columns_of
from penstock.types.joins import CHOOSING, JOIN_TIME, left_column, right_column


@dataclass(frozen=True)
class Joining:
    """A join as it was written."""

    how: str
    on: list[exp.Expression]
    using: list[exp.Identifier]
    node: exp.Expression


@dataclass
class Meeting:
    """What makes two rows meet: equal pairs of values, and further conditions."""

    pairs: list[tuple[Expr, Expr]] = field(default_factory=list)
    rest: list[Expr] = field(default_factory=list)

    @property
    def where(self) -> Expr | None:
        whole: Expr | None = None
        for each in self.rest:
            whole = each if whole is None else whole & each
        return whole


def joined(
    left: Relation,
    right: Relation,
    join: Joining,
    conditions: Sequence[exp.Expression],
    needed: Sequence[exp.Column] | None,
    text: Text,
) -> tuple[Relation, list[exp.Expression]]:
    """Join two relations, taking conditions of WHERE that speak of both; give those that are left."""
    left = _renamed(left, {JOIN_TIME: free_name(f"{JOIN_TIME}'", {*left.schema.names, *right.schema.names})})
    right = _apart(left, right)
    both = Names(replace(left, columns=left.columns + right.columns, times=left.times + right.times), text)
    taken, kept = _split(conditions, both, left, right) if join.how == "inner" else ([], list(conditions))
    meeting = _meeting([*join.on, *taken], both, left, right, text)
    for each in join.using:
        meeting.pairs.append(_named_alike(each, left, right, text))
    with text.at(join.node):
        if right.window is not None and right.window.partition:
            made = _with_latest(left, right, meeting, join, needed, text)
        else:
            made = _paired(left, right, meeting, join, text)
    merged = {str(each.this).lower() for each in join.using}
    sources = {each.source for each in right.columns}
    columns = tuple(
        replace(each, merged=each.merged or (each.source in sources and each.name.lower() in merged))
        for each in made.columns
    )
    return replace(made, columns=columns), kept


def _apart(left: Relation, right: Relation) -> Relation:
    """Give columns of the right another name in the plan where the left has one of that name."""
    taken = {*left.schema.names, *right.schema.names}
    names: dict[str, str] = {}
    kept = set(right.schema.names) & {"window_start", "window_end"} if right.carries else set()
    for each in right.schema.names:
        if each in left.schema.names and each not in kept:
            names[each] = free_name(f"{right.columns[0].source}.{each}", taken)
            taken.add(names[each])
    return _renamed(right, names)


def _renamed(relation: Relation, names: dict[str, str]) -> Relation:
    """Give columns other names in the plan, where they are there."""
    names = {name: new for name, new in names.items() if name in relation.schema.names}
    if not names:
        return relation
    return replace(
        relation,
        stream=relation.stream.rename(names),
        columns=tuple(replace(each, column=names.get(each.column, each.column)) for each in relation.columns),
        times=tuple((source, names.get(column, column)) for source, column in relation.times),
    )


def _split(
    conditions: Sequence[exp.Expression], both: Names, left: Relation, right: Relation
) -> tuple[list[exp.Expression], list[exp.Expression]]:
    """Tell the conditions that speak of both sides, and of nothing else, from the others."""
    sides = {*left.schema.names}, {*right.schema.names}
    taken: list[exp.Expression] = []
    kept: list[exp.Expression] = []
    for each in conditions:
        known = [both.found(column) for column in each.find_all(exp.Column)]
        names = {found.column for found in known if found is not None}
        speaks = None not in known and all(names & side for side in sides) and names <= sides[0] | sides[1]
        (taken if speaks else kept).append(each)
    return taken, kept


def _meeting(
    conditions: Sequence[exp.Expression], both: Names, left: Relation, right: Relation, text: Text
) -> Meeting:
    meeting = Meeting()
    schema_names = set(left.schema.names), set(right.schema.names)
    translate = Translator(_OverBoth(both.relation, text, right=right.schema))
    for each in conditions:
        sides = [translate(side) for side in (each.this, each.expression)] if isinstance(each, exp.EQ) else []
        pair = _pair(sides, *schema_names)
        if pair is not None:
            meeting.pairs.append(pair)
        else:
            with text.at(each):
                meeting.rest.append(_sided(translate(each), schema_names[0]))
    return meeting


@dataclass(frozen=True, slots=True)
class _OverBoth(Names):
    """Knows the types of both sides' columns."""

    right: pa.Schema = pa.schema([])  # noqa: RUF009 - schemas do not change

    @property
    def schema(self) -> pa.Schema:
        own = self.relation.schema
        return pa.schema([*own, *(each for each in self.right if each.name not in own.names)])


def _pair(sides: Sequence[Expr], left: set[str], right: set[str]) -> tuple[Expr, Expr] | None:
    if len(sides) != 2:
        return None
    first, second = (columns_of(each.node) for each in sides)
    if first and second and first <= left and second <= right:
        return sides[0], sides[1]
    if first and second and first <= right and second <= left:
        return sides[1], sides[0]
    return None


def _sided(condition: Expr, left: set[str]) -> Expr:
    """Say of each column which of the two rows it belongs to."""

    def rule(node: ex.Expr) -> ex.Expr:
        if not isinstance(node, Column):
            return node
        return Column(left_column(node.name) if node.name in left else right_column(node.name))

    return Expr(ex.rewrite(condition.node, rule))


def _named_alike(name: exp.Identifier, left: Relation, right: Relation, text: Text) -> tuple[Expr, Expr]:
    column = exp.Column(this=name.copy())
    column.this.meta.update(name.meta)
    return col(Names(left, text).column(column)), col(Names(right, text).column(column))


# --- pairs ------------------------------------------------------------------------------------------


def _paired(left: Relation, right: Relation, meeting: Meeting, join: Joining, text: Text) -> Relation:
    left, right, window = _in_one_window(left, right, text, join)
    keyed = _keyed(left, right, meeting, join.how)
    on = {} if not keyed.on else {"left_on": [a for a, _ in keyed.on], "right_on": [b for _, b in keyed.on]}
    stream = keyed.left.stream.join(keyed.right.stream, how=join.how, where=keyed.where, window=window, **on)  # type: ignore[arg-type]
    gone = {b: a for a, b in keyed.on}
    columns = left.columns
    if join.how not in CHOOSING:
        columns += tuple(replace(each, column=gone.get(each.column, each.column)) for each in right.columns)
    waiting = left.window if right.is_table else right.window if left.is_table else None
    return Relation(stream, columns, _times(left, right, join, gone), waiting, left.latest or right.latest)


def _times(
    left: Relation, right: Relation, join: Joining, gone: dict[str, str]
) -> tuple[tuple[str, str], ...]:
    if join.how in CHOOSING:
        return left.times
    return left.times + tuple((source, gone.get(column, column)) for source, column in right.times)


def _in_one_window(
    left: Relation, right: Relation, text: Text, join: Joining
) -> tuple[Relation, Relation, object]:
    """Bring both sides into windows: those that wait, or those that rows carry."""
    if left.is_table or right.is_table:
        return left, right, None
    if left.window is not None and right.window is not None and join.how not in CHOOSING:
        windows = left.window.window(left.time), right.window.window(right.time)
        return left, right, windows[0] if windows[0] == windows[1] else windows
    for each in (left, right):
        if each.window is None and not each.carries:
            raise text.error(
                f"rows of {each.columns[0].source!r} need a window to meet others in: write [range …] behind the stream",
                join.node,
            )
    return attached(left), attached(right), None


def attached(relation: Relation) -> Relation:
    """Put rows into the windows that wait for them, once for each."""
    if relation.window is None:
        return relation
    window = relation.window.window(relation.time)
    by = [_partition_column(relation, name) for name in relation.window.partition]
    stream = relation.stream.window(window, by=by or None).with_columns()
    return replace(relation.over(stream), window=None)


def _partition_column(relation: Relation, name: str) -> str:
    alike = [each.column for each in relation.columns if each.name.lower() == name.lower()]
    return alike[0] if alike else name


@dataclass(frozen=True)
class _Keyed:
    left: Relation
    right: Relation
    on: list[tuple[str, str]]
    where: Expr | None


def _keyed(left: Relation, right: Relation, meeting: Meeting, how: str) -> _Keyed:
    """Find columns for the keys: those that are there in inner joins, else copies, so that both sides keep theirs."""
    on: list[tuple[str, str]] = []
    rest = list(meeting.rest)
    made: tuple[dict[str, Expr], dict[str, Expr]] = {}, {}
    for place, (first, second) in enumerate(meeting.pairs):
        if how == "inner" and _direct(first, second, left, right, on):
            on.append((first.node.name, second.node.name))  # type: ignore[union-attr]
            continue
        name = free_name(f"key {place}", {*left.schema.names, *right.schema.names})
        made[0][name], made[1][f"{name}'"] = first, second
        on.append((name, f"{name}'"))
    where = Meeting(rest=rest).where
    return _Keyed(_extended(left, made[0]), _extended(right, made[1]), on, where)


def _direct(first: Expr, second: Expr, left: Relation, right: Relation, on: list[tuple[str, str]]) -> bool:
    """Whether two columns can be keys as they are: of one type, used once, and no times."""
    if not isinstance(first.node, Column) or not isinstance(second.node, Column):
        return False
    names = first.node.name, second.node.name
    used = {name for pair in on for name in pair} | {left.time.column, right.time.column}
    alike = left.schema.field(names[0]).type == right.schema.field(names[1]).type
    return alike and not used & set(names)


def _extended(relation: Relation, columns: dict[str, Expr]) -> Relation:
    if not columns:
        return relation
    return relation.over(relation.stream.with_columns(*(made.alias(name) for name, made in columns.items())))


# --- the last row of each key -------------------------------------------------------------------------


def _with_latest(
    left: Relation,
    right: Relation,
    meeting: Meeting,
    join: Joining,
    needed: Sequence[exp.Column] | None,
    text: Text,
) -> Relation:
    """Join windows with `[partition by k rows 1]`: the last row of each key before the window ends (CQL).

    What stands in a window is brought down to its distinct rows, whose time is the window's; each then looks for the
    last row of its key. So the result stands for any number of equal rows, and SELECT DISTINCT must follow.
    """
    clause = right.window
    assert clause is not None
    partition = {_partition_column(right, name) for name in clause.partition}
    keys = {b.node.name: a for a, b in meeting.pairs if isinstance(b.node, Column)}
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
    left = _extended(left, {names[column]: keys[column] for column in names})
    kept = _seen(left, needed, text)
    by = [*names.values(), *(each.column for each in kept if each.column not in names.values())]
    hidden = free_name("rows", {*by, *right.schema.names})
    windows = left.stream.window(window, by=by).agg(count().alias(hidden))
    latest = _extended(right, {name: col(column) for column, name in names.items()})
    stream = windows.join_asof(latest.stream, by=list(names.values()))
    stream = stream.filter(col(right.time.column).is_not_null(), *_plain(meeting.rest))
    return Relation(stream, (*kept, *right.columns), right.times, None, latest=True)


def _seen(left: Relation, needed: Sequence[exp.Column] | None, text: Text) -> tuple[Visible, ...]:
    """List the columns of the left that the query asks for."""
    if needed is None:
        return left.columns
    names = Names(left, text)
    sources = {each.source.lower() for each in left.columns}
    asked = [each for each in needed if not each.table or each.table.lower() in sources]
    return tuple(dict.fromkeys(found for each in asked if (found := names.found(each)) is not None))


def _plain(conditions: Sequence[Expr]) -> list[Expr]:
    """Take the sides away again from conditions on pairs: rows of the result have both."""

    def rule(node: ex.Expr) -> ex.Expr:
        return Column(node.name.partition(".")[2]) if isinstance(node, Column) else node

    return [Expr(ex.rewrite(each.node, rule)) for each in conditions]
