"""Build the matchers of joins that hold rows between pushes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.algorithms.kernel_factory import KernelFactory
from penstock.algorithms.keyed_states.build import CompiledStates, keyed_spec
from penstock.algorithms.keyed_states.kernel import KeyedKernel, KeyedSpec
from penstock.caches import CACHES
from penstock.operators.joins import asof, incremental, incremental_interval, rolling
from penstock.operators.joins.asof import IncrementalAsof
from penstock.operators.joins.build_algorithms import overlapping_windows
from penstock.operators.joins.incremental import (
    HeldSides,
    IncrementalMatcher,
    IncrementalSessionJoin,
    JoinOutput,
)
from penstock.operators.joins.incremental_interval import IncrementalInterval
from penstock.operators.joins.incremental_overlap import IncrementalOverlap
from penstock.operators.joins.kernels.asof import next_rows
from penstock.operators.joins.kernels.interval import interval_join, link_rows
from penstock.operators.joins.kernels.rolling import rolling_join
from penstock.operators.joins.kernels.sessions import session_join
from penstock.operators.joins.partitions import PartitionKernels
from penstock.operators.joins.results import Residual, gives_left_rows
from penstock.operators.joins.rolling import IncrementalRolling
from penstock.operators.joins.sliding import CommonEnds
from penstock.operators.joins.stage import Matcher
from penstock.physical import nodes as ph
from penstock.physical.split_windows import frame_reductions
from penstock.types.windows import InWindow, Session, Within


@dataclass(frozen=True)
class IncrementalParts:
    """What a matcher is made of."""

    op: ph.Join
    node: ph.Node
    sides: tuple[ph.Node, ph.Node]
    keys: tuple[tuple[str, ...], tuple[str, ...]]
    output: JoinOutput
    kernels: PartitionKernels
    kernel_factory: KernelFactory

    def matcher(self, residual: Residual | None, joined: Callable[[], Matcher]) -> IncrementalMatcher:
        """Return the matcher; `joined` makes the one that joins complete sessions."""
        call, op, kernels, output = self.kernel_factory.call, self.op, self.kernels, self.output
        schemas = self.sides[0].schema, self.sides[1].schema
        match op.pairing:
            case ph.Nearest(direction=direction, tolerance=tolerance, exact=exact):
                sides = HeldSides(schemas, self.keys, kernels, asof.ASOF_KEYS)
                nearest = direction == "nearest"
                waiting = call(("next_rows", nearest, exact), lambda: next_rows(nearest, exact))
                last = kernels.last_before(exact)
                return IncrementalAsof(direction, tolerance, exact, sides, output, last, waiting)
            case Within(lo=lo, hi=hi):
                sides = HeldSides(schemas, self.keys, kernels, incremental_interval.INTERVAL_KEYS)
                pairs = not gives_left_rows(op.how) or residual is not None
                join = call(("interval_join", pairs), lambda: interval_join(pairs))
                link = call("link_rows", link_rows)
                return IncrementalInterval(lo, hi, op.how, residual, sides, output, join, link)
            case InWindow(left=Session(gap=gap)):
                sides = HeldSides(
                    schemas, self.keys, kernels, incremental.JOINED_SESSION_KEYS, null_keys=True
                )
                join = call("session_join", session_join)
                return IncrementalSessionJoin(gap, sides, joined(), join, call("link_rows", link_rows))
            case InWindow() as pairing:
                windows = overlapping_windows(pairing)
                assert isinstance(windows, CommonEnds)
                past, future = windows.reach()
                sides = HeldSides(schemas, self.keys, kernels, incremental_interval.INTERVAL_KEYS)
                join = call(("interval_join", True), lambda: interval_join(True))
                link = call("link_rows", link_rows)
                given = -past, future, op.how, residual, sides, output, join, link
                return IncrementalOverlap(*given, windows=windows)
            case ph.Around(lo=lo, hi=hi, reductions=reductions):
                sides = HeldSides(schemas, self.keys, kernels, rolling.ROLLING_KEYS)
                spec = keyed_spec(
                    sides.stores[1].schema, self.sides[1].clock, (), frame_reductions(reductions)
                )
                states = CompiledStates(self.node.id, spec, _rolling_kernel, self.kernel_factory)
                return IncrementalRolling(lo, hi, sides, states, self.node.schema)
        raise AssertionError(f"{op.pairing} has no lists")


@CACHES.results(most=64)  # a second run of a query finds its kernels
def _rolling_kernel(spec: KeyedSpec, variant: str) -> KeyedKernel:
    return rolling_join(spec)
