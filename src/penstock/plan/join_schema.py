"""The schema and the time of a join's result, and the columns that a predicate over pairs may reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.expr.typing import type_of
from penstock.plan.nodes import AsofJoin, Join, RollingJoin
from penstock.plan.rolling import split_aggregates
from penstock.types.pairing import JOIN_TIME, LEFT_ROW_KINDS, InWindow, Lookup, left_column, right_column
from penstock.types.time import Time
from penstock.types.windows import WINDOW_BOUNDS


@dataclass(frozen=True, slots=True)
class Side:
    """One input of a join: its schema and its time."""

    schema: pa.Schema
    time: Time


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the result, and its name in the pair of rows."""

    name: str
    of_pair: str
    type: pa.DataType


def pair_schema(left: Side, right: Side) -> pa.Schema:
    """List the columns of a pair of rows: left.x, then right.y."""
    return pa.schema(
        [
            *(pa.field(left_column(column.name), column.type) for column in left.schema),
            *(pa.field(right_column(column.name), column.type) for column in right.schema),
        ]
    )


def join_schema(plan: Join | AsofJoin | RollingJoin, left: Side, right: Side) -> pa.Schema:
    """Return the schema of a join's result."""
    if isinstance(plan, RollingJoin):
        # Aggregates are typed over right columns, the expressions around them over left columns.
        added = [
            pa.field(column.name, rolling_type(plan, column.name, left, right)) for column in plan.fields
        ]
        return pa.schema([*left.schema, *added])
    return pa.schema([pa.field(column.name, column.type) for column in join_columns(plan, left, right)])


def rolling_type(plan: RollingJoin, name: str, left: Side, right: Side) -> pa.DataType:
    """Return the type of a field of a rolling join."""
    expr = next(field.expr for field in plan.fields if field.name == name)
    outer, aggregates = split_aggregates(expr)
    return type_of(outer, left.schema, [type_of(aggregate, right.schema) for aggregate in aggregates])


def join_columns(plan: Join | AsofJoin, left: Side, right: Side) -> list[Column]:
    """List the columns of a result: window bounds, keys, other left columns, right columns, and the later time."""
    whole = [Column(field.name, left_column(field.name), field.type) for field in left.schema]
    if isinstance(plan, AsofJoin):
        return [*whole, *_right_columns(plan, whole, right)]
    if plan.how in LEFT_ROW_KINDS:
        return whole
    own = [Column(name, name, left.time.type) for name in _added(plan)]
    bounds, last = [each for each in own if each.name != JOIN_TIME], own[-1:] if own else []
    keys = [name for name, _ in plan.on]
    taken = {*keys, *(each.name for each in own)}
    first = [each for name in keys for each in whole if each.name == name]
    others = [each for each in whole if each.name not in taken]
    before = [*bounds, *first, *others]
    return [*before, *_right_columns(plan, [*before, *last], right), *last]


def _added(plan: Join) -> tuple[str, ...]:
    """Return the columns that a join adds; they replace those of an earlier join on the left."""
    match plan.pairing:
        case InWindow():
            return (*WINDOW_BOUNDS, JOIN_TIME)
        case Lookup():
            return ()
        case _:
            return (JOIN_TIME,)


def _right_columns(plan: Join | AsofJoin, before: Sequence[Column], right: Side) -> list[Column]:
    """Name the right columns, appending the suffix until the name is unique."""
    keys = {name for _, name in plan.on}
    taken = {each.name for each in before}
    found: list[Column] = []
    for field in right.schema:
        if field.name not in keys:
            name = field.name
            while name in taken:
                name += plan.suffix
            taken.add(name)
            found.append(Column(name, right_column(field.name), field.type))
    return found


def join_time(plan: Join | AsofJoin | RollingJoin, left: Side, right: Side) -> Time:
    """Return the time of a join's result."""
    if not isinstance(plan, Join) or plan.how in LEFT_ROW_KINDS:
        return left.time.stored
    if isinstance(plan.pairing, Lookup):
        return left.time.stored if plan.pairing.table else _right_time(plan, left, right)
    return Time(JOIN_TIME, left.time.type, left.time.unit)


def _right_time(plan: Join, left: Side, right: Side) -> Time:
    """Return the right side's time under its column name in the result."""
    keys = {own: other for other, own in plan.on}
    wanted = (
        left_column(keys[right.time.column]) if right.time.column in keys else right_column(right.time.column)
    )
    name = next(each.name for each in join_columns(plan, left, right) if each.of_pair == wanted)
    return replace(right.time.stored, column=name)
