"""Convert a relation back to a stream."""

from __future__ import annotations

from dataclasses import replace

from penstock.api.relation_to_stream import fresh, fresh_columns
from penstock.api.row_verbs import projected
from penstock.api.sql.scope import Relation, attached, with_bounds
from penstock.api.sql.window_clauses import Clause
from penstock.api.stream import Stream
from penstock.errors import WindowError
from penstock.expr.nodes import Column, Field


class SqlQuery(Stream):
    """A query written in SQL. Its columns are those of its SELECT list, and no others.

    Queries that aggregate, join or are DISTINCT return the rows of every window; those over single rows return each row
    once, however many windows hold it. `istream` and `rstream` select one or the other (SABER, section 2.4).
    """

    __slots__ = ("_relation",)

    def __init__(self, relation: Relation) -> None:
        stream = _streamed(relation)
        super().__init__(stream.raw_plan, stream.raw_data)
        self._relation = relation

    @property
    def relation(self) -> Relation:
        """The rows with their windows, for use in FROM of another query."""
        return self._relation

    def rstream(self) -> Stream:
        """Return the rows of every window."""
        if self._relation.window is not None:
            return SqlQuery(attached(self._relation))
        if self._relation.once is not None:
            return SqlQuery(replace(self._relation, once=None))
        if not self._relation.carries:
            raise WindowError(
                "these rows are in no window; put one behind the stream, as in [range 60 slide 1]"
            )
        return self

    def istream(self) -> Stream:
        """Return the rows that the previous window did not have."""
        relation = self._relation
        if not relation.carries or relation.once is not None:
            return self
        seen = [column.column for column in relation.columns]
        plan = fresh(relation.stream.raw_plan, fresh_columns(relation.stream.raw_plan, seen))
        return SqlQuery(relation.over(relation.stream.derived(plan)))


def _streamed(relation: Relation) -> Stream:
    """Project to the columns of the SELECT list."""
    relation = rows_once(relation)
    fields = tuple(Field(column.name, Column(column.column)) for column in relation.columns)
    return relation.stream.derived(projected(relation.stream.raw_plan, fields))


def rows_once(relation: Relation) -> Relation:
    """Return each row once instead of once per window, without rows that lie in no window."""
    if relation.once is not None:
        return relation.once
    if relation.window is None:
        return relation
    if relation.window.descriptor:
        return with_bounds(relation)
    return attached(relation) if _has_gaps(relation.window, relation) else replace(relation, window=None)


def _has_gaps(clause: Clause, relation: Relation) -> bool:
    window = clause.window(relation.time).resolve(relation.time)
    every, size = getattr(window, "every", None), getattr(window, "size", None)
    return isinstance(every, int) and isinstance(size, int) and every > size
