"""Printing a logical plan as a tree, the result at the top."""

from __future__ import annotations

from penstock.expr.nodes import Column, Field
from penstock.expr.show import quoted
from penstock.expr.show import show as show_expr
from penstock.plan.nodes import (
    Aggregate,
    Attach,
    CarriedWindow,
    Distinct,
    Filter,
    Plan,
    Project,
    Source,
    TimeWindow,
    TopK,
    Union,
    Window,
    inputs,
)
from penstock.types.time import Time


def show(plan: Plan) -> str:
    """Print a plan, one node a line, inputs indented below the node that reads them."""
    return "\n".join(_lines(plan, 0))


def _lines(plan: Plan, depth: int) -> list[str]:
    below = [line for each in inputs(plan) for line in _lines(each, depth + 1)]
    return ["  " * depth + _node(plan), *below]


def _node(plan: Plan) -> str:
    match plan:
        case Source():
            return _source(plan)
        case Filter(predicate=predicate):
            return f"filter {show_expr(predicate)}"
        case Project(fields=fields):
            return f"project {_fields(fields)}"
        case Union(inputs=several):
            return f"union of {len(several)}"
        case Distinct(subset=subset, keep=keep):
            return f"distinct by {_names(subset)} keep {keep}"
        case Aggregate(window=window, by=by, fields=fields):
            return f"aggregate {_fields(fields)}{_by(by)} {_window(window)}"
        case Attach(window=window, by=by, fields=fields):
            return f"attach {_fields(fields)}{_by(by)} {_window(window)}"
        case TopK(k=k, by=by, ties=ties):
            return f"top {k} by {name(by)} ties {ties}"


def name(text: str) -> str:
    """Print a user's name on one line, quoted unless it is a plain word."""
    return text if text.isidentifier() else quoted(text)


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(map(name, names))


def _by(by: tuple[str, ...]) -> str:
    return f" by {_names(by)}" if by else ""


def _fields(fields: tuple[Field, ...]) -> str:
    shown = [
        name(each.name) if each.expr == Column(each.name) else f"{name(each.name)} = {show_expr(each.expr)}"
        for each in fields
    ]
    return f"[{', '.join(shown)}]"


def _window(window: Window) -> str:
    match window:
        case TimeWindow(size=size, every=every, offset=offset):
            start = f" from {offset}" if offset else ""
            return f"in windows of {size} ticks every {every}{start}"
        case CarriedWindow():
            return "in the windows carried"


def _source(source: Source) -> str:
    columns = ", ".join(f"{name(field.name)}: {field.type}" for field in source.schema)
    late = f" lateness {source.lateness}" if source.lateness else ""
    order = f" sequence {name(source.sequence)}" if source.sequence else ""
    return f"stream {name(source.name)} ({columns}) time {_time(source.time)}{order}{late}"


def _time(time: Time) -> str:
    if time.implied:
        return f"{name(time.column)} = {time.start} + i * {time.period}"
    return name(time.column) + (f" in {time.unit}" if time.unit else "")
