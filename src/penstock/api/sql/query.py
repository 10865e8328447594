"""The entry point: `pk.sql`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from penstock.api.custom import CustomAggregate
from penstock.api.expr import Expr
from penstock.api.functions import col
from penstock.api.names import Unnamed
from penstock.api.sql.aggregates import SQL_AGGREGATES
from penstock.api.sql.group_by import EDGES, WINDOWS
from penstock.api.sql.parse import WITH_SYNTAX, ParsedQuery, read
from penstock.api.sql.scalars import SPECIAL, SQL_FUNCTIONS
from penstock.api.sql.scope import Relation, Visible
from penstock.api.sql.select import select
from penstock.api.sql.sources import Environment
from penstock.api.sql.stream_operators import SqlQuery
from penstock.api.stream import Stream
from penstock.errors import ExpressionTypeError, SchemaMismatchError, SqlError
from penstock.expr.nodes import Column, Field
from penstock.expr.rules import type_of_both
from penstock.plan.nodes import Project, Source, Table
from penstock.types.windows import WINDOW_BOUNDS

# --- User-defined aggregates, which a query calls by their argument names.

_SYNTAX = ("case", "if", *(name.lower() for name in WITH_SYNTAX))
_TAKEN = frozenset({*SQL_AGGREGATES, *SQL_FUNCTIONS, *SPECIAL, *WINDOWS, *EDGES, *_SYNTAX})


def parted(given: Mapping[str, object]) -> tuple[dict[str, Stream], dict[str, CustomAggregate]]:
    """Separate streams from aggregates; function names ignore case."""
    streams: dict[str, Stream] = {}
    own: dict[str, CustomAggregate] = {}
    for name, argument in given.items():
        match name, argument:
            case str(), Stream():
                streams[name] = argument
            case str(), CustomAggregate():
                own[_free(name, own)] = argument
            case _:
                raise ExpressionTypeError(
                    f"{name!r} is a {type(argument).__name__}; SQL reads streams: pk.from_arrow(...), pk.scan(...), "
                    "pk.table(...), and aggregates: pk.aggregate(...), each by its name"
                )
    return streams, own


def _free(name: str, own: Mapping[str, CustomAggregate]) -> str:
    lower = name.lower()
    if lower in _TAKEN or lower in own:
        whose = "two aggregates are" if lower in own else "a function of SQL is"
        raise SqlError(f"{whose} called {lower!r}; pass yours by another name")
    return lower


def sql(
    text: str,
    streams: Mapping[str, Stream | CustomAggregate] | None = None,
    /,
    **named: Stream | CustomAggregate,
) -> Stream:
    """Write a query in streaming SQL over streams passed by name, or in a mapping of names to streams.

    A window stands in brackets after its stream, as in SABER and CQL. The result is a query like any other:
    `collect`, `run`, `open`, `to_spark`, `explain`.

    >>> import pyarrow as pa, penstock as pk
    >>> table = pa.table({"t": [1, 2, 12], "category": ["a", "b", "a"], "cpu": [3, 4, 5]})
    >>> query = pk.sql(
    ...     "select timestamp, category, sum(cpu) as total from TaskEvents [range 10 slide 10] group by category",
    ...     TaskEvents=pk.from_arrow(table, time="t"),
    ... )
    >>> sorted(query.collect().to_pylist(), key=str)
    [{'timestamp': 10, 'category': 'a', 'total': 3}, {'timestamp': 10, 'category': 'b', 'total': 4}, {'timestamp': 20, 'category': 'a', 'total': 5}]

    Aggregates defined with `pk.aggregate` are also passed by name:

    >>> peak = pk.aggregate(init=0, add=lambda s, x: pk.greatest(s, x * x), result=lambda s: s)
    >>> pk.sql("select peak(cpu) as most from e [range 20]", e=pk.from_arrow(table, time="t"), peak=peak).collect()["most"][0]
    <pyarrow.Int64Scalar: 25>
    """
    if not isinstance(streams, Mapping | None):
        raise ExpressionTypeError(
            f"sql takes streams by name, pk.sql(text, events=stream), or a mapping of them, not a {type(streams).__name__}"
        )
    try:
        given, own = parted({**(streams or {}), **named})
        reading = read(text, own)
        environment = Environment(reading, _named(given), {}, set(), _query)
        relation = _query(reading.tree, environment, "")
    except RecursionError:
        raise SqlError("the query is nested too deeply; name its parts in a WITH clause") from None
    _refuse_unused(reading, environment.used)
    if relation.is_table:
        raise SqlError("a query reads a stream; tables have no time, and are there to be joined with one")
    return SqlQuery(relation)


def _named(streams: Mapping[str, Stream]) -> dict[str, Stream]:
    """Name unnamed streams by their argument names."""
    once = [id(stream) for stream in streams.values()]
    return {
        name: _called(name, stream) if once.count(id(stream)) == 1 else stream
        for name, stream in streams.items()
    }


def _called(name: str, stream: Stream) -> Stream:
    plan = stream.raw_plan
    if not isinstance(plan, Source | Table) or not isinstance(plan.name, Unnamed):
        return stream
    data = list(stream.raw_data.values())  # at most one: the plan is a single source
    return Stream(replace(plan, name=name), {name: data[0]} if data else {})


def _refuse_unused(reading: ParsedQuery, used: set[int]) -> None:
    for start, clause in reading.clauses.items():
        if start not in used:
            raise reading.text.error_at("a window stands behind a stream, in FROM", clause.start, clause.end)


def _query(node: exp.Expression, environment: Environment, source: str) -> Relation:
    """Translate a query: SELECT or UNION ALL, with its WITH relations."""
    text = environment.text
    environment = _with(node, environment)
    match node:
        case exp.Subquery():
            return _query(node.this, environment, source)
        case exp.Select():
            return select(node, environment, source)
        case exp.Union() if node.args.get("distinct") is False:
            return _united(node, environment, source)
        case exp.Union():
            raise text.error(
                "UNION would compare all rows ever; write UNION ALL, or SELECT DISTINCT in a window", node
            )
        case _:
            raise text.error("a query is a SELECT, or several with UNION ALL", node)


def _with(node: exp.Expression, environment: Environment) -> Environment:
    clause = node.args.get("with_")
    if clause is None:
        return environment
    for expression in clause.expressions:
        alias = expression.args["alias"]
        name = str(alias.this.this)
        environment = environment.with_relation(name, _query(expression.this, environment, name))
    return environment


# --- UNION ALL ----------------------------------------------------------------------------------------


def _united(node: exp.Union, environment: Environment, source: str) -> Relation:
    """Combine the rows of two queries, column by column."""
    text = environment.text
    first, second = (_query(side, environment, source) for side in (node.this, node.expression))
    if len(first.columns) != len(second.columns):
        raise text.error(
            f"UNION ALL takes as many columns on both sides, not {len(first.columns)} and {len(second.columns)}",
            node,
        )
    if first.carries != second.carries or first.window != second.window:
        raise text.error("both sides of UNION ALL need the same window", node)
    pairs = list(zip(first.columns, second.columns, strict=True))
    with text.at(node):
        types = [_common(one, first, other, second) for one, other in pairs]
        stream = _aligned(first, types).union(_aligned(second, types))
    time = _time_name(first)
    times = [one.column == first.time.column and other.column == second.time.column for one, other in pairs]
    columns = tuple(
        Visible(source, one.name, time if is_time else f"column {place}")
        for place, ((one, _), is_time) in enumerate(zip(pairs, times, strict=True))
    )
    return Relation(stream, columns, ((source, time),), first.window)


def _common(one: Visible, first: Relation, other: Visible, second: Relation) -> object:
    above, below = first.schema.field(one.column).type, second.schema.field(other.column).type
    found = type_of_both(above, below)
    if found is None:
        raise SchemaMismatchError(
            f"UNION ALL puts {one.name!r} of type {above} and {other.name!r} of type {below} into one column; cast one"
        )
    return found


def _time_name(relation: Relation) -> str:
    return relation.time.column if relation.time.column in WINDOW_BOUNDS else "time'"


def _aligned(relation: Relation, types: Sequence[object]) -> Stream:
    """Rename columns by position, so that both sides agree."""
    hidden = [Field(name, Column(name)) for name in WINDOW_BOUNDS if relation.carries]
    time = _time_name(relation)
    if time not in [field.name for field in hidden]:
        hidden.append(Field(time, Column(relation.time.column)))
    stream = relation.stream
    made = [
        (f"column {place}", col(own.column), dtype)
        for place, (own, dtype) in enumerate(zip(relation.columns, types, strict=True))
    ]
    stream = stream.with_columns(*(_cast(expr, dtype, relation).alias(name) for name, expr, dtype in made))
    fields = (*hidden, *(Field(name, Column(name)) for name, _, _ in made))
    return stream.derived(Project(stream.raw_plan, fields, time))


def _cast(expr: Expr, dtype: object, relation: Relation) -> Expr:
    return expr if relation.schema.field(expr.name or "").type == dtype else expr.cast(dtype)
