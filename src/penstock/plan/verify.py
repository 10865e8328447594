"""Check that a plan obeys the grammar. Users get clearer errors earlier, in the API."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from penstock.errors import UnsupportedError, VerificationError
from penstock.expr.nodes import Aggregate as AggregateExpr
from penstock.expr.nodes import Column, Expr, Field, fold, has_aggregate
from penstock.expr.typing import place_of, type_of
from penstock.ir.signals.verify import verify as verify_signals
from penstock.plan.nodes import (
    Aggregate,
    Apply,
    AsofJoin,
    Attach,
    Distinct,
    Filter,
    Intervals,
    Join,
    Lookback,
    Plan,
    Project,
    RollingJoin,
    Source,
    Table,
    TopK,
    Union,
    fact,
    inputs,
    ordered,
)
from penstock.plan.schema import (
    carries_window,
    pair_schema,
    schema_of,
    side_of,
    sources_of,
    tables_of,
    time_of,
)
from penstock.types.arrow import kind_of
from penstock.types.windows import (
    DIRECTIONS,
    JOIN_KINDS,
    WINDOW_END,
    WINDOW_START,
    CarriedWindow,
    Count,
    InWindow,
    Lookup,
    TimeWindow,
    Window,
)

MOST_COPIES = 1 << 32


def verify(plan: Plan) -> Plan:
    """Return the plan if it is well formed, else raise an error."""
    for node in ordered(plan):
        _node(node)
        columns = schema_of(node).names
        _require(len(columns) == len(set(columns)), f"{type(node).__name__} gives a column twice")
    if fact(plan, "copies", _copies) > MOST_COPIES:
        raise UnsupportedError(
            f"the query is too large: its unions repeat a row more than {MOST_COPIES:,} times"
        )
    names = [source.name for source in sources_of(plan)]
    names += [table.name for table in tables_of(plan)]
    _require(len(names) == len(set(names)), "two streams have one name")
    return plan


def _copies(plan: Plan) -> int:
    """Count the paths on which a row of a source reaches a node."""
    several = [input_.facts["copies"] for input_ in inputs(plan)]
    return sum(several) if isinstance(plan, Union) else max(several, default=1)


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise VerificationError(f"the logical plan is not well formed: {what}; this is a bug in Penstock")


def _node(plan: Plan) -> None:
    match plan:
        case Source():
            _source(plan)
        case Filter(input=inner, predicate=predicate):
            _require(not has_aggregate(predicate), "a filter holds an aggregate")
            _require(kind_of(type_of(predicate, schema_of(inner))) == "bool", "a filter is not boolean")
        case Project(fields=fields):
            _require(
                not any(has_aggregate(field.expr) for field in fields), "a projection holds an aggregate"
            )
        case Union(inputs=several):
            _union(
                [schema_of(reduction) for reduction in several],
                [time_of(reduction).type for reduction in several],
            )
        case Distinct(input=inner, subset=subset):
            _known(subset, schema_of(inner))
        case Aggregate() | Attach():
            _windowed(plan)
        case Apply(input=inner, by=by):
            _known(by, schema_of(inner))
            _window(plan.window, inner)
        case Lookback(input=inner, spans=spans, by=by, fields=fields):
            _known([*by, time_of(inner).column], schema_of(inner))
            _require(len(spans) == len(fields) > 0, "a look-back needs fields for each span")
        case Intervals(inputs=several, program=program):
            verify_signals(program, [(schema_of(reduction), time_of(reduction)) for reduction in several])
        case Table():
            pass
        case Join() | AsofJoin() | RollingJoin():
            _join(plan)
        case TopK(input=inner, k=k, by=by):
            _require(k > 0 and carries_window(inner), "top needs k > 0 and windows")
            _known([by], schema_of(inner))


def _source(source: Source) -> None:
    stored = source.time.column in source.schema.names
    _require(stored != source.time.implied, "a time column must be stored or implied")
    _require(source.lateness >= 0, "lateness is negative")
    _known([source.sequence] if source.sequence else [], source.schema)


def _union(schemas: list[pa.Schema], times: list[pa.DataType]) -> None:
    columns = [{field.name: field.type for field in schema} for schema in schemas]
    _require(all(column == columns[0] for column in columns), "the inputs of a union differ in their columns")
    _require(all(time == times[0] for time in times), "the inputs of a union differ in their time")


def _join(plan: Join | AsofJoin | RollingJoin) -> None:
    left, right = side_of(plan.left), side_of(plan.right)
    for one, other in plan.on:
        _known([one], left.schema)
        _known([other], right.schema)
        same = left.schema.field(one).type == right.schema.field(other).type
        _require(same, "the keys of a join differ in their types")
    lookup = isinstance(plan, Join) and isinstance(plan.pairing, Lookup)
    _require(lookup or left.time.type == right.time.type, "the inputs of a join differ in their time")
    match plan:
        case Join(pairing=pairing, how=how, where=where):
            _require(how in JOIN_KINDS, f"a join is {how}")
            if isinstance(pairing, InWindow):
                _window(pairing.left, plan.left)
                _window(pairing.right, plan.right)
            if where is not None:
                kind = kind_of(type_of(where, pair_schema(left, right)))
                _require(
                    kind == "bool" and not has_aggregate(where), "the condition of a join is not boolean"
                )
        case AsofJoin(direction=direction):
            _require(direction in DIRECTIONS, f"an as-of join looks {direction}")
        case RollingJoin(within=within, fields=fields):
            _require(
                within.lo <= within.hi and bool(fields), "a rolling join covers no time, or gives nothing"
            )


def _known(names: Iterable[str], schema: pa.Schema) -> None:
    for name in names:
        _require(place_of(name, schema) is not None, "a column is used that the input does not have")


def _windowed(plan: Aggregate | Attach) -> None:
    before = schema_of(plan.input)
    _known(plan.by, before)
    _window(plan.window, plan.input)
    if isinstance(plan, Aggregate):
        _fields_of_groups(plan.fields, {*plan.by, WINDOW_START, WINDOW_END})


def _window(window: Window, over: Plan) -> None:
    if isinstance(window, CarriedWindow):
        _require(carries_window(over), "there is no window to carry")
        return
    if isinstance(window, TimeWindow | Count):
        _require(window.size > 0 and window.every > 0, "a window has no length or no step")
    _require(time_of(over).column in schema_of(over).names, "the time column is gone")


def _fields_of_groups(fields: tuple[Field, ...], groups: set[str]) -> None:
    for field in fields:
        _require(outer_columns(field.expr) <= groups, "a field reads a column that varies inside a window")


def outer_columns(expr: Expr) -> frozenset[str]:
    """Return the columns read outside of any aggregate."""
    return fold(expr, _outer_columns)


def _outer_columns(expr: Expr, below: tuple[frozenset[str], ...]) -> frozenset[str]:
    match expr:
        case AggregateExpr():
            return frozenset()
        case Column(name=name):
            return frozenset({name})
        case _:
            return frozenset().union(*below)
