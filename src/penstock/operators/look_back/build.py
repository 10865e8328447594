"""Build the stages of look-backs, over sorted partitions or with a running aggregate per key, and bind their kernels."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from penstock.algorithms.kernel_factory import KernelFactory
from penstock.algorithms.keyed_states.build import CompiledStates, keyed_spec
from penstock.algorithms.keyed_states.kernel import KeyedKernel, KeyedSpec
from penstock.algorithms.sorted_partitions.build import (
    FrameReducers,
    partition_layout,
    shape_of_look_backs,
    sorter,
)
from penstock.algorithms.sorted_partitions.frame_kernels import look_back_frames
from penstock.algorithms.sorted_partitions.results import Reductions
from penstock.algorithms.sorted_partitions.rows_ahead import RowsAhead
from penstock.caches import CACHES
from penstock.operators.look_back.at_rest import LookBackAtRest
from penstock.operators.look_back.frames import LookBackFraming, LookBackResults
from penstock.operators.look_back.incremental import HOLDING, RESTORING, IncrementalLookBack
from penstock.operators.look_back.kernels import keyed_kernel
from penstock.operators.sorted_windows.stage import SortedWindowStage
from penstock.physical import nodes as ph
from penstock.physical.choose_window import FEW_THREADS, HELD_ROWS, HELD_STATES
from penstock.physical.split_windows import columns_of, frame_reductions
from penstock.runtime.kernels import Call
from penstock.runtime.session import Context
from penstock.runtime.stage import Stage
from penstock.types.windows import LookBack


def keyed_look_back(
    op: ph.LookBack, node: ph.Node, given: ph.Node, kernel_factory: KernelFactory
) -> Callable[[Context], Stage]:
    """Return the constructor of the stage of look-backs."""
    states = _states(op, node, given, kernel_factory)
    places = [places for span in range(len(op.spans)) if (places := _places(op, span))]
    keys = [given.schema.field(name) for name in op.keys]
    sort = sorter(kernel_factory)
    return lambda context: IncrementalLookBack(
        states, places, keys, node.schema, given.schema, given.clock, sort, context.metrics
    )


def start_kernel(op: ph.LookBack, node: ph.Node, given: ph.Node, kernel_factory: KernelFactory) -> None:
    """Build the kernels a run starts with."""
    for states in _states(op, node, given, kernel_factory):
        states.kernel(frozenset(), HOLDING)


def _places(op: ph.LookBack, span: int) -> list[int]:
    """The places of a span's reductions among all."""
    return [place for place, reduction in enumerate(op.reductions) if reduction.span == span]


def _states(
    op: ph.LookBack, node: ph.Node, given: ph.Node, kernel_factory: KernelFactory
) -> list[CompiledStates]:
    """The states of each span that is reduced."""
    reductions = frame_reductions(op.reductions)
    found = []
    for number, span in enumerate(op.spans):
        own = [reductions[place] for place in _places(op, number)]
        if not own:
            continue
        spec = keyed_spec(given.schema, given.clock, op.keys, own)
        found.append(CompiledStates(f"{node.id}.{number}", spec, partial(_look_back, span), kernel_factory))
    return found


@CACHES.results(most=64)  # a second run of a query finds its kernels
def _look_back(span: LookBack, spec: KeyedSpec, variant: str) -> KeyedKernel:
    return keyed_kernel(spec, span, restore=variant == RESTORING)


def look_back(
    op: ph.LookBack, node: ph.Node, given: ph.Node, kernel_factory: KernelFactory
) -> Callable[[Context], Stage]:
    """Return the constructor of a `LookBack` stage."""
    sorted_rows = _over_rows(op, node, given, kernel_factory)
    if op.held != HELD_STATES:
        return sorted_rows
    incremental = keyed_look_back(op, node, given, kernel_factory)

    def make(context: Context) -> Stage:
        if not context.bounded:
            return incremental(context)
        engine = context.engine
        pinned = (engine.assume or {}).get("held")
        if pinned == HELD_ROWS or (
            pinned is None and engine.workers > FEW_THREADS
        ):  # the assumption of the choice
            return sorted_rows(context)
        if pinned is not None or not engine.adaptive:
            return incremental(context)
        stages: dict[ph.Held, Callable[[], Stage]] = {
            HELD_STATES: partial(incremental, context),
            HELD_ROWS: partial(sorted_rows, context),
        }
        return LookBackAtRest(node, stages, context.metrics.adaptations)

    return make


def _over_rows(
    op: ph.LookBack, node: ph.Node, given: ph.Node, kernel_factory: KernelFactory
) -> Callable[[Context], SortedWindowStage]:
    columns, time = columns_of(op.reductions), given.clock
    over = reducers(op, given, kernel_factory)

    def make(context: Context) -> SortedWindowStage:
        threads = context.engine.workers
        layout = partition_layout(op.keys, columns, kernel_factory, threads)
        framing = LookBackFraming(op.spans, tuple(_ends(span, kernel_factory) for span in op.spans))
        reductions = Reductions(over.reducers(threads), len(op.reductions))
        results = LookBackResults(framing, reductions, node.schema)
        in_runs = not context.bounded and time.period is None
        runs = RowsAhead(given.schema, layout.sorter) if in_runs else None
        rows = given.schema, time, time, context.metrics
        return SortedWindowStage(framing, layout, results, False, *rows, runs)

    return make


def reducers(op: ph.LookBack, given: ph.Node, kernel_factory: KernelFactory) -> FrameReducers:
    """Return the reducers of the node's reductions."""
    return FrameReducers(
        given.schema,
        given.clock.stored,
        frame_reductions(op.reductions),
        tuple(reduction.algorithm for reduction in op.reductions),
        shape_of_look_backs(op.spans),
        kernel_factory,
    )


def _ends(span: LookBack, kernel_factory: KernelFactory) -> Call:
    oldest, newest = span.closed in ("left", "both"), span.closed in ("right", "both")
    ends = oldest, newest, span.delay > 0
    return kernel_factory.call(("look_back_frames", *ends), lambda: look_back_frames(*ends))
