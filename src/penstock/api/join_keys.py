"""Keys and times of a join's inputs: one unit of time, and window bounds that match anyway."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from penstock.api.bind import flat
from penstock.api.expr import Expr
from penstock.api.row_verbs import dropped
from penstock.errors import SchemaMismatchError, WindowError
from penstock.expr import nodes as ex
from penstock.expr.nodes import Column
from penstock.plan.nodes import Aggregate, Apply, Attach, Distinct, Filter, Join, Plan, Project, Source, TopK
from penstock.plan.schema import join_columns, schema_of, side_of, time_of
from penstock.types.choices import one_of
from penstock.types.time import NANOSECONDS, Time
from penstock.types.windows import (
    LEFT_ROW_KINDS,
    WINDOW_BOUNDS,
    CarriedWindow,
    TimeWindow,
    Window,
    right_column,
)

# --- Convert the time columns of a join's inputs to one unit: the finer one.


def on_one_clock(first: Plan, second: Plan) -> tuple[Plan, Plan]:
    """Convert both sides to the finer time unit, by reading a source's time column in the finer type.

    A plan that already uses times in its own unit, in windows for example, is not converted but rejected.
    """
    for which, plan in (("left", first), ("right", second)):
        if time_of(plan).column not in schema_of(plan).names:
            raise WindowError(f"the {which} rows of a join have no time any more; keep their time column")
    one, other = time_of(first), time_of(second)
    if _alike(one, other):
        return first, second
    finer = min(one, other, key=_length)
    both = [_read_as(node, finer.type) for node in (first, second)]
    if both[0] is None or both[1] is None or not _alike(time_of(both[0]), time_of(both[1])):
        raise SchemaMismatchError(
            f"the time columns {one.column!r} ({one.type}) and {other.column!r} ({other.type}) of a join count "
            "differently; cast one of them in its table, or where its stream is declared"
        )
    return both[0], both[1]


def _alike(one: Time, other: Time) -> bool:
    return (one.type, one.unit) == (other.type, other.unit)


def _length(time: Time) -> int:
    return NANOSECONDS.get(time.unit or "", 0)


def _read_as(plan: Plan, dtype: pa.DataType) -> Plan | None:
    """Read a plan's times in a finer type of the same zone; None if an operator of the plan uses them."""
    time = time_of(plan)
    if time.type == dtype:
        return plan
    match plan:
        case Source() if not time.implied and _is_finer(dtype, time.type):
            return _finer(plan, dtype)
        case Filter(input=below, predicate=predicate) if not _reads(predicate, time.column):
            inner = _read_as(below, dtype)
            return inner and replace(plan, input=inner)
        case Project(input=below, fields=fields) if _passes(fields, time_of(below).column, time.column):
            inner = _read_as(below, dtype)
            return inner and replace(plan, input=inner)
        case _:
            return None


def _is_finer(dtype: pa.DataType, other: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(dtype) and pa.types.is_timestamp(other) and dtype.tz == other.tz)


def _finer(source: Source, dtype: pa.DataType) -> Source:
    time, place = source.time, source.schema.get_field_index(source.time.column)
    assert time.unit is not None
    return replace(
        source,
        schema=source.schema.set(place, pa.field(time.column, dtype)),
        time=replace(time, type=dtype, unit=dtype.unit),
        lateness=source.lateness * (NANOSECONDS[time.unit] // NANOSECONDS[dtype.unit]),
    )


def _reads(expr: ex.Expr, name: str) -> bool:
    return ex.Column(name) in ex.walk(expr)


def _passes(fields: tuple[ex.Field, ...], before: str, after: str) -> bool:
    """Return whether a projection passes the time column unchanged and computes nothing from it."""
    return all(
        field.expr == ex.Column(before) if field.name == after else not _reads(field.expr, before)
        for field in fields
    )


# --- Window bounds among join or group keys of windowed results; these match and group by window anyway.


def without_bounds(
    first: Plan, second: Plan, left_on: object, right_on: object
) -> tuple[tuple[object, object], list[str]]:
    """Separate the window bounds from the other keys; reject bounds that do not identify equal windows."""
    pairs = [keys_of(left_on), keys_of(right_on)]
    if len(pairs[0]) != len(pairs[1]):
        return (left_on, right_on), []
    names = [(_name(one), _name(other)) for one, other in zip(*pairs, strict=True)]
    bounds = [str(one) for one, other in names if one == other and one in WINDOW_BOUNDS]
    if not bounds:
        return (left_on, right_on), []
    if len(set(bounds)) == 1 and not _of_one_size(first, second):
        raise WindowError(
            f"on= names {bounds[0]!r} alone, but results meet in equal windows; name window_start and window_end, "
            "or give window= to put them into windows anew"
        )
    kept = [place for place, (one, other) in enumerate(names) if one != other or one not in WINDOW_BOUNDS]
    return ([pairs[0][place] for place in kept], [pairs[1][place] for place in kept]), bounds


def without_copies(plan: Plan, bounds: Sequence[str]) -> Plan:
    """Drop the right side's window bounds that were named as keys: a result has each key once."""
    if not isinstance(plan, Join) or plan.how in LEFT_ROW_KINDS:
        return plan
    copies = {right_column(name) for name in bounds}
    columns = join_columns(plan, side_of(plan.left), side_of(plan.right))
    return dropped(plan, [column.name for column in columns if column.of_pair in copies])


def other_keys(by: object) -> list[object]:
    """Return the keys without window bounds."""
    return [key for key in keys_of(by) if not one_of(_name(key), WINDOW_BOUNDS)]


def keys_of(given: object) -> list[object]:
    """Return keys as a list."""
    return [] if given is None else list(flat([given]))


def _name(given: object) -> object:
    """Return the name of a key that is a plain column."""
    if not isinstance(given, Expr):
        return given
    return given.node.name if isinstance(given.node, Column) and given.name == given.node.name else None


def _of_one_size(first: Plan, second: Plan) -> bool:
    """Return whether windows that end at the same time also begin at the same time."""
    one, other = _carried(first), _carried(second)
    return isinstance(one, TimeWindow) and isinstance(other, TimeWindow) and one.size == other.size


def _carried(plan: Plan) -> Window | None:
    """Return the window whose bounds rows carry, if it can be determined."""
    match plan:
        case Aggregate(window=CarriedWindow(), input=below) | Attach(window=CarriedWindow(), input=below):
            return _carried(below)
        case Aggregate(window=window) | Attach(window=window) | Apply(window=window):
            return window
        case Filter(input=below) | Project(input=below) | Distinct(input=below) | TopK(input=below):
            return _carried(below)
        case _:
            return None
