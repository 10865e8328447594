"""Build the Penstock query that a description describes, through the public API alone."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa

import penstock as pk
from tests.oracle import describe as d
from tests.oracle.strategies import Dataset

EPOCH = datetime.datetime(1970, 1, 1)
MICROSECONDS = {"s": 10**6, "ms": 10**3, "us": 1}
PARTS = frozenset({"year", "month", "day", "hour", "minute", "second", "weekday"})


def build(query: d.Query, datasets: tuple[Dataset, ...], bound: bool = True, lateness: int = 0) -> Any:
    """Build the query over the datasets' tables, or over declared streams of their names."""
    made: dict[str, Any] = {dataset.name: _source(dataset, bound, lateness) for dataset in datasets}
    return build_over(query, made)


def _source(data: Dataset, bound: bool, lateness: int) -> Any:
    if bound:
        return pk.from_arrow(data.table, time="t", name=data.name, unit=data.time.unit)
    late = data.time.duration(lateness)
    return pk.stream(data.name, data.table.schema, time="t", unit=data.time.unit, lateness=late)


def build_over(query: d.Query, made: dict[str, Any]) -> Any:
    """Build the query over streams that exist already."""
    match query:
        case d.Source(name=name):
            return made[name]
        case d.Union(left=left, right=right):
            return build_over(left, made).union(build_over(right, made))
        case _:
            return _step(query, build_over(query.input, made))


def _step(query: d.Query, source: Any) -> Any:
    match query:
        case d.Filter(predicate=predicate):
            return source.filter(expression(predicate))
        case d.Select(fields=fields):
            return source.select(**_named(fields))
        case d.With(fields=fields):
            return source.with_columns(**_named(fields))
        case d.Distinct(subset=subset):
            return source.distinct(None if subset is None else list(subset))
        case d.Window(by=by, fields=fields):
            return source.window(_frame(query), by=list(by)).agg(**_named(fields))
        case d.Attach(by=by, fields=fields):
            return source.window(_frame(query), by=list(by)).with_columns(**_named(fields))
        case d.Regroup(by=by, fields=fields):
            return source.window(by=list(by)).agg(**_named(fields))
        case d.Beside(by=by, fields=fields):
            return source.window(by=list(by)).with_columns(**_named(fields))
        case d.Top(k=k, by=by):
            return source.top_k(k, by=by, ties="all")
        case _:
            raise AssertionError(query)


def _named(fields: d.Fields) -> dict[str, Any]:
    return {name: expression(node) for name, node in fields}


def _frame(query: d.Window | d.Attach) -> Any:
    time = d.source_of(query).time
    offset = time.duration(query.offset) if query.offset else None
    if query.size == query.every:
        return pk.tumbling(time.duration(query.size), offset=offset)
    return pk.sliding(time.duration(query.size), time.duration(query.every), offset=offset)


def value_of(lit: d.Lit) -> Any:
    """Spell a literal as a user would."""
    if lit.value is None or not pa.types.is_temporal(lit.type):
        return lit.value
    ticks = int(lit.value)
    if pa.types.is_date(lit.type):
        return EPOCH.date() + datetime.timedelta(days=ticks)
    unit = lit.type.unit
    exact = ticks // 1000 if unit == "ns" else ticks * MICROSECONDS[unit]
    if pa.types.is_duration(lit.type):
        return datetime.timedelta(microseconds=exact)
    moment = EPOCH + datetime.timedelta(microseconds=exact)
    return moment if lit.type.tz is None else moment.replace(tzinfo=datetime.UTC)


def expression(node: d.Node) -> Any:
    match node:
        case d.Col(name=name):
            return pk.col(name)
        case d.Lit():
            return pk.lit(value_of(node))
        case d.Cast(arg=arg, type=dtype):
            return expression(arg).cast(str(dtype))
        case d.When(condition=condition, then=then, otherwise=otherwise):
            return pk.when(expression(condition)).then(expression(then)).otherwise(expression(otherwise))
        case d.IsIn(arg=arg, values=values):
            return expression(arg).is_in([value_of(value) for value in values])
        case d.Agg():
            return _aggregate(node)
        case d.Op():
            return operation(node, [expression(arg) for arg in node.args])


def _aggregate(agg: d.Agg) -> Any:
    options = {} if agg.where is None else {"where": expression(agg.where)}
    function = getattr(pk, agg.function)
    return function(**options) if agg.arg is None else function(expression(agg.arg), **options)


def operation(op: d.Op, args: list[Any]) -> Any:
    a, b = args[0], args[1] if len(args) > 1 else None
    match op.name:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case "/":
            return a / b
        case "//":
            return a // b
        case "%":
            return a % b
        case "**":
            return a**b
        case "and":
            return a & b
        case "or":
            return a | b
        case "not":
            return ~a
        case "neg":
            return -a
        case "least" | "greatest":
            return getattr(pk, op.name)(*args)
        case "truncate":
            return a.dt.truncate("".join(map(str, op.option[:2])))  # type: ignore[index]  # (every, unit, zone)
        case name if name in PARTS:
            return getattr(a.dt, name)()
        case name:
            return _compared(name, args) if name in _COMPARE else getattr(a, name)(*args[1:])


_COMPARE = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def _compared(name: str, args: list[Any]) -> Any:
    return _COMPARE[name](args[0], args[1])
