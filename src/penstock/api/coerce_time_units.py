"""Convert the time columns of a join's inputs to one unit: the finer one."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from penstock.errors import SchemaMismatchError, WindowError
from penstock.expr import nodes as ex
from penstock.plan.nodes import Filter, Plan, Project, Source
from penstock.plan.schema import schema_of, time_of
from penstock.types.time import NANOSECONDS, Time


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
