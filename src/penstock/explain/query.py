"""Render a compiled query at any stage of compilation, with the reasons for its physical choices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.algorithms.kernel_factory import KernelFactory
from penstock.algorithms.sorted_partitions.build import FrameReducers, shape_of
from penstock.algorithms.sorted_partitions.reducers import KernelReducer
from penstock.analysis.boundaries import boundaries
from penstock.analysis.panes import in_panes, panes_per_window
from penstock.explain.joins import join_reasons
from penstock.explain.signals import signal_kernels, signal_reasons
from penstock.expr import nodes as ex
from penstock.expr.show import show as show_expr
from penstock.expr.typing import type_of
from penstock.ir import nodes as ir
from penstock.ir.joins import Join
from penstock.ir.show import show as show_ir
from penstock.loop.interpret import Interpreted
from penstock.loop.nodes import Kernel, Type
from penstock.loop.show import show as show_loop
from penstock.operators.pane_aggregate.build import CompiledWindow
from penstock.operators.pane_aggregate.kernels.emit_steps.spec import EmitKernel
from penstock.operators.pane_aggregate.kernels.window import Window
from penstock.operators.rows.build import CompiledRows
from penstock.physical.choose_algorithm import Choice, choices, preferred
from penstock.physical.choose_strategy import described, possible
from penstock.physical.show import show as show_physical
from penstock.physical.split_results import fits_emission, split_results
from penstock.physical.split_windows import columns_kept, spell
from penstock.plan.show import show as show_plan
from penstock.types.arrow import width_of
from penstock.types.time import describe_length, length_of

if TYPE_CHECKING:
    from penstock.compile import Compiled

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
            return _texts(show_loop(kernel) for kernel in kernels(compiled.program))
        case "llvm" | "asm":
            return _texts(_machine_text(kernel, stage) for kernel in kernels(compiled.program))
        case _:
            return _overview(compiled)


def _texts(texts: Iterable[str]) -> str:
    return "\n\n".join(texts) or (
        "No kernel is made before rows come: rows pass as they are, and joins make kernels for the algorithm "
        "and the types that a window calls for; explain() says which."
    )


def kernels(program: ir.Program) -> Iterator[Kernel]:
    """Yield the kernels a run starts with, before data has changed any assumption."""
    for each in program.objects:
        match each.body:
            case ir.Samples() as body:
                yield from _rows_kernels(body, program[body.source], each)
            case ir.Reduce() as body if in_panes(body, program):
                yield from _pane_kernels(body, program[body.source], each)
            case ir.Reduce() | ir.Attach() | ir.Lookback() as body:
                chosen = tuple(choice.algorithm for choice in choices(program)[each.name])
                yield from _lane_kernels(program[body.source], each, chosen)
            case ir.Signals(sources=sources) as body:
                yield from signal_kernels(each, body, [program[name] for name in sources])


def _pane_kernels(body: ir.Reduce, source: ir.Object, this: ir.Object) -> Iterator[Kernel]:
    """Yield the kernels that fold rows, emit windows, and compute the results that emission cannot."""
    window = _pane_window(body, source, this)
    yield window.fold(_first_key_table(window), frozenset(), wide=False).kernel
    yield _emit_kernel(window).kernel
    if not fits_emission(body, source):
        _, plain, after = split_results(this, body, source)
        yield from _rows_kernels(after, plain, this)


def _pane_window(body: ir.Reduce, source: ir.Object, this: ir.Object) -> Window:
    """Return the window that kernels compute: without results that need Arrow."""
    if fits_emission(body, source):
        return Window(body, source, this)
    reduce, plain, _ = split_results(this, body, source)
    return Window(reduce, source, plain)


def _emit_kernel(window: Window) -> EmitKernel:
    return window.emit(frozenset(), False, preferred(window.body.domain), _first_key_table(window))


def _lane_kernels(source: ir.Object, this: ir.Object, algorithms: tuple[str, ...]) -> Iterator[Kernel]:
    """Yield the kernels that compute argument columns, then those that reduce frames."""
    made = spell(this, source, columns_kept(this, source))
    yield from _rows_kernels(made.samples, source, made.ready)
    kernel_factory = KernelFactory(Interpreted)
    for each in FrameReducers(
        made.ready, made.reductions, algorithms, shape_of(this.body), kernel_factory, 1
    ).reducers():
        if isinstance(each, KernelReducer):
            (each.over.regular or each.over.slide)(frozenset())
    yield from kernel_factory.kernels


def _rows_kernels(body: ir.Samples, source: ir.Object, result: ir.Object) -> Iterator[Kernel]:
    rows = CompiledRows(body, source, result, KernelFactory(Interpreted))
    if rows.filters or any(column.origin == "computed" for column in rows.result):
        yield rows.kernel(frozenset()).kernel


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
    parts.append("files are asked for\n" + _indented("\n".join(_asked(compiled))))
    chosen = choices(compiled.program)
    for each in compiled.program.objects:
        reasons = _reasons(each, compiled, chosen.get(each.name, ()))
        if each.name in compiled.reports:
            reasons = [*reasons, f"so far: {compiled.reports[each.name].show()}"]
        if reasons:
            parts.append(f"~{each.name} runs as\n{_indented(chr(10).join(reasons))}")
    needs = [f"{name}: {need}" for name, need in boundaries(compiled.program).items()]
    parts.append("boundaries\n" + _indented("\n".join(needs)))
    parts.append("on Spark\n" + _indented("\n".join(described(possible(compiled.program)))))
    return "\n\n".join(parts)


def _asked(compiled: Compiled) -> Iterator[str]:
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


def _reasons(this: ir.Object, compiled: Compiled, chosen: Sequence[Choice]) -> list[str]:
    """Return lines on how a windowed, join or signal object runs and why; none for other objects."""
    program = compiled.program
    match this.body:
        case ir.Reduce() as body if in_panes(body, program):
            return _pane_reasons(_pane_window(body, program[body.source], this), chosen)
        case ir.Reduce() | ir.Attach() | ir.Lookback() as body:
            return _lane_reasons(this, program[body.source], _algorithms(body.reductions, chosen))
        case ir.Apply() as body:
            return _lane_reasons(
                this, program[body.source], ["a Python function, called once for each window"]
            )
        case Join() as body:
            left = program[body.left].body
            fused = isinstance(left, ir.Reduce) and left.strict
            return join_reasons(body, fused, compiled.reports.get(this.name))
        case ir.Signals(sources=sources) as body:
            return signal_reasons(this, body, [program[name] for name in sources])
        case _:
            return []


def _algorithms(reductions: Sequence[ir.Reduction], chosen: Sequence[Choice]) -> list[str]:
    return [
        f"#{place} {_partial(each.function, each.args, each.where)}: {choice.algorithm}; {choice.reason}"
        for place, (each, choice) in enumerate(zip(reductions, chosen, strict=True))
    ]


# --- panes ------------------------------------------------------------------------------------------------


def _pane_reasons(window: Window, chosen: Sequence[Choice]) -> list[str]:
    remembered = [_partial(each.kind, each.args, each.where) for each in window.partials(frozenset())]
    return [
        f"one fused loop over ~{window.source.name}: filter, keys and aggregates in a single pass",
        f"windows: {_panes(window)}",
        *_algorithms(window.body.reductions, chosen),
        f"keys: {_keys(window)}",
        f"a pane remembers: {', '.join(remembered)} (as long as no column is seen to hold nulls)",
        "integer sums: 64 bits, every addition checked; 128 bits from the first one that would not fit",
        f"memory: {_pane_memory(window)}",
        f"saved, as in a checkpoint: {_saved(window)}",
        *(
            f"computed by Arrow before the loop: {name} = {show_expr(expr)}"
            for expr, name in window.host.fields.items()
        ),
    ]


def _panes(window: Window) -> str:
    if window.carried:
        return "those that rows carry; a pane is the end of one"
    cut, every = window.panes.cut, window.panes.every
    number = panes_per_window(window.body.domain)
    several = f"{number} pane{'s' if number > 1 else ''} each"
    unit = window.source.time.unit
    slide = describe_length(every, unit)
    if not cut:
        return f"{several}, a pane being a slide of {slide}"
    parts = f"{length_of(cut, unit)} and {length_of(every - cut, unit)}"
    return f"{several}, a slide of {slide} being cut in two, {parts}, where others end"


def _pane_memory(window: Window) -> str:
    """Bound a run's memory: the states of open windows' panes, and the scratch memory of emission."""
    cell = sum(
        _bytes(state.type) for each in window.monoids(frozenset(), wide=False) for state in each.states
    )
    held = f"panes of open windows x keys x {cell} bytes"
    scratch = _emit_kernel(window).scratch
    deep, flat = (sum(_bytes(each.type) for each in scratch if each.deep is kind) for kind in (True, False))
    rows = panes_per_window(window.body.domain) + 1
    stacked = [f"{rows} x keys x {deep} bytes"] if deep else []
    single = [f"keys x {flat} bytes"] if flat else []
    return (
        held if not scratch else f"{held}; while emitting, at most {' + '.join([*stacked, *single])} a thread"
    )


def _saved(window: Window) -> str:
    """Bound the size of a run's saved state in canonical form."""
    return f"panes of open windows x keys x {_saved_cell(window)} bytes, and texts as long as they are"


def saved_cell(this: ir.Object, program: ir.Program) -> int:
    """Return the bytes of saved state per pane and key of a window, without strings."""
    assert isinstance(this.body, ir.Reduce)
    return _saved_cell(_pane_window(this.body, program[this.body.source], this))


def _saved_cell(window: Window) -> int:
    """Return the bytes of a pane number, key values, and the most general states: 128-bit sums, null flags."""
    general = frozenset(window.source.schema.names)
    states = [state.type for each in window.monoids(general, wide=True) for state in each.states]
    keys = [width_of(type_of(key.expr, window.source.schema)) for key in window.body.keys]
    return 8 + sum(map(_bytes, states)) + sum(8 if width is None else width for width in keys)


def _bytes(type: Type) -> int:
    return max(type.bits // 8, 1)


# --- lanes ------------------------------------------------------------------------------------------------


def _lane_reasons(this: ir.Object, source: ir.Object, algorithms: Sequence[str]) -> list[str]:
    made = spell(this, source, columns_kept(this, source))
    return [
        f"lanes: rows of ~{source.name} wait for the watermark, then lie key by key in order of time",
        "windows: ranges of a lane's rows",
        *algorithms,
        f"memory: the rows of open windows, {_row_bytes(made.ready.schema)} a row: {', '.join(made.ready.schema.names)}",
    ]


def _row_bytes(schema: pa.Schema) -> str:
    """Describe the bytes of a buffered row: its columns and `WAITING_BYTES`."""
    widths = [width_of(each.type) for each in schema]
    fixed = sum(width for width in widths if width is not None) + WAITING_BYTES
    return f"{fixed} bytes" if None not in widths else f"{fixed} bytes and its texts"


def _keys(window: Window) -> str:
    match _first_key_table(window):
        case "none":
            return "none: a plain reduction in registers"
        case "dense":
            return (
                "dense array while their range is small for the rows seen, else an open-addressing hash table"
            )
        case _:
            return "open-addressing hash table, since a key is computed or a float"


def _first_key_table(window: Window) -> str:
    program = CompiledWindow(window, KernelFactory(Interpreted), preferred(window.body.domain))
    if not program.keys:
        return "none"
    whole = all(key.column is not None and (key.text or not _is_float(str(key.type))) for key in program.keys)
    return "dense" if whole else "hash"


def _is_float(name: str) -> bool:
    return name in ("float", "double", "halffloat")


def _partial(kind: str, args: tuple[ex.Expr, ...], where: ex.Expr | None) -> str:
    text = f"{kind}({', '.join(map(show_expr, args))})"
    return text if where is None else f"{text} where {show_expr(where)}"


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
