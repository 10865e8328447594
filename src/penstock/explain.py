"""Show a compiled query at any stage of its way, and why it runs as it does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.expr import nodes as ex
from penstock.expr.show import show as show_expr
from penstock.ir import nodes as ir
from penstock.ir.show import show as show_ir
from penstock.loop.nodes import Kernel
from penstock.loop.show import show as show_loop
from penstock.lower.window_program import Window
from penstock.passes.resolve_boundaries import boundaries
from penstock.plan.show import show as show_plan
from penstock.programs import CompiledRows, CompiledWindow, Workshop

if TYPE_CHECKING:
    from penstock.compile import Compiled


def explain(compiled: Compiled, stage: str | None) -> str:
    """Show one stage: plan, ir, passes, loop, llvm or asm; without one, an overview with reasons."""
    match stage:
        case "plan":
            return show_plan(compiled.plan)
        case "ir":
            return show_ir(compiled.program)
        case "passes":
            return _passes(compiled)
        case "loop":
            return "\n\n".join(show_loop(kernel) for kernel in kernels(compiled.program))
        case "llvm" | "asm":
            return "\n\n".join(_machine_text(kernel, stage) for kernel in kernels(compiled.program))
        case _:
            return _overview(compiled)


def kernels(program: ir.Program) -> Iterator[Kernel]:
    """The kernels a run starts with, before data has changed any assumption."""
    for each in program.objects:
        match each.body:
            case ir.Reduce() as body:
                window = Window(body, program[body.source], each)
                yield window.fold(_first_key_table(window), frozenset(), wide=False).kernel
                sliding = "subtract-on-evict" if _overlap(window) > 1 else "one pane"
                yield window.emit(frozenset(), False, sliding, _first_key_table(window)).kernel
            case ir.Samples() as body:
                yield from _rows_kernels(body, program[body.source], each)


def _rows_kernels(body: ir.Samples, source: ir.Object, result: ir.Object) -> Iterator[Kernel]:
    rows = CompiledRows(body, source, result, Workshop(lambda kernel: lambda values: 0))
    if rows.filters or any(column.origin == "computed" for column in rows.result):
        yield rows.kernel(frozenset()).kernel


def _machine_text(kernel: Kernel, stage: str) -> str:
    from penstock.codegen.native import assembly_text, llvm_text  # noqa: PLC0415 - loads LLVM

    return llvm_text(kernel) if stage == "llvm" else assembly_text(kernel)


def _passes(compiled: Compiled) -> str:
    """Every pass that changed something, with what it made."""
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
    for each in compiled.program.objects:
        if isinstance(each.body, ir.Reduce):
            window = Window(each.body, compiled.program[each.body.source], each)
            parts.append(f"~{each.name} runs as\n{_indented(_reasons(window))}")
    needs = [f"{name}: {need}" for name, need in boundaries(compiled.program).items()]
    parts.append("boundaries\n" + _indented("\n".join(needs)))
    return "\n\n".join(parts)


def _changes(compiled: Compiled) -> str:
    """Name the passes that changed something."""
    before, names = compiled.raw, []
    for name, after in compiled.trace:
        names += [name] if after != before else []
        before = after
    return ", ".join(dict.fromkeys(names)) or "no pass had anything to do"


def _reasons(window: Window) -> str:
    size, every, _ = window.grid
    remembered = [_partial(each.kind, each.args, each.where) for each in window.partials(frozenset())]
    lines = [
        f"one fused loop over ~{window.source.name}: filter, keys and aggregates in a single pass",
        f"panes of {size} and {every} ticks",
        f"windows: {_sliding(_overlap(window))}",
        f"keys: {_keys(window)}",
        f"a pane remembers: {', '.join(remembered)} (as long as no column is seen to hold nulls)",
        "integer sums: 64 bits, every addition checked; 128 bits from the first one that would not fit",
    ]
    for expr, name in window.host.fields.items():
        lines.append(f"computed by Arrow before the loop: {name} = {show_expr(expr)}")
    return "\n".join(lines)


def _overlap(window: Window) -> int:
    size, every, _ = window.grid
    return -(-size // every)


def _sliding(panes: int) -> str:
    if panes == 1:
        return "one pane each, read where it lies"
    return f"{panes} panes each, merged again for every window (recompute), all keys side by side"


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
    program = CompiledWindow(window, Workshop(lambda kernel: lambda values: 0))
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
