"""Build the stage of a look-back that keeps a running aggregate per key, and bind its kernels."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial

from penstock.algorithms.kernel_factory import KernelFactory
from penstock.algorithms.keyed_states.build import CompiledStates, keyed_spec
from penstock.algorithms.keyed_states.kernel import KeyedKernel, KeyedSpec
from penstock.algorithms.sorted_partitions.build import sorter
from penstock.operators.look_back.incremental import HOLDING, RESTORING, IncrementalLookBack
from penstock.operators.look_back.kernels.look_back import look_back
from penstock.physical import nodes as ph
from penstock.physical.split_windows import frame_reductions
from penstock.runtime.session import Context
from penstock.runtime.stage import Stage
from penstock.types.windows import LookBack


def keyed_look_back(
    op: ph.LookBack, node: ph.Node, given: ph.Node, kernel_factory: KernelFactory
) -> Callable[[Context], Stage]:
    """Return the constructor of the stage of look-backs."""
    states = _states(op, node, given, kernel_factory)
    places = [places for span in range(len(op.spans)) if (places := _places(op, span))]
    sort = sorter(kernel_factory)
    return lambda context: IncrementalLookBack(
        states, places, node.schema, given.schema, given.clock, sort, context.metrics
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


@lru_cache(maxsize=64)  # a second run of a query finds its kernels
def _look_back(span: LookBack, spec: KeyedSpec, variant: str) -> KeyedKernel:
    return look_back(spec, span, restore=variant == RESTORING)
