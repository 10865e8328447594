"""Build the stage that keeps one row of each value, over all rows or within a time."""

from __future__ import annotations

from collections.abc import Callable

from penstock.algorithms.kernel_factory import KernelFactory
from penstock.algorithms.sorted_partitions.build import indexer, partition_layout, sorter
from penstock.algorithms.sorted_partitions.frame_kernels import run_starts
from penstock.algorithms.sorted_partitions.rows import HeldRows
from penstock.operators.distinct.stage import DistinctRuns, DistinctStage
from penstock.operators.sorted_windows.stage import SortedWindowStage
from penstock.physical import nodes as ph
from penstock.runtime.session import Context
from penstock.runtime.stage import Stage


def distinct(
    op: ph.Distinct, node: ph.Node, given: ph.Node, kernel_factory: KernelFactory
) -> Callable[[Context], Stage]:
    """Return the constructor of a `Distinct` stage."""
    if op.within is not None:
        return _runs(op, op.within, node, kernel_factory)
    sort, keys = sorter(kernel_factory), indexer(kernel_factory)
    return lambda context: DistinctStage(
        HeldRows(given.schema, node.clock, context.metrics),
        op.subset,
        op.keep,
        sort,
        lambda: keys(len(op.subset)),
    )


def _runs(
    op: ph.Distinct, within: int, node: ph.Node, kernel_factory: KernelFactory
) -> Callable[[Context], Stage]:
    """Return the constructor of the stage that keeps one row of each run."""
    runs = DistinctRuns(within, op.keep, kernel_factory.call("run_starts", run_starts))
    repeats_rows = op.keep == "last"  # a run's first row is emitted once the watermark passes it

    def make(context: Context) -> SortedWindowStage:
        layout = partition_layout(op.subset, (), kernel_factory, context.engine.workers)
        time = node.clock
        return SortedWindowStage(runs, layout, runs, repeats_rows, node.schema, time, time, context.metrics)

    return make
