"""Print a physical plan: a line for each operator, and below it what was chosen and why."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.expr.show import show as show_expr
from penstock.physical.nodes import (
    Apply,
    Around,
    AtEnd,
    Choice,
    Distinct,
    Follows,
    Join,
    Lags,
    LookBack,
    Nearest,
    Node,
    OldestOpenWindow,
    PaneAggregate,
    Plan,
    Reduction,
    Rows,
    Scan,
    Signals,
    SortedWindows,
    TableInput,
    TopK,
    Union,
)
from penstock.types.time import length_of
from penstock.types.windows import (
    Calendar,
    CarriedWindow,
    Count,
    InWindow,
    Lookup,
    Session,
    TimeWindow,
    Unbounded,
    Window,
    Within,
)


def show(plan: Plan) -> str:
    """Print the nodes in order, each before its readers."""
    lines = [f"{plan.mode} input"]
    for node in plan.nodes:
        lines += _node(node, node.id == plan.output)
    return "\n".join(lines)


def _node(node: Node, output: bool) -> Iterator[str]:
    inputs = f" <- {', '.join(node.inputs)}" if node.inputs else ""
    yield f"{node.id}: {_operator(node)}{inputs}{'  (output)' if output else ''}"
    counts = "counts its rows; " if node.counts_rows else ""
    yield f"  {counts}watermark: {_watermark(node)}"
    for choice in node.choices:
        yield from _choice(choice)


def _choice(choice: Choice) -> Iterator[str]:
    yield f"  {choice.what}: {choice.taken}; {choice.reason}"
    for rejected in choice.rejected:
        yield f"    not {rejected.alternative}: {rejected.reason}"
    for assumption in choice.assumptions:
        yield f"    assumes that {assumption.text}; else {assumption.fallback}"


def _watermark(node: Node) -> str:
    match node.watermark:
        case Follows() if isinstance(node.op, Scan):
            return "the largest time seen, less the lateness"
        case Follows():
            return "follows the input"
        case Lags(ticks=ticks):
            return f"at most {_length(ticks, node)} behind the input"
        case OldestOpenWindow() if isinstance(node.op, Signals):
            return "the start of the oldest interval that is not final"
        case OldestOpenWindow():
            return "the oldest row of an open window"
        case AtEnd(reason=reason):
            return f"only at the end of input: {reason}"


def _length(ticks: int, node: Node) -> str:
    return length_of(ticks, None if node.time is None else node.time.unit)


# --- operators ------------------------------------------------------------------------------------------


def _operator(node: Node) -> str:
    match node.op:
        case Scan(stream=stream, sequence=sequence, lateness=lateness):
            order = "" if sequence is None else f", sequence {sequence}"
            late = f", lateness {_length(lateness, node)}" if lateness else ""
            return f"Scan {stream}{order}{late}"
        case TableInput(table=table):
            return f"TableInput {table}"
        case Rows() as op:
            return _rows(op)
        case PaneAggregate() as op:
            return _pane_aggregate(op, node)
        case SortedWindows(window=window, keys=keys, reductions=reductions, output=output):
            kind = "apply" if isinstance(output, Apply) else output
            return f"SortedWindows {kind} {_window(window, node)}{_by(keys)}{_reductions(reductions)}"
        case LookBack(spans=spans, keys=keys, reductions=reductions):
            return f"LookBack over {len(spans)} span{'s' if len(spans) > 1 else ''}{_by(keys)}{_reductions(reductions)}"
        case Signals(program=program, evaluation=evaluation):
            return f"Signals {evaluation}, {len(program.objects)} objects"
        case Join() as op:
            return _join(op, node)
        case Distinct(subset=subset, keep=keep, within=within):
            near = "" if within is None else f", within {_length(within, node)}"
            return f"Distinct {', '.join(subset)}, keep {keep}{near}"
        case TopK(k=k, by=by, ties=ties):
            return f"TopK {k} by {by}, ties {ties}"
        case Union():
            return "Union"


def _rows(op: Rows) -> str:
    where = f" where {' and '.join(map(show_expr, op.conjuncts))}" if op.conjuncts else ""
    computed = [field.name for field in op.fields if show_expr(field.expr) != field.name]
    fields = f"{len(op.fields)} columns" + (f", computes {', '.join(computed)}" if computed else "")
    return f"Rows {fields}{where}"


def _pane_aggregate(op: PaneAggregate, node: Node) -> str:
    where = "" if op.where is None else f" where {show_expr(op.where)}"
    having = "" if op.having is None else f" having {show_expr(op.having)}"
    keys = _by(tuple(key.name for key in op.keys))
    return f"PaneAggregate {_window(op.window, node)}{keys}{_reductions(op.reductions)}{where}{having}"


def _reductions(reductions: tuple[Reduction, ...]) -> str:
    return f": {', '.join(map(reduction_text, reductions))}" if reductions else ""


def reduction_text(reduction: Reduction) -> str:
    """Print an aggregate function with its arguments."""
    where = "" if reduction.where is None else f" where {show_expr(reduction.where)}"
    return f"{reduction.function}({', '.join(map(show_expr, reduction.args))}){where}"


def _by(keys: tuple[str, ...]) -> str:
    return f" by {', '.join(keys)}" if keys else ""


def _join(op: Join, node: Node) -> str:
    on = ", ".join(left if left == right else f"{left} = {right}" for left, right in op.on)
    keys = f" on {on}" if on else ""
    where = "" if op.residual is None else f" where {show_expr(op.residual)}"
    return f"Join {op.how} {_pairing(op, node)}{keys}{where}"


def _pairing(op: Join, node: Node) -> str:
    match op.pairing:
        case InWindow(left=left, right=right) if left == right:
            return _window(left, node)
        case InWindow(left=left, right=right):
            return f"{_window(left, node)} with {_window(right, node)}"
        case Within(lo=lo, hi=hi):
            return f"within [{_length(lo, node)}, {_length(hi, node)}]"
        case Lookup():
            return "lookup"
        case Nearest(direction=direction, tolerance=tolerance):
            limit = "" if tolerance is None else f", tolerance {_length(tolerance, node)}"
            return f"as-of {direction}{limit}"
        case Around(lo=lo, hi=hi, reductions=reductions):
            return f"around [{_length(lo, node)}, {_length(hi, node)}]{_reductions(reductions)}"


def _window(window: Window, node: Node) -> str:
    match window:
        case TimeWindow(size=size, every=every) if size == every:
            return f"tumbling {_length(size, node)}"
        case TimeWindow(size=size, every=every):
            return f"sliding {_length(size, node)} every {_length(every, node)}"
        case Session(gap=gap):
            return f"session {_length(gap, node)}"
        case Count(size=size, every=every):
            return f"{size} rows every {every}"
        case CarriedWindow():
            return "carried window"
        case Unbounded():
            return "unbounded"
        case Calendar(zone=zone):
            return f"calendar windows in {zone}"
