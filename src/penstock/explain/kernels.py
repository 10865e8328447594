"""List the kernels with which a physical plan starts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.algorithms.kernel_factory import KernelFactory
from penstock.algorithms.sorted_partitions.build import FrameReducers
from penstock.algorithms.sorted_partitions.reducers import KernelReducer
from penstock.analysis.boundaries import CarryIn, Finite, Reach, signal_reach
from penstock.expr.show import show as show_expr
from penstock.ir.signals import nodes as temporal
from penstock.ir.signals.scope import MARGIN
from penstock.loop.interpret import Interpreted
from penstock.loop.nodes import Kernel
from penstock.operators.look_back import build as keyed_look_back
from penstock.operators.look_back import build as look_back
from penstock.operators.pane_aggregate import build as pane_aggregate
from penstock.operators.rows import build as rows
from penstock.operators.signals.build import SignalProgram
from penstock.operators.signals.build_reductions import retention
from penstock.operators.signals.positional.kernels import dense
from penstock.operators.sorted_windows import build as keyed_windows
from penstock.operators.sorted_windows import build as sorted_windows
from penstock.physical import nodes as ph
from penstock.runtime.engine import Engine
from penstock.runtime.metrics import Metrics
from penstock.runtime.session import Context
from penstock.types.time import describe_length, describe_reach

# --- Explain how signals run and why, and list their kernels.


def signal_reasons(op: ph.Signals, node: ph.Node, sources: Sequence[ph.Node]) -> list[str]:
    """Return lines on how each temporal object runs, and on the state of a run."""
    if op.evaluation == "positional":
        return _dense_reasons(op, sources)
    evaluation, *reductions = node.choices
    lines = [
        *(f"not by positions: {rejected.reason}" for rejected in evaluation.rejected),
        "points in partitions: samples wait for the watermark, then lie key by key in order of time",
    ]
    for obj in op.program.objects:
        chosen = [choice for choice in reductions if choice.what.startswith(f"~{obj.name} ")]
        lines += _object_reasons(obj, chosen)
    lines += [
        f"the value at an instant needs of ~{source.id}: "
        f"{_reach(signal_reach(op.program, node.inputs, source.id), source.clock.unit)}"
        for source in sources
    ]
    return [*lines, *_release_reasons(node, op.program), f"memory: {_memory(op.program)}"]


def _release_reasons(node: ph.Node, program: temporal.Program) -> list[str]:
    """Return lines on when intervals are emitted, and which results an idle key delays."""
    lasts = all(
        obj.body.hold != temporal.Hold() for obj in program.objects if isinstance(obj.body, temporal.Sampled)
    )
    waiting = [obj.name for obj in program.objects if _needs_the_next(obj.body, lasts)]
    lines = [
        f"~{name} is final up to each key's last sample: a key without further samples delays what follows"
        for name in waiting
    ]
    if temporal.END not in node.schema.names:
        return ["an interval leaves when it begins, as nothing reads its end", *lines]
    delay = (
        "" if lasts else "; a key without further samples delays what follows, unless the signal has lasting="
    )
    return [f"an interval leaves when it ends{delay}", *lines]


def _needs_the_next(body: temporal.Body, lasts: bool) -> bool:
    """Return whether the value after a sample depends on the next sample; it does not once the sample has ended."""
    match body:
        case temporal.Resample(method=method, max_gap=gap):
            return gap is None and not (method == "last" and lasts)
        case temporal.Chop(every=every, durations=durations):
            return (every is not None or durations) and not lasts
        case _:
            return False


def _dense_reasons(op: ph.Signals, sources: Sequence[ph.Node]) -> list[str]:
    found = dense(op.program, [(source.schema, source.clock) for source in sources])
    reach = found.reach.flat
    cut = (
        "one thread, as each result reads earlier ones"
        if found.sequential
        else "cut among threads with a halo"
    )
    return [
        "by positions: time is regular, so a value has a place and no time; one kernel, blocks that stay in the cache",
        f"a result needs {reach.past} positions before and {reach.future} after its own: {cut}",
        f"memory: the last {reach.past + found.lasting + 1} samples of each input",
    ]


def _object_reasons(this: temporal.Object, chosen: Sequence[ph.Choice]) -> list[str]:
    match this.body:
        case temporal.Expression(accesses=accesses, reductions=reductions):
            walks = (
                f"~{this.name}: one loop that jumps from change to change of {_reads(accesses, reductions)}"
            )
            return [walks, *_reduction_reasons(reductions, chosen)]
        case temporal.Feedback(reductions=reductions):
            serial = f"~{this.name}: one sample after the other, as each reads results before it"
            return [serial, *_reduction_reasons(reductions, chosen)]
        case _:
            return []


def _reads(accesses: Sequence[temporal.At], reductions: Sequence[temporal.WindowReduction]) -> str:
    names = dict.fromkeys([*(a.source for a in accesses), *(r.source for r in reductions)])
    return ", ".join(f"~{name}" for name in names)


def _reduction_reasons(
    reductions: Sequence[temporal.WindowReduction], chosen: Sequence[ph.Choice]
) -> list[str]:
    return [
        f"  {over.function}({', '.join(map(show_expr, over.args))}) of ~{over.source}: {choice.taken}; {choice.reason}"
        for over, choice in zip(reductions, chosen, strict=True)
    ]


def _reach(reach: Reach, unit: str | None) -> str:
    match reach:
        case Finite(past=0, future=0):
            return "what holds then, so time can be cut anywhere"
        case Finite(past=past, future=future):
            return f"{describe_reach(past, future, unit, 'it')}, so time can be cut anywhere"
        case CarryIn():
            return "the last sample before it too, however old"
        case _:
            return "everything before it"


def _memory(program: temporal.Program) -> str:
    held = retention(program)
    if held.sequential:
        return "all samples, as a result depends on all before it"
    span = held.past - MARGIN
    holds = ", while it holds" if held.forgets else ""
    if not span:
        return f"the last {f'{held.samples} samples' if held.samples > 1 else 'sample'} of each key{holds}"
    past = describe_length(span, program.time.unit)
    before = "what held before them" if held.forgets else f"{held.samples} before them"
    return f"the samples of {past}, and {before}, for each key"


def signal_kernels(op: ph.Signals, node: ph.Node, sources: Sequence[ph.Node]) -> Iterator[Kernel]:
    """Yield the kernels a run starts with."""
    if op.evaluation == "positional":
        yield (
            dense(op.program, [(source.schema, source.clock) for source in sources])
            .kernel({}, edge=False)
            .kernel
        )
        return
    kernel_factory = KernelFactory(Interpreted)
    made = SignalProgram(op, node, sources, kernel_factory, showing=True)
    made.stage(Context(Engine(threads=1), Metrics(), True))
    yield from kernel_factory.kernels


def kernels(plan: ph.Plan) -> Iterator[Kernel]:
    """Yield the kernels a run starts with, before data has changed any assumption."""
    for node in plan.nodes:
        yield from _kernels(node, plan, KernelFactory(Interpreted))


def _kernels(node: ph.Node, plan: ph.Plan, kernel_factory: KernelFactory) -> Iterator[Kernel]:
    match node.op, plan.inputs_of(node):
        case ph.Rows() as op, (given,):
            yield from rows.start_kernels(op, node, given, kernel_factory)
        case ph.PaneAggregate() as op, (given,):
            yield from pane_aggregate.start_kernels(op, given)
        case ph.SortedWindows(held="states per key") as op, (given,):
            keyed_windows.start_kernel(op, node, given, kernel_factory)
            yield from kernel_factory.kernels
        case ph.LookBack(held="states per key") as op, (given,):
            keyed_look_back.start_kernel(op, node, given, kernel_factory)
            yield from kernel_factory.kernels
        case ph.SortedWindows() as op, (given,):
            yield from _frame_kernels(sorted_windows.reducers(op, given, kernel_factory))
        case ph.LookBack() as op, (given,):
            yield from _frame_kernels(look_back.reducers(op, given, kernel_factory))
        case ph.Signals() as op, sources:
            yield from signal_kernels(op, node, sources)
        case _:
            return


def _frame_kernels(reducers: FrameReducers) -> Iterator[Kernel]:
    """Yield the kernels that reduce frames."""
    for reducer in reducers.reducers(threads=1):
        if isinstance(reducer, KernelReducer):
            (reducer.over.regular or reducer.over.slide)(frozenset())
    yield from reducers.kernel_factory.kernels
