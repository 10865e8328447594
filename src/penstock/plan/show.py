"""Print a logical plan as a tree, the result at the top."""

from __future__ import annotations

from penstock.expr.nodes import Column, Field
from penstock.expr.show import quoted
from penstock.expr.show import show as show_expr
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
    inputs,
)
from penstock.plan.schema import time_of
from penstock.types.time import Time, describe_length, length_of
from penstock.types.windows import (
    Calendar,
    CalendarStep,
    CarriedWindow,
    Count,
    InWindow,
    Keys,
    LookBack,
    Lookup,
    Pairing,
    Session,
    TimeWindow,
    Unbounded,
    Window,
    Within,
)


def show(plan: Plan) -> str:
    """Print a plan, one node per line, inputs indented below their reader; the inputs of a shared node once."""
    lines: list[str] = []
    shown: set[int] = set()
    waiting = [(plan, 0)]
    while waiting:
        node, depth = waiting.pop()
        below = inputs(node)
        again = bool(below) and id(node) in shown
        shown.add(id(node))
        lines.append("  " * depth + _node(node) + (" (as above)" if again else ""))
        waiting.extend((child, depth + 1) for child in (() if again else reversed(below)))
    return "\n".join(lines)


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
        case Distinct(subset=subset, keep=keep, within=within):
            near = "" if within is None else f" within {describe_length(within, _unit(plan))}"
            return f"distinct by {_names(subset)} keep {keep}{near}"
        case Aggregate(window=window, by=by, fields=fields):
            return f"aggregate {_fields(fields)}{_by(by)} {_window(window, _unit(plan))}"
        case Attach(window=window, by=by, fields=fields):
            return f"attach {_fields(fields)}{_by(by)} {_window(window, _unit(plan))}"
        case Lookback(spans=spans, by=by, fields=several, rows=rows):
            shown = [_span(span, _unit(plan)) for span in spans]
            parts = [f"{_fields(fields)} over {span}" for span, fields in zip(shown, several, strict=True)]
            return f"look back{' beside each row' if rows else ''} {', '.join(parts)}{_by(by)}"
        case Apply(window=window, by=by):
            return f"apply a function{_by(by)} {_window(window, _unit(plan))}"
        case Intervals(program=program):
            values = ", ".join(map(name, program[program.output].schema.names))
            return f"intervals of a signal [{values}]{_by(tuple(program.keys.names))}"
        case TopK(k=k, by=by, ties=ties):
            return f"top {k} by {name(by)} ties {ties}"
        case Table():
            columns = ", ".join(f"{name(field.name)}: {field.type}" for field in plan.schema)
            return f"table {name(plan.name)} ({columns})"
        case Join(on=on, pairing=pairing, how=how, where=where, algorithm=algorithm):
            rest = "" if where is None else f" where {show_expr(where)}"
            by = "" if algorithm == "auto" else f" by {algorithm}"
            return f"{how} join{_on(on)} {_pairing(pairing, _unit(plan))}{rest}{by}"
        case AsofJoin(on=on, direction=direction, tolerance=tolerance, exact=exact):
            near = "" if tolerance is None else f" within {describe_length(tolerance, _unit(plan))}"
            return (
                f"as-of join {direction}{_on(on)}{near}{'' if exact else ' before or after, not at, a time'}"
            )
        case RollingJoin(on=on, within=within, fields=fields):
            return f"rolling join {_fields(fields)}{_on(on)} {_pairing(within, _unit(plan))}"


def name(text: str) -> str:
    """Print a user's name on one line, quoted unless it is a plain word."""
    return text if text.isidentifier() else quoted(text)


def _on(on: Keys) -> str:
    pairs = [name(left) if left == right else f"{name(left)} = {name(right)}" for left, right in on]
    return f" on {', '.join(pairs)}" if pairs else ""


def _pairing(pairing: Pairing, unit: str | None) -> str:
    match pairing:
        case InWindow(left=left, right=right) if left == right:
            return _window(left, unit)
        case InWindow(left=left, right=right):
            return f"left {_window(left, unit)}, right {_window(right, unit)}"
        case Within(lo=lo, hi=hi):
            return f"within {length_of(lo, unit)} to {describe_length(hi, unit)}"
        case Lookup(table=table):
            return f"looked up in the {'right' if table else 'left'}"


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(map(name, names))


def _by(by: tuple[str, ...]) -> str:
    return f" by {_names(by)}" if by else ""


def _fields(fields: tuple[Field, ...]) -> str:
    shown = [
        name(field.name)
        if field.expr == Column(field.name)
        else f"{name(field.name)} = {show_expr(field.expr)}"
        for field in fields
    ]
    return f"[{', '.join(shown)}]"


def _unit(plan: Plan) -> str | None:
    return time_of(plan).unit


def _window(window: Window, unit: str | None) -> str:
    match window:
        case TimeWindow(size=size, every=every, offset=offset):
            start = f" from {length_of(offset, unit)}" if offset else ""
            return f"in windows of {describe_length(size, unit)} every {length_of(every, unit)}{start}"
        case CarriedWindow():
            return "in the windows carried"
        case Session(gap=gap):
            return f"in sessions with a gap of {describe_length(gap, unit)}"
        case Count(size=size, every=every, partial=partial):
            return f"in windows of {size} rows every {every}{' and the tail' if partial else ''}"
        case Unbounded():
            return "over all time"
        case Calendar(size=size, every=every, zone=zone):
            return f"in windows of {_step(size, unit)} every {_step(every, unit)} in {quoted(zone)}"


def _step(step: CalendarStep, unit: str | None) -> str:
    return f"{step.months} months" if step.months else describe_length(step.ticks, unit)


def _span(span: LookBack, unit: str | None) -> str:
    length = f"{span.rows} rows" if span.size is None else describe_length(span.size, unit)
    closed = "" if span.closed == "right" else f" closed {span.closed}"
    return length + closed + (f" delay {length_of(span.delay, unit)}" if span.delay else "")


def _source(source: Source) -> str:
    columns = ", ".join(f"{name(field.name)}: {field.type}" for field in source.schema)
    late = f" lateness {length_of(source.lateness, source.time.unit)}" if source.lateness else ""
    order = f" sequence {name(source.sequence)}" if source.sequence else ""
    return f"stream {name(source.name)} ({columns}) time {_time(source.time)}{order}{late}"


def _time(time: Time) -> str:
    if time.implied:
        return f"{name(time.column)} = {time.start} + i * {length_of(time.period or 1, time.unit)}"
    return name(time.column) + (f" in {time.unit}" if time.unit else "")
