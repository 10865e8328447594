"""The verbs on rows, as functions from plan to plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

import pyarrow as pa

from penstock.analysis.predicates import both
from penstock.api.bind import flat, predicate, refuse_twice, row_fields
from penstock.api.expr import Expr
from penstock.api.literals import shown
from penstock.api.names import free_name
from penstock.errors import ExpressionTypeError, SchemaMismatchError, UnsupportedError, WindowError
from penstock.expr.nodes import Column, Field
from penstock.expr.typing import column_type
from penstock.plan.nodes import Distinct, Filter, Plan, Project, TopK, Union
from penstock.plan.schema import carries_window, schema_of, sequences_of, time_of
from penstock.types.arrow import kind_of
from penstock.types.choices import one_of
from penstock.types.duration import Duration, is_whole, to_ticks
from penstock.types.time import Time
from penstock.types.windows import WINDOW_END, WINDOW_START


def filtered(plan: Plan, predicates: Sequence[object], values: Mapping[str, object]) -> Plan:
    """Keep the rows for which every predicate is true and columns equal the given values."""
    schema, time = schema_of(plan), time_of(plan)
    given = [*flat(predicates), *(Expr(Column(name)) == value for name, value in values.items())]
    checked = [predicate(argument, schema, time, "filter") for argument in given]
    if not checked:
        return plan
    return Filter(plan, reduce(both, checked))


def selected(plan: Plan, exprs: Sequence[object], named: Mapping[str, object]) -> Plan:
    """Select columns. The time column, or the window, is kept unless it is dropped explicitly."""
    schema = schema_of(plan)
    fields = row_fields(exprs, named, schema, time_of(plan), "select")
    chosen = {field.expr for field in fields}
    kept = [Field(name, Column(name)) for name in _time_columns(plan) if Column(name) not in chosen]
    refuse_twice([field.name for field in (*kept, *fields)], "select (which keeps the time column)")
    return projected(plan, (*kept, *fields))


def _time_columns(plan: Plan) -> list[str]:
    window = [WINDOW_START, WINDOW_END] if carries_window(plan) else []
    names = dict.fromkeys([*window, time_of(plan).column])
    return [name for name in schema_of(plan).names if name in names]


def extended(plan: Plan, exprs: Sequence[object], named: Mapping[str, object]) -> Plan:
    """Add columns, or replace those of the same name in their place."""
    schema, time = schema_of(plan), time_of(plan)
    fields = {field.name: field for field in row_fields(exprs, named, schema, time, "with_columns")}
    if (
        time.column in fields
        and time.column in schema.names
        and fields[time.column].expr != Column(time.column)
    ):
        raise UnsupportedError(
            f"the time column {time.column!r} cannot be changed; add a column under another name"
        )
    old = [fields.pop(name, Field(name, Column(name))) for name in schema.names]
    return projected(plan, (*old, *fields.values()))


def column_name(given: object, what: str) -> str:
    """Return the name of a column given as text or as pk.col."""
    name = given.node.name if isinstance(given, Expr) and isinstance(given.node, Column) else given
    if not isinstance(name, str):
        raise ExpressionTypeError(f"{what} takes names of columns, such as 'k', not {shown(given)}")
    return name


def dropped(plan: Plan, names: Sequence[str]) -> Plan:
    """Drop columns."""
    schema = schema_of(plan)
    for name in names:
        column_type(name, schema)
    kept = tuple(Field(name, Column(name)) for name in schema.names if name not in names)
    if not kept:
        raise SchemaMismatchError("drop would leave no column at all; keep one of them")
    return projected(plan, kept)


def renamed(plan: Plan, names: Mapping[str, str]) -> Plan:
    """Rename columns."""
    schema = schema_of(plan)
    if not isinstance(names, Mapping) or not all(isinstance(new, str) for new in names.values()):
        raise ExpressionTypeError("rename takes a mapping from the old name to the new, both strings")
    for name in names:
        column_type(name, schema)
    fields = tuple(Field(names.get(name, name), Column(name)) for name in schema.names)
    refuse_twice([field.name for field in fields], "rename")
    return projected(plan, fields)


def projected(plan: Plan, fields: tuple[Field, ...]) -> Plan:
    """Build a projection that tracks its time column."""
    column = Column(time_of(plan).column)
    carriers = [
        field.name for field in fields if field.expr == column and column.name in schema_of(plan).names
    ]
    if carriers:
        return Project(plan, fields, column.name if column.name in carriers else carriers[0])
    # The time was dropped: no later column of this name may be used as the time.
    return Project(plan, fields, free_name(column.name, [field.name for field in fields]))


def united(plans: Sequence[Plan]) -> Plan:
    """Combine the rows of several plans."""
    first, *others = plans
    for other in others:
        here, there = schema_of(first), schema_of(other)
        _require_same_columns(here, there)
        # Check times before other types: a time column cannot be cast in a query, only in its source.
        _require_one_time(time_of(first), time_of(other))
        _require_same_types(here, there)
    _require_one_sequence(plans)
    return Union(tuple(plans)) if others else first


def _require_one_time(first: Time, other: Time) -> None:
    if (first.column, first.shift) != (other.column, other.shift):
        raise SchemaMismatchError(
            f"union needs one time column, but these have {first.column!r} and {other.column!r}; rename one of them"
        )
    if first.unit != other.unit:
        raise SchemaMismatchError(
            f"union needs one unit of time, but {first.column!r} counts in {first.unit} and in {other.unit}; "
            "cast one in its table, or where its stream is declared"
        )


def _require_one_sequence(plans: Sequence[Plan]) -> None:
    """Reject sequences that cannot be ordered together: numbers and strings."""
    types = sorted({str(dtype) for plan in plans for dtype in sequences_of(plan)})
    if len(types) > 1:
        raise SchemaMismatchError(
            f"union needs sequences of one type on all sides, but they are {' and '.join(types)}; "
            "cast one before it becomes sequence="
        )


def _require_same_columns(first: pa.Schema, other: pa.Schema) -> None:
    for name in [*first.names, *other.names]:
        if name not in first.names or name not in other.names:
            raise SchemaMismatchError(
                f"union needs the same columns on all sides, but {name!r} is missing from one; "
                "add it there with with_columns, or drop it here"
            )


def _require_same_types(first: pa.Schema, other: pa.Schema) -> None:
    for name in first.names:
        here, there = (schema.field(name).type for schema in (first, other))
        if here != there:
            raise SchemaMismatchError(
                f"union needs the same types on all sides, but {name!r} is {here} and {there}; cast one"
            )


def distinct(plan: Plan, subset: Sequence[str], keep: str, within: Duration | None = None) -> Plan:
    """Keep one row for each value of the subset; of all columns if it is empty."""
    schema = schema_of(plan)
    if time_of(plan).column not in schema.names:
        raise WindowError(
            "distinct keeps the first row, or the last, in time, but these rows have no time any more; "
            "keep the time column, and drop it behind distinct"
        )
    ticks = None if within is None else to_ticks(within, time_of(plan), "within=")
    if ticks is not None and ticks <= 0:
        raise WindowError(f"within= is {within!r}; it must be longer than zero")
    for name in subset or schema.names:
        _require_alike_or_not(name, column_type(name, schema))
    if not one_of(keep, ("first", "last")):
        raise ExpressionTypeError(f"keep is {shown(keep)}; it is 'first' or 'last'")
    return Distinct(plan, tuple(dict.fromkeys(subset or schema.names)), keep, ticks)


def _require_alike_or_not(name: str, dtype: pa.DataType) -> None:
    """Reject types that kernels cannot compare for equality."""
    if kind_of(dtype) in ("other", "null") and not pa.types.is_time(dtype):
        raise ExpressionTypeError(
            f"distinct cannot compare values of the column {name!r} apart, which are {dtype}; "
            "give it a subset of other columns, as in distinct(['a', 'b'])"
        )


def top(plan: Plan, k: int, by: object, ties: str) -> Plan:
    """Keep the k largest rows of each window."""
    if not carries_window(plan):
        raise WindowError(
            "top_k works within windows, and these rows carry none; aggregate with .window(...) first"
        )
    if not is_whole(k):
        raise WindowError(f"k is {k!r}; top_k keeps a whole number of rows")
    if k < 1:
        raise WindowError(f"k is {k!r}; top_k keeps at least one row")
    if not one_of(ties, ("first", "all")):
        raise ExpressionTypeError(f"ties is {shown(ties)}; it is 'first' or 'all'")
    if isinstance(by, Expr) and not isinstance(by.node, Column):
        return _top_by(plan, int(k), by, ties)
    name = column_name(by, "top_k")
    dtype = column_type(name, schema_of(plan))
    if kind_of(dtype) in ("other", "null"):
        raise ExpressionTypeError(
            f"top_k cannot order by the column {name!r} of type {dtype}; order by a number, a time or a string"
        )
    return TopK(plan, int(k), name, ties)


def head_rows(n: object) -> int:
    """Check the number of rows to show."""
    if not is_whole(n) or not 0 <= int(n) < 1 << 63:
        raise ExpressionTypeError(f"head takes a number of rows, 0 or more, not {n!r:.40}")
    return int(n)


def _top_by(plan: Plan, k: int, by: Expr, ties: str) -> Plan:
    """Order by an expression, through a temporary column."""
    passing = free_name("by", schema_of(plan).names)
    return dropped(top(extended(plan, [], {passing: by}), k, passing, ties), [passing])
