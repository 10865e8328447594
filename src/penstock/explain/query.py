"""Render a compiled query at any stage of compilation, with the reasons for its physical choices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.algorithms.joins.adapt.tree import IN_ORDER, JoinChooser
from penstock.analysis.boundaries import boundaries
from penstock.analysis.panes import panes_per_window
from penstock.explain.kernels import kernels, signal_reasons
from penstock.expr import nodes as ex
from penstock.expr.show import show as show_expr
from penstock.expr.typing import type_of
from penstock.ir.show import show as show_ir
from penstock.loop.nodes import Kernel, Type
from penstock.loop.show import show as show_loop
from penstock.operators.joins.algorithm_pairs import ROWS_JOINED_BY_PARTITION
from penstock.operators.joins.build_algorithms import join_chooser
from penstock.operators.pane_aggregate.build import window_of
from penstock.operators.pane_aggregate.kernels.window import WindowInputs
from penstock.physical import nodes as ph
from penstock.physical.choose_strategy import described, possible
from penstock.physical.nodes import Join
from penstock.physical.overflows import aggregates, object_of
from penstock.physical.show import show as show_physical
from penstock.plan.show import show as show_plan
from penstock.runtime.metrics import JoinReport
from penstock.types.arrow import width_of
from penstock.types.time import describe_length, length_of
from penstock.types.windows import LEFT_ROW_KINDS, InWindow, Session, windows_overlap

if TYPE_CHECKING:
    from penstock.compile import Compiled


# --- Explain how a windowed join finds its pairs: the algorithm the query names, or the decision tree that picks one.

EARLY = "in run and open: pairs as rows arrive, in no order; rows without a partner when their window ends"


def join_reasons(op: Join, fused: bool = False, report: JoinReport | None = None) -> list[str]:
    """Return lines about the join algorithm, or none if there is no choice. `report` holds the last choice."""
    if not (isinstance(op.pairing, InWindow) and op.on):
        return []
    if fused:
        return [
            "fused: counts and sums of both sides multiply, no pair is made; keys meet once for each window"
        ]
    early = [EARLY] if op.eager else []
    if op.algorithm != "auto":
        return [f"pairs by {op.algorithm}, as requested, one window at a time", *early]
    if windows_overlap(op.pairing):
        shared = "windows overlap: each pair is found once, in partitions, and given for every window that holds it"
        if op.how in LEFT_ROW_KINDS:
            return [shared]
        many = (
            "where windows are large and there are more results than rows in windows, one window at a time:"
        )
        return [shared, many, *_choices(op, join_chooser(), report)]
    if isinstance(op.pairing.left, Session):
        return [
            "sessions of different keys lie across each other: pairs are found in partitions, all at once"
        ]
    return [*early, *_choices(op, join_chooser(), report)]


def _choices(op: Join, chooser: JoinChooser, report: JoinReport | None) -> Iterator[str]:
    """Yield the decision trees, with the path that the last window took."""
    seen = None if report is None or report.chosen is None else report.chosen.seen
    if op.eager:
        yield "there, a tree picks for each window by what was seen of the one before,"
        yield f"for {op.optimise} ({chooser.origin}):"
        yield from chooser.show(op.optimise, seen).splitlines()
        yield "in collect, where all rows are there and pairs are given in order:"
    yield f"windows below {ROWS_JOINED_BY_PARTITION:,} rows in partitions, many at once"
    if op.how in LEFT_ROW_KINDS:
        yield "larger ones by npj, one at a time: whether a row has a partner is a search, no pair is made"
        return
    yield f"larger ones one at a time, by what a tree picks for each of what is seen of it ({chooser.origin}):"
    yield from chooser.show(IN_ORDER, None if op.eager else seen).splitlines()


WAITING_BYTES = 9  # per buffered row: its time in ticks, and a flag whether a window has used it


def explain(compiled: Compiled, stage: str | None) -> str:
    """Render one stage: plan, ir, passes, physical, loop, llvm or asm; without one, an overview with reasons."""
    match stage:
        case "plan":
            return show_plan(compiled.plan)
        case "ir":
            return show_ir(compiled.program)
        case "passes":
            return _passes(compiled)
        case "physical":
            return show_physical(compiled.physical("unbounded"))
        case "loop":
            return _texts(show_loop(kernel) for kernel in kernels(compiled.physical("unbounded")))
        case "llvm" | "asm":
            plan = compiled.physical("unbounded")
            return _texts(_machine_text(kernel, stage) for kernel in kernels(plan))
        case _:
            return _overview(compiled)


def _texts(texts: Iterable[str]) -> str:
    return "\n\n".join(texts) or (
        "No kernel is made before rows come: rows pass as they are, and joins make kernels for the algorithm "
        "and the types that a window calls for; explain() says which."
    )


def _machine_text(kernel: Kernel, stage: str) -> str:
    from penstock.codegen.native import assembly_text, llvm_text  # noqa: PLC0415 - loads LLVM

    return llvm_text(kernel) if stage == "llvm" else assembly_text(kernel)


def _passes(compiled: Compiled) -> str:
    """Render every pass, with its result if it changed the program."""
    parts = [f"-- from the plan\n{show_ir(compiled.raw)}"]
    before = compiled.raw
    for name, after in compiled.trace:
        parts.append(f"-- {name}\n{show_ir(after)}" if after != before else f"-- {name}: nothing to do")
        before = after
    return "\n\n".join(parts)


def _overview(compiled: Compiled) -> str:
    parts = [
        f"plan\n{_indented(show_plan(compiled.plan))}",
        f"program, after {_changes(compiled)}\n{_indented(show_ir(compiled.program))}",
    ]
    parts.append("columns read from files\n" + _indented("\n".join(_columns_read(compiled))))
    plan = compiled.physical("unbounded")
    for node in plan.nodes:
        reasons = _reasons(node, plan, compiled.reports.get(node.id))
        if reasons:
            parts.append(f"~{object_of(node)} runs as\n{_indented(chr(10).join(reasons))}")
    needs = [f"{name}: {need}" for name, need in boundaries(compiled.program).items()]
    parts.append("boundaries\n" + _indented("\n".join(needs)))
    parts.append("on Spark\n" + _indented("\n".join(described(possible(compiled.program)))))
    return "\n\n".join(parts)


def _columns_read(compiled: Compiled) -> Iterator[str]:
    """Yield what the query reads of each stream: columns, and the predicate that prunes row groups by statistics."""
    predicates = compiled.predicates
    for name, columns in compiled.columns.items():
        where = (
            f"; row groups where it may be that {show_expr(predicates[name])}"
            if name in predicates
            else "; all rows"
        )
        yield f"{name}: {', '.join(columns) or 'no column'}{where}"


def _changes(compiled: Compiled) -> str:
    """Name the passes that changed the program."""
    before, names = compiled.raw, []
    for name, after in compiled.trace:
        names += [name] if after != before else []
        before = after
    return ", ".join(dict.fromkeys(names)) or "no pass had anything to do"


def _reasons(node: ph.Node, plan: ph.Plan, report: JoinReport | None) -> list[str]:
    """Return lines on how a windowed, join or signal operator runs and why; none for other operators."""
    match node.op, plan.inputs_of(node):
        case ph.PaneAggregate() as op, (given,):
            return _pane_reasons(op, given, _algorithms(node, plan))
        case ph.SortedWindows(output=ph.Apply()), (given,):
            return _partition_reasons(given, ["a Python function, called once for each window"])
        case ph.SortedWindows(held="states per key") | ph.LookBack(held="states per key"), _:
            return _state_reasons(node)
        case ph.SortedWindows() | ph.LookBack(), (given,):
            return _partition_reasons(given, _algorithms(node, plan))
        case ph.Join(pairing=InWindow()) as op, (left, _):
            fused = isinstance(left.op, ph.PaneAggregate) and left.op.strict
            so_far = [] if report is None else [f"so far: {report.show()}"]
            return [*join_reasons(op, fused, report), *so_far]
        case ph.Signals() as op, sources:
            return signal_reasons(op, node, sources)
        case _:
            return []


def _algorithms(node: ph.Node, plan: ph.Plan) -> list[str]:
    """Return the algorithm of each reduction, with the reason, as the query wrote the reduction."""
    chosen = [choice for choice in node.choices if choice.what.startswith("reduction")]
    return [
        f"#{place} {_partial(aggregate.function, aggregate.args, aggregate.where)}: {choice.taken}; {choice.reason}"
        for place, (aggregate, choice) in enumerate(zip(aggregates(node, plan), chosen, strict=True))
    ]


# --- panes ------------------------------------------------------------------------------------------------


def _pane_reasons(op: ph.PaneAggregate, given: ph.Node, algorithms: Sequence[str]) -> list[str]:
    window = window_of(op, given)
    remembered = [
        _partial(partial.kind, partial.args, partial.where) for partial in window.partials(frozenset())
    ]
    return [
        f"one fused loop over ~{given.id}: filter, keys and aggregates in a single pass",
        f"windows: {_panes(window)}",
        *algorithms,
        f"keys: {_keys(op)}",
        f"a pane holds: {', '.join(remembered)} (as long as no column is seen to hold nulls)",
        "integer sums: 64 bits, every addition checked; 128 bits from the first one that would not fit",
        f"memory: {_pane_memory(window)}",
        f"saved, as in a checkpoint: {_saved(window)}",
        *(
            f"computed by Arrow before the loop: {name} = {show_expr(expr)}"
            for expr, name in window.host.fields.items()
        ),
    ]


def _panes(window: WindowInputs) -> str:
    if window.carried:
        return "those that rows carry; a pane is the end of one"
    cut, every = window.panes.cut, window.panes.every
    number = panes_per_window(window.op.window)
    several = f"{number} pane{'s' if number > 1 else ''} each"
    unit = window.row_time.unit
    slide = describe_length(every, unit)
    if not cut:
        return f"{several}, a pane being a slide of {slide}"
    parts = f"{length_of(cut, unit)} and {length_of(every - cut, unit)}"
    return f"{several}, a slide of {slide} being cut in two, {parts}, where others end"


def _pane_memory(window: WindowInputs) -> str:
    """Bound a run's memory: the states of open windows' panes, and the scratch memory of emission."""
    cell = sum(
        _bytes(state.type) for monoid in window.monoids(frozenset(), wide=False) for state in monoid.states
    )
    held = f"panes of open windows x keys x {cell} bytes"
    scratch = window.emit(frozenset(), False, window.op.merging, window.op.key_table).scratch
    deep, flat = (
        sum(_bytes(buffer.type) for buffer in scratch if buffer.deep is kind) for kind in (True, False)
    )
    rows = panes_per_window(window.op.window) + 1
    stacked = [f"{rows} x keys x {deep} bytes"] if deep else []
    single = [f"keys x {flat} bytes"] if flat else []
    return (
        held if not scratch else f"{held}; while emitting, at most {' + '.join([*stacked, *single])} a thread"
    )


def _saved(window: WindowInputs) -> str:
    """Bound the size of a run's saved state in canonical form."""
    return f"panes of open windows x keys x {_saved_cell(window)} bytes, and texts as long as they are"


def saved_cell(plan: ph.Plan, name: str) -> int:
    """Return the bytes of saved state per pane and key of a windowed object, without strings."""
    node = next(part for part in plan.nodes if object_of(part) == name)
    assert isinstance(node.op, ph.PaneAggregate)
    return _saved_cell(window_of(node.op, *plan.inputs_of(node)))


def _saved_cell(window: WindowInputs) -> int:
    """Return the bytes of a pane number, key values, and the most general states: 128-bit sums, null flags."""
    general = frozenset(window.source.names)
    states = [state.type for monoid in window.monoids(general, wide=True) for state in monoid.states]
    keys = [width_of(type_of(key.expr, window.source)) for key in window.op.keys]
    return 8 + sum(map(_bytes, states)) + sum(8 if width is None else width for width in keys)


def _bytes(type: Type) -> int:
    return max(type.bits // 8, 1)


# --- partitions ------------------------------------------------------------------------------------------------


def _partition_reasons(given: ph.Node, algorithms: Sequence[str]) -> list[str]:
    return [
        f"partitions: rows of ~{given.inputs[0]} wait for the watermark, then lie key by key in order of time",
        "windows: ranges of a partition's rows",
        *algorithms,
        f"memory: the rows of open windows, {_row_bytes(given.schema)} a row: {', '.join(given.schema.names)}",
    ]


def _state_reasons(node: ph.Node) -> list[str]:
    held = next(choice for choice in node.choices if choice.what == "held")
    kept = (
        "of each row that a later one looks back on"
        if isinstance(node.op, ph.LookBack)
        else "of each open window"
    )
    return [
        f"states per key: {held.reason}",
        *(f"as long as {assumption.text}; else {assumption.fallback}" for assumption in held.assumptions),
        f"memory: one state {kept}, and one of each key; rows ahead of the watermark",
    ]


def _row_bytes(schema: pa.Schema) -> str:
    """Describe the bytes of a buffered row: its columns and `WAITING_BYTES`."""
    widths = [width_of(field.type) for field in schema]
    fixed = sum(width for width in widths if width is not None) + WAITING_BYTES
    return f"{fixed} bytes" if None not in widths else f"{fixed} bytes and its texts"


def _keys(op: ph.PaneAggregate) -> str:
    match op.key_table:
        case "none":
            return "none: a plain reduction in registers"
        case "dense":
            return (
                "dense array while their range is small for the rows seen, else an open-addressing hash table"
            )
        case _:
            return "open-addressing hash table, since a key is computed or a float"


def _partial(kind: str, args: tuple[ex.Expr, ...], where: ex.Expr | None) -> str:
    text = f"{kind}({', '.join(map(show_expr, args))})"
    return text if where is None else f"{text} where {show_expr(where)}"


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
