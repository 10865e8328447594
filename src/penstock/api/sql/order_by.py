"""ORDER BY with LIMIT: select the rows of each window that remain.

Results are ordered by window anyway. The order of rows inside a window is not guaranteed, but with a limit it
determines which rows remain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlglot import exp

from penstock.api.expr import Expr, call
from penstock.api.names import free_name
from penstock.api.sql.scope import ColumnResolver, Relation
from penstock.api.sql.source_span import Text
from penstock.expr.nodes import Column
from penstock.types.arrow import kind_of
from penstock.types.windows import WINDOW_BOUNDS


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
                raise text.error(f"there is no item {node.this} in the SELECT list", node)
            node = items[place - 1]
        if part.args.get("desc") and part.args.get("nulls_first"):
            raise text.error("nulls come last", part)
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
