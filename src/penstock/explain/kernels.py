"""List the kernels with which a physical plan starts."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.algorithms.kernel_factory import KernelFactory
from penstock.algorithms.sorted_partitions.build import FrameReducers
from penstock.algorithms.sorted_partitions.reducers import KernelReducer
from penstock.explain.signals import signal_kernels
from penstock.loop.interpret import Interpreted
from penstock.loop.nodes import Kernel
from penstock.operators.look_back import build as look_back
from penstock.operators.look_back import build_keyed as keyed_look_back
from penstock.operators.pane_aggregate import build as pane_aggregate
from penstock.operators.rows import build as rows
from penstock.operators.sorted_windows import build as sorted_windows
from penstock.operators.sorted_windows import build_keyed as keyed_windows
from penstock.physical import nodes as ph


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
