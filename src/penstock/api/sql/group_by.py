"""GROUP BY: windows, keys and aggregates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from penstock.api.aggregates import count
from penstock.api.expr import Expr
from penstock.api.functions import col
from penstock.api.names import free_name
from penstock.api.sql.expressions import Translator
from penstock.api.sql.scope import WINDOW_TIME, ColumnResolver, Relation, SelectOutput, attached
from penstock.api.sql.source_span import Text
from penstock.api.sql.window_clauses import Clause, length
from penstock.api.stream import Stream
from penstock.api.windows import unbounded
from penstock.expr import nodes as ex
from penstock.expr.nodes import Column
from penstock.types.windows import WINDOW_BOUNDS, WINDOW_END, WINDOW_START

WINDOWS = ("tumble", "hop", "session", "window", "session_window")
EDGES = {
    **{f"{name}_start": WINDOW_START for name in ("tumble", "hop", "session", "window")},
    **{f"{name}_end": WINDOW_END for name in ("tumble", "hop", "session", "window")},
}


@dataclass(frozen=True, slots=True)
class GroupKey:
    """A grouping value over rows, and its result column."""

    node: ex.Expr
    column: str


@dataclass(frozen=True, slots=True)
class Grouping:
    """The rows to group, their window and the keys."""

    relation: Relation
    keys: tuple[GroupKey, ...]
    text: Text

    def outer(self, expr: Expr, node: exp.Expression) -> Expr:
        """Replace expressions outside of aggregates by the key or window bound they equal."""
        names = ColumnResolver(self.relation, self.text)
        known: dict[ex.Expr, ex.Expr] = {key.node: Column(key.column) for key in self.keys}
        known |= {column: column for column in known.values()}  # for aliases that were already resolved

        def replaced(part: ex.Expr) -> ex.Expr:
            if part in known:
                return known[part]
            if isinstance(part, ex.Aggregate):
                return part
            if isinstance(part, Column) and part.name not in WINDOW_BOUNDS:
                if names.is_time(part.name):
                    return Column(WINDOW_END)
                raise self.text.error(
                    f"{_called(part.name, self.relation)!r} has many values in a window; aggregate it, or add it to GROUP BY",
                    node,
                )
            return ex.with_children(part, tuple(map(replaced, ex.children(part))))

        return Expr(replaced(expr.node))


def _called(column: str, relation: Relation) -> str:
    return next((visible.name for visible in relation.columns if visible.column == column), column)


def grouping(
    select: exp.Select, relation: Relation, aliases: dict[str, exp.Expression], text: Text
) -> Grouping:
    """Read GROUP BY: names, positions and expressions are keys; TUMBLE, HOP, SESSION and window(…) are windows."""
    group = select.args.get("group")
    keys: list[tuple[Expr, exp.Expression]] = []
    meanings = [
        (node, _meant(node, select, aliases, relation, text))
        for node in ([] if group is None else group.expressions)
    ]
    if relation.window is not None and relation.window.descriptor:
        meanings = _without_bounds(meanings, relation, text)
    for node, meant in meanings:
        if isinstance(meant, exp.Anonymous) and str(meant.this).lower() in WINDOWS:
            relation = _with_window(meant, relation, text)
        else:
            with text.at(node):
                keys.append((Translator(ColumnResolver(relation, text))(meant), node))
    return _keyed(relation, keys, text)


def names_bounds(node: exp.Expression) -> bool:
    """Return whether an expression references the bounds of a window."""
    return any(column.name.lower() in WINDOW_BOUNDS for column in node.find_all(exp.Column))


def _without_bounds(
    meanings: list[tuple[exp.Expression, exp.Expression]], relation: Relation, text: Text
) -> list[tuple[exp.Expression, exp.Expression]]:
    """Remove the bounds of a window function from the keys: groups lie in one window anyway.

    Without them the groups would be those of all windows together, as in Flink.
    """
    clause = relation.window
    assert clause is not None
    kept = [pair for pair in meanings if not _is_bound(pair[1])]
    if len(kept) == len(meanings):
        raise text.error_at(
            "rows of a window function are grouped by its windows: write GROUP BY window_start, window_end, …",
            clause.start,
            clause.end,
        )
    keys = {node.name.lower() for _, node in kept if isinstance(node, exp.Column)}
    if clause.kind == "session" and (
        len(keys) < len(kept) or keys != {name.lower() for name in clause.partition}
    ):
        raise text.error_at(
            "sessions are those of the keys in PARTITION BY: GROUP BY takes these keys, window_start and window_end",
            clause.start,
            clause.end,
        )
    return kept


def _is_bound(node: exp.Expression) -> bool:
    return isinstance(node, exp.Column) and node.name.lower() in (*WINDOW_BOUNDS, WINDOW_TIME)


def _meant(
    node: exp.Expression,
    select: exp.Select,
    aliases: dict[str, exp.Expression],
    relation: Relation,
    text: Text,
) -> exp.Expression:
    """Resolve a position, or an alias that is not a column, to its item of the SELECT list."""
    if isinstance(node, exp.Literal) and not node.is_string:
        place = int(node.this) if str(node.this).isdigit() else 0
        if not 1 <= place <= len(select.expressions):
            raise text.error(f"there is no item {node.this} in the SELECT list; the first is 1", node)
        item = select.expressions[place - 1]
        return item.this if isinstance(item, exp.Alias) else item
    if isinstance(node, exp.Column) and not node.table and ColumnResolver(relation, text).found(node) is None:
        return aliases.get(node.name.lower(), node)
    return node


def _keyed(relation: Relation, keys: Sequence[tuple[Expr, exp.Expression]], text: Text) -> Grouping:
    found: list[GroupKey] = []
    taken = {*relation.schema.names, *WINDOW_BOUNDS}
    stream = relation.stream
    for expr, node in keys:
        if any(key.node == expr.node for key in found):
            continue
        if isinstance(expr.node, Column) and expr.node.name not in WINDOW_BOUNDS:
            found.append(GroupKey(expr.node, expr.node.name))
            continue
        if expr.node in (Column(WINDOW_START), Column(WINDOW_END)):
            continue  # groups lie in one window anyway
        name = free_name(f"key {len(found)}", taken)
        taken.add(name)
        with text.at(node):
            stream = stream.with_columns(expr.alias(name))
        found.append(GroupKey(expr.node, name))
    return Grouping(relation.over(stream), tuple(found), text)


# --- windows as functions -------------------------------------------------------------------------------


def _with_window(node: exp.Anonymous, relation: Relation, text: Text) -> Relation:
    """Read TUMBLE(ts, size), HOP(ts, slide, size), SESSION(ts, gap), window(ts, size[, slide])."""
    name, given = str(node.this).lower(), node.expressions
    if relation.window is not None or relation.carries:
        raise text.error("these rows have a window already; write one", node)
    if (
        not given
        or not isinstance(given[0], exp.Column)
        or ColumnResolver(relation, text).column(given[0]) != relation.time.column
    ):
        raise text.error(f"the first argument of {name} is the time column of the stream", node)
    lengths = [length(argument, text) for argument in given[1:]]
    match name, lengths:
        case "tumble" | "window", [size]:
            clause = Clause("range", size)
        case "hop", [slide, size]:
            clause = Clause("range", size, slide)
        case "window", [size, slide]:
            clause = Clause("range", size, slide)
        case "session" | "session_window", [gap]:
            clause = Clause("session", gap)
        case _:
            raise text.error(
                "write TUMBLE(ts, size), HOP(ts, slide, size), SESSION(ts, gap) or window(ts, size, slide)",
                node,
            )
    return replace(relation, window=clause)


def edge(node: exp.Expression) -> str | None:
    """Return the window bound that TUMBLE_START(…) or a similar function names."""
    return EDGES.get(str(node.this).lower()) if isinstance(node, exp.Anonymous) else None


# --- aggregates -------------------------------------------------------------------------------------


def aggregated(
    grouping: Grouping,
    outputs: Sequence[SelectOutput],
    conditions: Sequence[Expr],
    text: Text,
    node: exp.Expression,
) -> tuple[Relation, list[SelectOutput]]:
    """Reduce each window and key; return the result and how outputs read it.

    `conditions` are those of HAVING: only rows for which all are true remain.
    """
    relation = grouping.relation
    keys = [key.column for key in grouping.keys]
    taken = {*relation.schema.names, *WINDOW_BOUNDS}
    fields: list[Expr] = []
    read: list[SelectOutput] = []
    for output in [*outputs, *(SelectOutput("having", condition) for condition in conditions)]:
        if not ex.has_aggregate(output.expr.node):
            read.append(output)
            continue
        name = free_name(output.name, taken)
        taken.add(name)
        fields.append(output.expr.alias(name))
        read.append(SelectOutput(output.name, col(name)))
    with text.at(node):
        stream = _reduced(relation, keys, fields or [count().alias(free_name("rows", taken))], text, node)
        having = [item.expr for item in read[len(outputs) :]]
        stream = stream.filter(*having) if having else stream
    return replace(relation.over(stream), window=None, latest=False), read[: len(outputs)]


def _reduced(
    relation: Relation, keys: list[str], fields: list[Expr], text: Text, node: exp.Expression
) -> Stream:
    clause = relation.window
    if clause is None:
        if relation.carries:
            return relation.stream.window(by=keys).agg(*fields)
        return relation.stream.window(unbounded(), by=keys).agg(*fields)
    counted = {
        column.column
        for column in relation.columns
        if column.name.lower() in {name.lower() for name in clause.partition}
    }
    if clause.counts and set(keys) != counted:
        if not counted <= set(keys):
            raise text.error("rows are counted by PARTITION BY: add its columns to GROUP BY", node)
        return attached(relation).stream.window(by=keys).agg(*fields)
    return relation.stream.window(clause.window(relation.time), by=keys).agg(*fields)
