"""Build the stages of windows that keep partial states per key, and bind their kernels."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial

from penstock.algorithms.kernel_factory import KernelFactory
from penstock.algorithms.keyed_states.build import CompiledStates, keyed_spec
from penstock.algorithms.keyed_states.kernel import KeyedKernel, KeyedSpec
from penstock.algorithms.keyed_states.results import KeyedResults
from penstock.algorithms.sorted_partitions.build import sorter
from penstock.operators.sorted_windows.incremental_counts import IncrementalCounts
from penstock.operators.sorted_windows.incremental_sessions import JUDGING, TRUSTING, IncrementalSessions
from penstock.operators.sorted_windows.kernels.counts import counts
from penstock.operators.sorted_windows.kernels.sessions import sessions
from penstock.physical import nodes as ph
from penstock.physical.split_windows import frame_reductions
from penstock.runtime.session import Context
from penstock.runtime.stage import Stage
from penstock.types.windows import Count, Session


def keyed_windows(
    op: ph.SortedWindows, node: ph.Node, given: ph.Node, kernel_factory: KernelFactory
) -> Callable[[Context], Stage]:
    """Return the constructor of the stage of sessions or windows of rows."""
    states, sort = _states(op, node, given, kernel_factory), sorter(kernel_factory)
    match op.window:
        case Session(gap=gap):
            results = KeyedResults(node.schema, gap, sort, op.by_key)
            return lambda context: IncrementalSessions(states, results, gap, given.schema, context.metrics)
        case Count() as window:
            results = KeyedResults(node.schema, 1, sort, op.by_key)
            return lambda context: IncrementalCounts(
                states, results, window, given.schema, given.clock, context.metrics
            )
    raise AssertionError(f"{op.window} windows have no state per key")


def start_kernel(op: ph.SortedWindows, node: ph.Node, given: ph.Node, kernel_factory: KernelFactory) -> None:
    """Build the kernel a run starts with."""
    _states(op, node, given, kernel_factory).kernel(frozenset(), TRUSTING)


def _states(
    op: ph.SortedWindows, node: ph.Node, given: ph.Node, kernel_factory: KernelFactory
) -> CompiledStates:
    spec = keyed_spec(given.schema, given.clock, op.keys, frame_reductions(op.reductions))
    build = partial(_counts, op.window) if isinstance(op.window, Count) else _sessions
    return CompiledStates(node.id, spec, build, kernel_factory)


@lru_cache(maxsize=64)  # a second run of a query finds its kernels
def _sessions(spec: KeyedSpec, variant: str) -> KeyedKernel:
    return sessions(spec, judges=variant == JUDGING)


@lru_cache(maxsize=64)
def _counts(window: Count, spec: KeyedSpec, variant: str) -> KeyedKernel:
    return counts(spec, window)
