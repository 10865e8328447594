"""Print a time-centric program in a notation close to TiLT's (section 4.2).

    ~in0[t] = input "events" (ts: timestamp[us], k: int64, v: int64) at ts
    ~w1[t] @ size 10s every 10s by k = {
      #0 = ⊕(sum, ~in0[t - 10s : t].v) where v > 0
      window_start; window_end; k; total: #0
    }
    out ~w1

A field that is a plain column is printed as its name; `where` drops samples before anything else is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa

from penstock.expr.nodes import Column, Expr, Field
from penstock.expr.show import show as show_expr
from penstock.ir.nodes import (
    Apply,
    Asof,
    Attach,
    Distinct,
    Input,
    Join,
    Joined,
    Lookback,
    Merge,
    Object,
    Program,
    Reduce,
    Reduction,
    RollingJoin,
    Samples,
    Signals,
    Table,
    Top,
)
from penstock.ir.signals.nodes import END
from penstock.ir.signals.show import show_program
from penstock.types.time import Time, length_of
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

# --- Print joins of the IR.


def join_text(
    body: Joined,
    domain: Callable[[Window], str],
    ticks: Callable[[int], str],
    reduction: Callable[[Reduction, str], str],
) -> str:
    """Print a join on several lines; the callables print windows, durations and reductions."""
    lines: list[str] = []
    match body:
        case Join():
            by = "" if body.algorithm == "auto" else f" by {body.algorithm}"
            head = f"{body.how} join of ~{body.left}, ~{body.right}{_on(body.on)}, {_pairing(body.pairing, domain, ticks)}{by}"
            lines += [] if body.where is None else [f"where {show_expr(body.where)}"]
        case Asof():
            near = "" if body.tolerance is None else f", at most {ticks(body.tolerance)} away"
            at = "" if body.exact else ", not at the same time"
            head = (
                f"each ~{body.left} with the {_NEAREST[body.direction]} ~{body.right}{_on(body.on)}{near}{at}"
            )
        case RollingJoin():
            head = f"each ~{body.left}{_on(body.on)}"
            span = f"~{body.right}[t {_signed(body.within.lo, ticks)} : t {_signed(body.within.hi, ticks)}]"
            lines += [f"#{place} = {reduction(item, span)}" for place, item in enumerate(body.reductions)]
    lines.append(_join_fields(body.fields))
    return "\n".join([f"{head} {{", *(f"  {line}" for line in lines), "}"])


_NEAREST = {"backward": "last", "forward": "next", "nearest": "nearest"}


def _pairing(pairing: Pairing, domain: Callable[[Window], str], ticks: Callable[[int], str]) -> str:
    match pairing:
        case InWindow(left=left, right=right):
            return domain(left) if left == right else f"{domain(left)} / {domain(right)}"
        case Within(lo=lo, hi=hi):
            return f"within {_signed(lo, ticks)} … {_signed(hi, ticks)}"
        case Lookup(table=table):
            return f"the {'right' if table else 'left'} being a table"


def _signed(length: int, ticks: Callable[[int], str]) -> str:
    return f"- {ticks(-length)}" if length < 0 else f"+ {ticks(length)}"


def _on(on: Keys) -> str:
    pairs = [f"{_join_name(left)} = {_join_name(right)}" for left, right in on]
    return f" on {', '.join(pairs)}" if pairs else ""


def _join_fields(fields: Iterable[Field]) -> str:
    return "; ".join(
        _join_name(field.name)
        if field.expr == Column(field.name)
        else f"{_join_name(field.name)}: {show_expr(field.expr)}"
        for field in fields
    )


def _join_name(name: str) -> str:
    return show_expr(Column(name))


def show(program: Program) -> str:
    """Print every object in order, then the name of the output."""
    lines = [_object(obj, program) for obj in program.objects]
    return "\n".join([*lines, f"out ~{program.output}"])


def _object(this: Object, program: Program) -> str:
    name = f"~{this.name}[t]"
    match this.body:
        case Input() as body:
            return f"{name} = {_input(body, this)}"
        case Table(name=table):
            return f"{name} = table {_quoted(table)} ({schema_line(this.schema)})"
        case Join() | Asof() | RollingJoin() as body:
            unit = program[body.left].time.unit or program[body.right].time.unit
            return f"{name} = {join_text(body, lambda domain: domain_text(domain, unit), lambda n: length_of(n, unit), _reduction)}"
        case Merge(sources=sources):
            return f"{name} = {' ∪ '.join(f'~{source}[t]' for source in sources)}"
        case Distinct(source=source, subset=subset, keep=keep, within=within):
            near = "" if within is None else f" within {length_of(within, this.time.unit)}"
            return f"{name} = {keep} of ~{source}[t] for each ({', '.join(map(_name, subset))}){near}"
        case Top(source=source, k=k, by=by, ties=ties):
            return f"{name} = top {k} of ~{source}[t] by {_name(by)}, ties {ties}"
        case Samples() as body:
            return f"{name} = ~{body.source}[t]{_samples(body)}"
        case Reduce() as body:
            return f"{name} @ {_windowed(body, program[body.source])}"
        case Attach() as body:
            return f"{name} @ each sample, {_windowed(body, program[body.source])}"
        case Lookback() as body:
            return f"{name} @ each sample{_behind(body, program[body.source])}"
        case Signals(sources=sources, program=signals):
            shown = show_program(signals, lambda count: length_of(count, signals.time.unit))
            taken = [f"input {place} = ~{source}" for place, source in enumerate(sources)]
            intervals = "intervals" if END in this.schema.names else "intervals without ends"
            return _braced(f"{name} = {intervals} of {', '.join(taken)}", shown.split("\n"))
        case Apply() as body:
            unit = program[body.source].time.unit
            return f"{name} @ {domain_text(body.domain, unit)}{_by(body.keys)} = function(~{body.source}[window])"


def _input(body: Input, this: Object) -> str:
    columns = ", ".join(f"{_name(field.name)}: {field.type}" for field in this.schema)
    order = "" if body.sequence is None else f" then {_name(body.sequence)}"
    return f"input {_quoted(body.stream)} ({columns}) at {_time(this.time)}{order}"


def _time(time: Time) -> str:
    if time.period is None:
        return _name(time.column) + (f" {time.shift:+d}" if time.shift else "")
    return f"{_name(time.column)} = {time.start} + i * {length_of(time.period, time.unit)}"


def _samples(body: Samples) -> str:
    where = "" if body.where is None else f" where {show_expr(body.where)}"
    return f"{where} {{ {_fields(body.fields)} }}"


def _windowed(body: Reduce | Attach, source: Object) -> str:
    unit = source.time.unit
    lines = [] if body.where is None else [f"where {show_expr(body.where)}"]
    span = f"~{body.source}[{_span(body.domain, unit)}]"
    lines += [f"#{i} = {_reduction(reduction, span)}" for i, reduction in enumerate(body.reductions)]
    lines.append(_fields(body.fields))
    if isinstance(body, Reduce) and body.having is not None:
        lines.append(f"having {show_expr(body.having)}")
    return _braced(f"{domain_text(body.domain, unit)}{_by(body.keys)}", lines)


def _behind(body: Lookback, source: Object) -> str:
    lines = [] if body.where is None else [f"where {show_expr(body.where)}"]
    spans = [f"~{body.source}[{look_text(span, source.time.unit)}]" for span in body.spans]
    lines += [
        f"#{i} = {_reduction(reduction, spans[reduction.span])}"
        for i, reduction in enumerate(body.reductions)
    ]
    return _braced(_by(body.keys), [*lines, _fields(body.fields)])


def look_text(span: LookBack, unit: str | None) -> str:
    """Print the span of a look-back."""
    now = "t" if not span.delay else f"t - {length_of(span.delay, unit)}"
    closed = "" if span.closed == "right" else f", closed {span.closed}"
    if span.rows is not None:
        return f"last {span.rows} up to {now}{closed}"
    assert span.size is not None
    return f"{now} - {length_of(span.size, unit)} : {now}{closed}"


def _by(keys: tuple[Field, ...]) -> str:
    return f" by {', '.join(_field(key) for key in keys)}" if keys else ""


def _braced(head: str, lines: Iterable[str]) -> str:
    return "\n".join([f"{head} = {{", *(f"  {line}" for line in lines), "}"])


def domain_text(domain: Window, unit: str | None) -> str:
    """Print a window domain."""
    match domain:
        case TimeWindow(size=size, every=every, offset=offset):
            shifted = f" offset {length_of(offset, unit)}" if offset else ""
            return f"size {length_of(size, unit)} every {length_of(every, unit)}{shifted}"
        case CarriedWindow():
            return "its window"
        case Session(gap=gap):
            return f"sessions with a gap of {length_of(gap, unit)}"
        case Count(size=size, every=every, partial=partial):
            return f"size {size} rows every {every} rows{' and the tail' if partial else ''}"
        case Unbounded():
            return "all time"
        case Calendar(size=size, every=every, offset=offset, zone=zone):
            shifted = f" offset {length_of(offset, unit)}" if offset else ""
            return f"size {_step(size, unit)} every {_step(every, unit)}{shifted} in {_quoted(zone)}"


def _span(domain: Window, unit: str | None) -> str:
    match domain:
        case TimeWindow(size=size):
            return f"t - {length_of(size, unit)} : t"
        case _:
            return "window"


def _step(step: CalendarStep, unit: str | None) -> str:
    return f"{step.months}mo" if step.months else length_of(step.ticks, unit)


def _reduction(reduction: Reduction, span: str) -> str:
    args = "".join(f", {_over(arg, span)}" for arg in reduction.args) or f", {span}"
    options = "".join(f", {name}={value!r}" for name, value in reduction.options)
    where = "" if reduction.where is None else f" where {show_expr(reduction.where)}"
    return f"⊕({reduction.function}{args}{options}){where}"


def _over(arg: Expr, span: str) -> str:
    return f"{span}.{_name(arg.name)}" if isinstance(arg, Column) else f"{span}.({show_expr(arg)})"


def _fields(fields: Iterable[Field]) -> str:
    return "; ".join(_field(field) for field in fields)


def _field(field: Field) -> str:
    name = _name(field.name)
    return name if field.expr == Column(field.name) else f"{name}: {show_expr(field.expr)}"


def _name(name: str) -> str:
    return show_expr(Column(name))


def _quoted(text: str) -> str:
    escaped = text.encode("unicode_escape").decode().replace('"', '\\"')
    return f'"{escaped}"'


def schema_line(schema: pa.Schema) -> str:
    """Print a schema on one line."""
    return ", ".join(f"{_name(field.name)}: {field.type}" for field in schema)
