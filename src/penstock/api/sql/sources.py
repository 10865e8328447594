"""FROM: streams, sub-queries and joins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

from sqlglot import exp

from penstock.api.sql.expressions import Translator
from penstock.api.sql.join_conditions import Joining
from penstock.api.sql.joins import joined
from penstock.api.sql.parse import ParsedQuery
from penstock.api.sql.scope import (
    TIMESTAMP,
    WINDOW_TIME,
    ColumnResolver,
    Relation,
    relation_of,
    with_bounds,
    without_window,
)
from penstock.api.sql.source_span import Text
from penstock.api.sql.stream_operators import SqlQuery, rows_once
from penstock.api.sql.window_clauses import Clause
from penstock.api.stream import Stream
from penstock.expr.typing import listed
from penstock.types.choices import repeated
from penstock.types.windows import WINDOW_BOUNDS

Select = Callable[[exp.Expression, "Environment", str], Relation]
_KINDS = {"": "inner", "INNER": "inner", "CROSS": "inner", "OUTER": "", "SEMI": "semi", "ANTI": "anti"}


@dataclass(frozen=True)
class Environment:
    """The scope of a query: streams, relations of WITH, and the window clauses of the text."""

    reading: ParsedQuery
    streams: Mapping[str, Stream]
    relations: Mapping[str, Relation]
    used: set[int]
    select: Select

    @property
    def text(self) -> Text:
        return self.reading.text

    def with_relation(self, name: str, relation: Relation) -> Environment:
        """Add a relation of WITH, which hides streams of that name."""
        return replace(self, relations={**self.relations, name: relation})

    def clause(self, *words: exp.Expression | None) -> Clause | None:
        """Return the window clause after one of these words."""
        starts = [word.meta.get("start") for word in words if word is not None]
        found = [start for start in starts if start in self.reading.clauses]
        self.used.update(found)
        if len(found) > 1:
            clause = self.reading.clauses[found[1]]
            raise self.text.error_at(
                "a stream has one window; leave the second out", clause.start, clause.end
            )
        return self.reading.clauses[found[0]] if found else None


def sources(select: exp.Select, environment: Environment) -> tuple[Relation, list[exp.Expression]]:
    """Read FROM and its joins; return the rows and the remaining WHERE conditions."""
    text = environment.text
    origin = select.args.get("from_")
    if origin is None:
        raise text.error("a query reads streams: FROM is missing", select)
    written = select.args.get("joins") or []
    items = [
        _source(origin_or_join, environment)
        for origin_or_join in (origin.this, *(join.this for join in written))
    ]
    _refuse_same_names(items, text, select)
    where = select.args.get("where")
    conditions = [] if where is None else conjuncts(where.this)
    joins = [_joining(join, text) for join in written]
    if joins:
        _check_windows_meet(
            items, [*conditions, *(condition for join in joins for condition in join.on)], text
        )
        items = [with_bounds(item) for item in items]
    if all(join.how == "inner" and not join.nearest for join in joins):
        items, conditions = _filtered_first(items, conditions, text)
    whole = items[0]
    needed = _needed(select)
    for item, join in zip(items[1:], joins, strict=True):
        whole, conditions = joined(whole, item, join, conditions, needed, text)
    return whole, conditions


def _check_windows_meet(items: Sequence[Relation], conditions: Sequence[exp.Expression], text: Text) -> None:
    """Reject a join of window functions without equal windows: its rows would meet across windows, as in Flink."""
    equal = {
        side.name.lower()
        for condition in conditions
        if isinstance(condition, exp.EQ)
        for side in (condition.this, condition.expression)
        if isinstance(side, exp.Column)
    }
    for item in items:
        if item.window is not None and item.window.descriptor and not equal >= set(WINDOW_BOUNDS):
            raise text.error_at(
                "rows of window functions meet in equal windows: "
                "add ON a.window_start = b.window_start AND a.window_end = b.window_end",
                item.window.start,
                item.window.end,
            )


def conjuncts(node: exp.Expression) -> list[exp.Expression]:
    """Split a condition at its ANDs."""
    found: list[exp.Expression] = []
    waiting = [node]
    while waiting:
        match waiting.pop():
            case exp.Paren(this=inner):
                waiting.append(inner)
            case exp.And(this=left, expression=right):
                waiting += (right, left)
            case other:
                found.append(other)
    return found


def _source(node: exp.Expression, environment: Environment) -> Relation:
    text = environment.text
    alias = node.args.get("alias")
    own = None if alias is None else alias.this
    match node:
        case exp.Table(this=exp.Identifier() as name):
            clause = environment.clause(name, own)
            return _windowed(_named(name, own or name, environment), clause, text)
        case exp.Subquery():
            if own is None and environment.clause():
                raise text.error("give this sub-query a name, with AS", node)
            clause = environment.clause(own)
            source = "" if own is None else str(own.this)
            return _windowed(environment.select(node.this, environment, source), clause, text)
        case _:
            raise text.error("in FROM stand streams, sub-queries and joins of them", node)


def _named(name: exp.Identifier, alias: exp.Identifier, environment: Environment) -> Relation:
    """Find a relation of WITH, else a stream: by exact name, else ignoring case."""
    source = str(alias.this)
    key = _found(str(name.this), environment.relations)
    if key is not None:
        return _called(environment.relations[key], source)
    key = _found(str(name.this), environment.streams)
    if key is None:
        known = [*environment.relations, *environment.streams]
        near = get_close_matches(str(name.this), known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise environment.text.error(
            f"there is no stream {str(name.this)!r}{hint} (streams: {listed(known) or 'none'}); "
            "pass it by name, as in pk.sql(text, events=stream)",
            name,
        )
    stream = environment.streams[key]
    return _called(stream.relation, source) if isinstance(stream, SqlQuery) else relation_of(stream, source)


def _called(relation: Relation, source: str) -> Relation:
    columns = tuple(replace(column, source=source) for column in relation.columns)
    times = tuple((source, column) for _, column in relation.times)
    once = None if relation.once is None else _called(relation.once, source)
    return replace(relation, columns=columns, times=times, once=once)


def _found(name: str, known: Mapping[str, object]) -> str | None:
    if name in known:
        return name
    alike = [candidate for candidate in known if candidate.lower() == name.lower()]
    return alike[0] if len(alike) == 1 else None


def _windowed(relation: Relation, clause: Clause | None, text: Text) -> Relation:
    """Set the window clause of a relation; windows that its rows carry become ordinary columns."""
    if clause is None:
        return relation
    if relation.is_table:
        raise text.error_at(
            "a table has no time, and so no window; leave the window out", clause.start, clause.end
        )
    if not clause.descriptor:
        return replace(without_window(rows_once(relation)), window=clause)
    _check_descriptor(relation, clause, text)
    apart = without_window(rows_once(relation))
    # The bounds of the function hide those of the windows that the rows come from.
    columns = tuple(column for column in apart.columns if column.name not in WINDOW_BOUNDS)
    return replace(apart, columns=columns, window=clause)


def _check_descriptor(relation: Relation, clause: Clause, text: Text) -> None:
    """Reject windows along another column than the time of the rows."""
    name, time = clause.descriptor, relation.time.column
    column = exp.Column(this=exp.Identifier(this=name))
    found = ColumnResolver(relation, text).found(column)
    known = name.lower() in (TIMESTAMP, WINDOW_TIME if relation.carries else TIMESTAMP)
    if (found is None and not known) or (found is not None and found.column != time):
        raise text.error_at(
            f"DESCRIPTOR({name}) is not the time column of {relation.columns[0].source!r}: windows follow {time!r}",
            clause.start,
            clause.end,
        )


def _refuse_same_names(items: Sequence[Relation], text: Text, node: exp.Expression) -> None:
    names = [next((column.source for column in item.columns), "").lower() for item in items]
    twice = repeated(names)
    if twice:
        raise text.error(f"two streams in FROM are called {twice[0]!r}; give them names, with AS", node)


def _joining(join: exp.Join, text: Text) -> Joining:
    nearest = str(join.args.get("method") or "").upper()
    if nearest not in ("", "ASOF"):
        raise text.error("NATURAL joins are not part of streaming SQL; use ON or USING", join)
    side, kind = str(join.args.get("side") or "").upper(), str(join.args.get("kind") or "").upper()
    how = side.lower() if side and kind in ("", "OUTER") else _KINDS.get(kind, "")
    if not how or (side == "RIGHT" and kind in ("SEMI", "ANTI")):
        raise text.error("joins are INNER, LEFT, RIGHT, FULL, LEFT SEMI, LEFT ANTI and CROSS", join)
    on = join.args.get("on")
    using = [column for column in join.args.get("using") or [] if isinstance(column, exp.Identifier)]
    if using and how in ("right", "full"):
        raise text.error("USING goes with inner and left joins; write ON, and coalesce(a.k, b.k)", join)
    return Joining(how, [] if on is None else conjuncts(on), using, join, bool(nearest))


def _filtered_first(
    items: Sequence[Relation], conditions: Sequence[exp.Expression], text: Text
) -> tuple[list[Relation], list[exp.Expression]]:
    """Filter each source by the conditions on it alone, unless its window counts rows."""
    every = ColumnResolver(_all(items), text)
    found, left = list(items), []
    for condition in conditions:
        places = {_place(column, items, every) for column in condition.find_all(exp.Column)}
        place = places.pop() if len(places) == 1 else None
        if place is None or len(items) == 1 or _counts(found[place]):
            left.append(condition)
            continue
        with text.at(condition):
            predicate = Translator(ColumnResolver(found[place], text))(condition)
            found[place] = found[place].over(found[place].stream.filter(predicate))
    return found, left


def _counts(relation: Relation) -> bool:
    return relation.window is not None and relation.window.counts


def _all(items: Sequence[Relation]) -> Relation:
    columns = tuple(
        replace(column, column=f"{place}:{column.column}")
        for place, item in enumerate(items)
        for column in item.columns
    )
    return replace(items[0], columns=columns, times=tuple(time for item in items for time in item.times))


def _place(column: exp.Column, items: Sequence[Relation], every: ColumnResolver) -> int | None:
    """Return the source of a column, if it is unambiguous."""
    found = every.found(column)
    if found is not None:
        return int(found.column.partition(":")[0])
    sources = [next((visible.source.lower() for visible in item.columns), "") for item in items]
    return sources.index(column.table.lower()) if column.table and column.table.lower() in sources else None


def _needed(select: exp.Select) -> list[exp.Column] | None:
    """List the columns that a query references anywhere; None if it selects all with a star."""
    stars = [
        expression
        for expression in select.expressions
        if expression.find(exp.Star) and not expression.find(exp.Anonymous)
    ]
    return None if stars else list(select.find_all(exp.Column))
