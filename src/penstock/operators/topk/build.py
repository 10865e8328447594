"""Build the stage that keeps the first rows of each window."""

from __future__ import annotations

from collections.abc import Callable

from penstock.algorithms.kernel_factory import KernelFactory
from penstock.algorithms.sorted_partitions.build import sorter
from penstock.algorithms.sorted_partitions.held_rows import HeldRows
from penstock.operators.topk.stage import TopKStage
from penstock.physical import nodes as ph
from penstock.runtime.session import Context
from penstock.types.time import Time
from penstock.types.windows import WINDOW_BOUNDS


def top_k(
    op: ph.TopK, node: ph.Node, given: ph.Node, kernel_factory: KernelFactory
) -> Callable[[Context], TopKStage]:
    """Return the constructor of a `TopK` stage, which releases rows at the end of their window."""
    time, sort = node.clock, sorter(kernel_factory)
    ends = Time(WINDOW_BOUNDS[1], time.type, time.unit, shift=-1)
    return lambda context: TopKStage(
        HeldRows(given.schema, ends, context.metrics), op.k, op.by, op.ties, time, sort
    )
