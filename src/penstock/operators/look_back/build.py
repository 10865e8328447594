"""Build the stage of look-backs over sorted partitions, and bind its kernels."""

from __future__ import annotations

from collections.abc import Callable

from penstock.algorithms.kernel_factory import KernelFactory
from penstock.algorithms.sorted_partitions.build import (
    FrameReducers,
    partition_layout,
    shape_of_look_backs,
)
from penstock.algorithms.sorted_partitions.frame_kernels import look_back_frames
from penstock.algorithms.sorted_partitions.results import Reductions
from penstock.operators.look_back.build_keyed import keyed_look_back
from penstock.operators.look_back.frames import LookBackFraming
from penstock.operators.look_back.results import LookBackResults
from penstock.operators.sorted_windows.stage import SortedWindowStage
from penstock.physical import nodes as ph
from penstock.physical.choose_states import FEW_THREADS, STATES
from penstock.physical.split_windows import columns_of, frame_reductions
from penstock.runtime.kernels import Call
from penstock.runtime.session import Context
from penstock.runtime.stage import Stage
from penstock.types.windows import LookBack


def look_back(
    op: ph.LookBack, node: ph.Node, given: ph.Node, kernel_factory: KernelFactory
) -> Callable[[Context], Stage]:
    """Return the constructor of a `LookBack` stage."""
    sorted_rows = _over_rows(op, node, given, kernel_factory)
    if op.held != STATES:
        return sorted_rows
    incremental = keyed_look_back(op, node, given, kernel_factory)

    def make(context: Context) -> Stage:
        shared = context.bounded and context.engine.workers > FEW_THREADS  # the assumption of the choice
        return sorted_rows(context) if shared else incremental(context)

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
        return SortedWindowStage(framing, layout, results, False, given.schema, time, time, context.metrics)

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
