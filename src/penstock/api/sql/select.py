"""SELECT: translate the rows of FROM to a result relation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from penstock.api.aggregates import count
from penstock.api.expr import Expr, call
from penstock.api.functions import col
from penstock.api.names import free_name
from penstock.api.sql import aggregates
from penstock.api.sql.expressions import Translator
from penstock.api.sql.group_by import Grouping, aggregated, edge, grouping, names_bounds
from penstock.api.sql.scope import (
    ColumnResolver,
    Relation,
    SelectOutput,
    Visible,
    attached,
    project,
    with_bounds,
)
from penstock.api.sql.source_span import Text
from penstock.api.sql.sources import Environment, sources
from penstock.api.sql.stream_operators import rows_once
from penstock.expr.nodes import Column
from penstock.types.arrow import kind_of
from penstock.types.windows import WINDOW_BOUNDS

# --- ORDER BY with LIMIT: select the rows of each window that remain.
#
# Results are ordered by window anyway. The order of rows inside a window is not guaranteed, but with a limit it
# determines which rows remain.


@dataclass(frozen=True, slots=True)
class SortKey:
    """The sort key of the rows of a window."""

    expr: Expr
    descending: bool
    node: exp.Expression

    @property
    def is_time(self) -> bool:
        """Whether the key is a window bound, by which results are ordered anyway."""
        return self.expr.node in [Column(name) for name in WINDOW_BOUNDS]


@dataclass(frozen=True, slots=True)
class OrderBy:
    """ORDER BY and LIMIT as written."""

    parts: tuple[exp.Expression, ...]
    limit: int | None
    node: exp.Expression | None

    @staticmethod
    def read(select: exp.Select, text: Text) -> OrderBy:
        order, limit = select.args.get("order"), select.args.get("limit")
        parts = () if order is None else tuple(order.expressions)
        return OrderBy(parts, None if limit is None else _number(limit, text), order or limit)

    def key(
        self, translate: Callable[[exp.Expression], Expr], items: Sequence[exp.Expression], text: Text
    ) -> SortKey | None:
        """Return the key that determines which rows remain; None if there is none."""
        keys = [self._key(part, translate, items, text) for part in self.parts]
        values = [key for key in keys if not key.is_time]
        backwards = [key for key in keys if key.is_time and key.descending]
        if backwards:
            raise text.error("results come in the order of time, never backwards", backwards[0].node)
        if self.limit is None and values:
            raise text.error(
                "the order of rows inside a window is not promised: sort what .collect() gives, or add LIMIT",
                values[0].node,
            )
        if self.limit is not None and len(values) != 1:
            raise text.error(
                "LIMIT keeps so many rows of each window: ORDER BY one value says which", self.node
            )
        return values[0] if values else None

    @staticmethod
    def _key(
        part: exp.Expression,
        translate: Callable[[exp.Expression], Expr],
        items: Sequence[exp.Expression],
        text: Text,
    ) -> SortKey:
        node = part.this if isinstance(part, exp.Ordered) else part
        if isinstance(node, exp.Literal) and not node.is_string:
            place = int(node.this) if str(node.this).isdigit() else 0
            if not 1 <= place <= len(items):
                raise text.error(f"there is no item {node.this} in the SELECT list; the first is 1", node)
            node = items[place - 1]
        if part.args.get("desc") and part.args.get("nulls_first"):
            raise text.error("nulls come last; leave out NULLS FIRST", part)
        with text.at(part):
            return SortKey(translate(node), bool(part.args.get("desc")), part)


def _number(limit: exp.Expression, text: Text) -> int:
    given = limit.expression if isinstance(limit, exp.Limit) else None
    written = str(given.this) if isinstance(given, exp.Literal) else ""
    if not written.isdigit() or len(written) > 18:
        raise text.error("LIMIT takes a whole number of rows", limit)
    return int(written)


def limited(relation: Relation, key: SortKey, order: OrderBy, text: Text) -> Relation:
    """Keep the first rows of each window."""
    assert order.limit is not None
    hidden = free_name("order", relation.schema.names)
    stream = relation.stream.with_columns(_falling(relation, key, text).alias(hidden))
    return relation.over(stream.top_k(order.limit, by=hidden))


def _falling(relation: Relation, key: SortKey, text: Text) -> Expr:
    """Return a descending key, negating an ascending one: the largest rows remain."""
    if key.descending:
        return key.expr
    dtype = ColumnResolver(relation, text).type_of(key.expr)
    kind = "" if dtype is None else kind_of(dtype)
    if kind in ("int", "uint", "float", "duration"):
        return -key.expr
    if kind in ("timestamp", "date"):
        return -call("epoch_ticks", key.expr)
    raise text.error("rising order with LIMIT is known for numbers and times; write DESC", key.node)


@dataclass(frozen=True, slots=True)
class Item:
    """One item of a SELECT list: its column name and its expression."""

    name: str
    node: exp.Expression


def select(node: exp.Select, environment: Environment, source: str) -> Relation:
    """Translate a SELECT; `source` qualifies its columns if it stands in FROM."""
    text = environment.text
    relation, conditions = sources(node, environment)
    reduces = _reduces(node, text)
    if not reduces or any(names_bounds(condition) for condition in conditions):
        relation = with_bounds(relation)
    relation = _filtered(relation, conditions, text)
    items = _items(node, relation, text)
    order = OrderBy.read(node, text)
    if relation.latest and (reduces or node.args.get("distinct") is None):
        raise text.error(
            "a join with [partition by k rows 1] gives distinct rows only: write SELECT DISTINCT", node
        )
    if reduces:
        made = _grouped(node, relation, items, order, source, text)
    else:
        made = _row_by_row(node, relation, items, order, source, text)
    return made


def _filtered(relation: Relation, conditions: Sequence[exp.Expression], text: Text) -> Relation:
    """Apply the remaining WHERE conditions: after a window that counts rows, else before it."""
    if conditions and relation.window is not None and relation.window.counts:
        once = _filtered(rows_once(relation), conditions, text)
        return replace(_filtered(attached(relation), conditions, text), once=once)
    for condition in conditions:
        with text.at(condition):
            relation = relation.over(
                relation.stream.filter(Translator(ColumnResolver(relation, text))(condition))
            )
    return relation


def _reduces(node: exp.Select, text: Text) -> bool:
    parts = [*node.expressions, node.args.get("having")]
    return node.args.get("group") is not None or any(
        aggregates.read(call, text) is not None
        for part in parts
        if part is not None
        for call in part.find_all(exp.Anonymous)
    )


# --- SELECT list ------------------------------------------------------------------------------------


def _items(node: exp.Select, relation: Relation, text: Text) -> list[Item]:
    found = [item for expression in node.expressions for item in _expanded(expression, relation, text)]
    if not found:
        raise text.error("SELECT has no columns; name some, or write *", node)
    return found


def _expanded(node: exp.Expression, relation: Relation, text: Text) -> list[Item]:
    match node:
        case exp.Alias():
            return [Item(str(node.alias), node.this)]
        case exp.Star() | exp.Column(this=exp.Star()):
            return _all_columns(node, relation, text)
        case exp.Column():
            return [Item(_spelled(node, relation, text), node)]
        case exp.Dot():
            with text.at(node):
                return [Item(Translator(ColumnResolver(relation, text))(node).name or node.name, node)]
        case _:
            return [Item(node.sql(normalize_functions="lower"), node)]


def _spelled(node: exp.Column, relation: Relation, text: Text) -> str:
    """Return the name of a column as declared, whatever its case in the query."""
    found = ColumnResolver(relation, text).found(node)
    return node.name if found is None else found.name


def _all_columns(node: exp.Expression, relation: Relation, text: Text) -> list[Item]:
    source = node.args["table"].name.lower() if node.args.get("table") else None
    among = [column for column in relation.columns if source is None or column.source.lower() == source]
    among = [column for column in among if source is not None or not column.merged]
    if not among:
        raise text.error(
            "there is no such stream in FROM; a column is qualified by a name or alias there", node
        )
    items: list[Item] = []
    for visible in among:
        name = visible.name
        while name in {item.name for item in items}:
            name += "_right"
        items.append(Item(name, _reference(visible)))
    return items


def _reference(visible: Visible) -> exp.Column:
    quoted = [exp.Identifier(this=part, quoted=True) for part in (visible.name, visible.source)]
    return exp.Column(this=quoted[0], table=quoted[1] if visible.source else None)


# --- row by row -------------------------------------------------------------------------------------


def _row_by_row(
    node: exp.Select, relation: Relation, items: Sequence[Item], order: OrderBy, source: str, text: Text
) -> Relation:
    if node.args.get("having") is not None:
        raise text.error("HAVING filters groups; without GROUP BY, write WHERE", node.args["having"])
    translate = Translator(ColumnResolver(relation, text))
    outputs = []
    for item in items:
        with text.at(item.node):
            outputs.append(SelectOutput(item.name, translate(item.node)))
    if node.args.get("distinct") is not None:
        relation, outputs = _distinct(node, relation, outputs, text)
    aliases = {output.name.lower(): output.expr for output in outputs}
    key = order.key(
        Translator(ColumnResolver(relation, text), outer=lambda column: _alias(column, aliases)),
        items_of(items),
        text,
    )
    if order.node is not None and not relation.carries:
        raise text.error(
            "rows leave as they come; ORDER BY and LIMIT are about the rows of a window", order.node
        )
    with text.at(node):
        relation = relation if key is None else limited(relation, key, order, text)
        return project(relation, outputs, source, text)


def items_of(items: Sequence[Item]) -> list[exp.Expression]:
    """List the expressions."""
    return [item.node for item in items]


def _distinct(
    node: exp.Select, relation: Relation, outputs: list[SelectOutput], text: Text
) -> tuple[Relation, list[SelectOutput]]:
    """Reduce each window to its distinct rows; without a window, emit each row at its first occurrence."""
    taken = {*relation.schema.names, "window_start", "window_end"}
    columns: list[SelectOutput] = []
    for output in outputs:
        name = free_name(f"{output.name}'", taken)
        taken.add(name)
        columns.append(SelectOutput(name, output.expr))
    with text.at(node):
        stream = relation.stream.with_columns(*(column.expr.alias(column.name) for column in columns))
        names = [column.name for column in columns]
        relation = relation.over(stream)
        if relation.window is None and not relation.carries:
            stream = stream.distinct(names)
        else:
            rows = attached(relation) if relation.window is not None and relation.window.counts else relation
            window = None if rows.window is None else rows.window.window(rows.time)
            stream = rows.stream.window(window, by=names).agg(count().alias(free_name("rows", taken)))
    made = [
        SelectOutput(output.name, col(column.name)) for output, column in zip(outputs, columns, strict=True)
    ]
    return replace(relation.over(stream), window=None, latest=False), made


# --- groups -----------------------------------------------------------------------------------------


def _grouped(
    node: exp.Select, relation: Relation, items: Sequence[Item], order: OrderBy, source: str, text: Text
) -> Relation:
    named = {item.name.lower(): item.node for item in items}
    groups = grouping(node, relation, named, text)
    outputs = [SelectOutput(item.name, _outer(item.node, groups, {}, text)) for item in items]
    aliases = {output.name.lower(): output.expr for output in outputs}
    having = node.args.get("having")
    conditions = [] if having is None else [_outer(having.this, groups, aliases, text)]
    key = order.key(lambda part: _outer(part, groups, aliases, text), items_of(items), text)
    further = [] if key is None else [SelectOutput("order", key.expr)]
    made, read = aggregated(groups, [*outputs, *further], conditions, text, node)
    results = read[: len(outputs)]
    if node.args.get("distinct") is not None:
        if key is not None:
            raise text.error("DISTINCT and LIMIT do not go together; use a sub-query", node)
        made, results = _distinct(node, made, results, text)
    with text.at(node):
        made = made if key is None else limited(made, replace(key, expr=read[-1].expr), order, text)
        return project(made, results, source, text)


def _outer(node: exp.Expression, groups: Grouping, aliases: dict[str, Expr], text: Text) -> Expr:
    """Translate an expression over groups."""
    names = ColumnResolver(groups.relation, text, grouped=True)
    bound = edge(node)
    if bound is not None:
        return col(bound)
    with text.at(node):
        translated = Translator(names, reducing=True, outer=lambda column: _alias(column, aliases))(node)
        return groups.outer(translated, node)


def _alias(column: exp.Column, aliases: dict[str, Expr]) -> Expr | None:
    """Resolve a name of the SELECT list; in HAVING and ORDER BY these precede columns."""
    return None if column.table else aliases.get(column.name.lower())
