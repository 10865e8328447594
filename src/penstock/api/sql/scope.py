"""Name resolution: the columns in scope, and their names in the plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

import pyarrow as pa
from sqlglot import exp

from penstock.api.bind import bound, row_fields
from penstock.api.expr import Expr
from penstock.api.names import free_name
from penstock.api.row_verbs import projected
from penstock.api.sql.parse import is_struct
from penstock.api.sql.source_span import Text, span_of
from penstock.api.sql.window_clauses import Clause
from penstock.api.stream import Stream
from penstock.errors import PenstockError, SqlError, UnknownColumnError
from penstock.expr.nodes import Column, Field
from penstock.expr.typing import listed, type_of
from penstock.plan.schema import bounds, carries_window, schema_of, sources_of, time_of
from penstock.types.choices import repeated
from penstock.types.time import Time
from penstock.types.windows import JOIN_TIME, WINDOW_BOUNDS

TIMESTAMP = "timestamp"  # SABER's name for the time of every stream
WINDOW_TIME = "window_time"  # Flink's name for the time of a window's result
RESERVED = frozenset({*WINDOW_BOUNDS, JOIN_TIME})


@dataclass(frozen=True, slots=True)
class Visible:
    """A column: its source, its name in the query text, and its name in the plan.

    A column that USING merged into another is found by its qualified name only.
    """

    source: str
    name: str
    column: str
    merged: bool = False


@dataclass(frozen=True, slots=True)
class Relation:
    """Rows of FROM: a stream, the columns in scope, and a window clause not yet applied.

    `times` has each source's time column, and its copies. `latest` marks rows without multiplicities. `once` is set if
    rows are already repeated per window: the same rows, each once, without windows.
    """

    stream: Stream
    columns: tuple[Visible, ...]
    times: tuple[tuple[str, str], ...]
    window: Clause | None = None
    latest: bool = False
    once: Relation | None = None

    @property
    def schema(self) -> pa.Schema:
        return schema_of(self.stream.raw_plan)

    @property
    def time(self) -> Time:
        return time_of(self.stream.raw_plan)

    @property
    def carries(self) -> bool:
        return carries_window(self.stream.raw_plan)

    @property
    def in_windows(self) -> bool:
        """Whether rows have a window: one they carry, or a window clause."""
        return self.window is not None or self.carries

    @property
    def is_table(self) -> bool:
        return not sources_of(self.stream.raw_plan)

    def over(self, stream: Stream) -> Relation:
        """Return the same names over another stream with these columns."""
        return replace(self, stream=stream, once=None)


def relation_of(stream: Stream, source: str) -> Relation:
    """Convert a stream to a relation; reject columns with the names that windows and joins add."""
    plan = stream.raw_plan
    names = list(schema_of(plan).names)
    taken = () if carries_window(plan) else RESERVED
    columns: dict[str, str] = {}
    for name in names:
        columns[name] = free_name(name, {*taken, *columns.values(), *names} - ({name} - set(taken)))
    if any(name != column for name, column in columns.items()):
        stream = stream.rename({name: column for name, column in columns.items() if name != column})
    visible = tuple(Visible(source, name, column) for name, column in columns.items())
    return Relation(stream, visible, _times(stream, source))


def _times(stream: Stream, source: str) -> tuple[tuple[str, str], ...]:
    time = time_of(stream.raw_plan).column
    return ((source, time),) if time in schema_of(stream.raw_plan).names else ()


def without_window(relation: Relation) -> Relation:
    """Turn the window bounds that rows carry into ordinary columns."""
    if not relation.carries:
        return relation
    taken = set(relation.schema.names)
    names = {name: free_name(f"{name}'", taken) for name in WINDOW_BOUNDS}
    renamed = {column: names.get(column.column, column.column) for column in relation.columns}
    return replace(
        relation,
        stream=relation.stream.rename(names),
        columns=tuple(replace(visible, column=column) for visible, column in renamed.items()),
        times=tuple((source, names.get(column, column)) for source, column in relation.times),
    )


def attached(relation: Relation) -> Relation:
    """Apply the window clause: repeat each row once per window."""
    if relation.window is None:
        return relation
    window = relation.window.window(relation.time)
    by = [partition_column(relation, name) for name in relation.window.partition]
    stream = relation.stream.window(window, by=by or None).with_columns()
    return replace(relation.over(stream), window=None)


def with_bounds(relation: Relation) -> Relation:
    """Apply the window of a table function: rows of each window, with its bounds as columns."""
    if relation.window is None or not relation.window.descriptor:
        return relation
    source = relation.columns[0].source
    bounds = tuple(Visible(source, name, name) for name in WINDOW_BOUNDS)
    made = attached(relation)
    return replace(made, columns=(*made.columns, *bounds))


def partition_column(relation: Relation, name: str) -> str:
    """Return the column that PARTITION BY names."""
    alike = [column.column for column in relation.columns if column.name.lower() == name.lower()]
    return alike[0] if alike else name


def extended(relation: Relation, columns: dict[str, Expr]) -> Relation:
    """Add columns that the query text cannot reference."""
    if not columns:
        return relation
    return relation.over(relation.stream.with_columns(*(made.alias(name) for name, made in columns.items())))


@dataclass(frozen=True, slots=True)
class ColumnResolver:
    """Resolves columns of a relation. In `grouped` parts of a query, window bounds are columns too."""

    relation: Relation
    text: Text
    grouped: bool = False

    @property
    def schema(self) -> pa.Schema:
        schema = self.relation.schema
        if not self.grouped:
            return schema
        kept = [field for field in schema if field.name not in WINDOW_BOUNDS]
        return pa.schema([*kept, *bounds(self.relation.time)])

    def type_of(self, expr: Expr) -> pa.DataType | None:
        """Return the type of an expression; None if it is ill typed, which its use will report."""
        try:
            return type_of(bound(expr.node, self.schema, self.relation.time), self.schema)
        except PenstockError:
            return None

    def column(self, node: exp.Column) -> str:
        """Resolve a column by its name, and by its source if given."""
        found = self.found(node)
        if found is not None:
            return found.column
        name, source = node.name.lower(), node.table
        if source.lower() == "window" and name in ("start", "end"):
            name, source = f"window_{name}", ""
        if name in WINDOW_BOUNDS and not source and (self.grouped or self.relation.carries):
            return str(name)
        if name == TIMESTAMP and (column := self._time(source)) is not None:
            return column
        raise self._unknown(node)

    def found(self, node: exp.Column) -> Visible | None:
        """Find a column in scope: by exact name, else ignoring case."""
        name, source = node.name, node.table
        quoted = bool(node.this.args.get("quoted"))
        among = [
            column
            for column in self.relation.columns
            if not source or column.source.lower() == source.lower()
        ]
        among = [column for column in among if source or not column.merged]
        alike = [column for column in among if column.name == name]
        if not alike and not quoted:
            alike = [column for column in among if column.name.lower() == name.lower()]
        if len({column.column for column in alike}) > 1:
            where = " and ".join(sorted({f"{column.source}.{column.name}" for column in alike}))
            raise self.text.error(f"{name!r} could be {where}; write which", node)
        return alike[0] if alike else None

    def _time(self, source: str) -> str | None:
        if source:
            times = [column for name, column in self.relation.times if name.lower() == source.lower()]
            return times[0] if times else None
        column = self.relation.time.column
        return column if column in self.relation.schema.names else None

    def _unknown(self, node: exp.Column) -> PenstockError:
        sources = {column.source.lower(): column.source for column in self.relation.columns}
        alone = is_struct(node) and not node.table
        stream = node.name if alone else node.table
        if stream and stream.lower() not in sources:
            further = ", and no column of that name" if alone else ""
            return self.text.error(
                f"there is no stream {stream!r} in FROM (there is {listed(list(sources.values()))}){further}",
                node,
            )
        source = node.table.lower() if node.table else None
        names = [column.name for column in self.relation.columns if source in (None, column.source.lower())]
        near = get_close_matches(node.name, names, n=1, cutoff=0.6)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        span = span_of(node)
        where = "" if span is None else f"{self.text.place(span[0])}: "
        of = f" in {sources[source]!r}" if source else ""
        return UnknownColumnError(
            f"{where}there is no column {node.name!r}{of}{hint} (columns: {listed(names)})"
        )

    def is_time(self, column: str) -> bool:
        """Return whether a column is the time of the rows; in a window's result that is the window's end."""
        return column == self.relation.time.column or column in {end for _, end in self.relation.times}


@dataclass(frozen=True, slots=True)
class SelectOutput:
    """A result column: its name, and its expression over the input rows."""

    name: str
    expr: Expr


def project(relation: Relation, outputs: Sequence[SelectOutput], source: str, text: Text) -> Relation:
    """Compute the columns of a SELECT. The time and window of the rows are kept, selected or not."""
    plan = relation.stream.raw_plan
    hidden = dict.fromkeys([*(WINDOW_BOUNDS if relation.carries else ()), relation.time.column])
    kept = [name for name in relation.schema.names if name in hidden]
    taken = set(kept)
    fields, visible = [Field(name, Column(name)) for name in kept], []
    for output in outputs:
        own = output.expr.node.name if isinstance(output.expr.node, Column) else ""
        column = own if own in kept else free_name(output.name, taken)
        if column not in taken:
            (made,) = row_fields([output.expr.alias(column)], {}, relation.schema, relation.time, "SELECT")
            fields.append(made)
        taken.add(column)
        visible.append(Visible(source, output.name, column))
    _refuse_twice(outputs, text)
    stream = relation.stream.derived(projected(plan, tuple(fields)))
    copies = tuple(
        (source, seen.column)
        for output, seen in zip(outputs, visible, strict=True)
        if output.expr.node in {Column(column) for _, column in relation.times}
    )
    once = None if relation.once is None else project(relation.once, outputs, source, text)
    times = _times(stream, source) + copies
    return replace(relation, stream=stream, columns=tuple(visible), times=times, once=once)


def _refuse_twice(outputs: Sequence[SelectOutput], text: Text) -> None:
    names = [output.name for output in outputs]
    twice = next(iter(repeated(names)), None)
    if twice is not None:
        raise SqlError(f"SELECT gives two columns named {twice!r}; name one of them otherwise, with AS")
