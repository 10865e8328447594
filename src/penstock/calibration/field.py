"""The eight algorithms, ready to run: joiners that share their compiled kernels."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.algorithms.joins.adapt.train_tree import Point
from penstock.algorithms.joins.adapt.window_statistics import Observed, observe
from penstock.algorithms.joins.eager import Eager
from penstock.algorithms.joins.lazy import Lazy
from penstock.algorithms.joins.memory import Kernels
from penstock.algorithms.kernel_factory import KernelFactory
from penstock.calibration.simulate import Clock, SimulatedRun, later_rows, simulate
from penstock.calibration.workloads import Workload
from penstock.codegen.cache import KernelCache
from penstock.codegen.native import compile_kernel
from penstock.operators.joins.build import partition_kernels
from penstock.operators.joins.build_algorithms import EAGER_BUILDERS, LAZY_BUILDERS, in_order, kernels_of
from penstock.operators.joins.ordered_output import Ordered

FIELD_REPEAT = 3


@dataclass(frozen=True)
class JoinField:
    """Joiners by name. One thread is timed by its processor time, which neighbours disturb least."""

    kernels: Kernels
    joiners: Mapping[str, Lazy | Eager]
    ordered: Mapping[str, Ordered]
    threads: int

    @property
    def clock(self) -> Clock:
        return time.process_time if self.threads == 1 else time.perf_counter


def open_join_field(threads: int) -> JoinField:
    """Make all joiners; kernels are compiled when first used, with full effort."""
    cache = KernelCache(None)
    kernel_factory = KernelFactory(lambda kernel: compile_kernel(kernel, cache))
    kernels = kernels_of(kernel_factory)
    made: dict[str, Any] = {name: make(kernels) for name, make in (LAZY_BUILDERS | EAGER_BUILDERS).items()}
    ordered = {
        name: in_order(name, kernel_factory, partition_kernels(kernel_factory, threads)) for name in made
    }
    field = JoinField(kernels, made, ordered, threads)
    for run in made.values():
        if isinstance(run, Lazy):
            run.clock = field.clock
    return field


@dataclass(frozen=True)
class Measured:
    """A workload, what `auto` could see of it, and the run of each algorithm."""

    workload: str
    seen: Observed
    matches: int
    runs: Mapping[str, SimulatedRun]

    def costs(self, target: str) -> dict[str, float]:
        """What each algorithm cost, in milliseconds: less is better for all three targets."""
        return {name: cost(run, target) for name, run in self.runs.items()}

    def point(self, target: str) -> Point:
        return Point(self.seen, self.costs(target))

    @property
    def agree(self) -> bool:
        return all(run.matches == self.matches for run in self.runs.values())


RESOLUTION = 1.0
"""Milliseconds: rows arrive in ticks, so no waiting shorter than one is told from another."""


def cost(run: SimulatedRun, target: str) -> float:
    """The figure to keep low."""
    if target == "throughput":
        return max(run.finished, 1e-3)
    return max(run.latency() if target == "latency" else run.time_to(0.5), RESOLUTION)


def measure(
    field: JoinField, workload: Workload, repeat: int = FIELD_REPEAT, names: Sequence[str] = ()
) -> Measured:
    """Run every algorithm `repeat` times, in turns, and keep each one's best."""
    later = later_rows(_counter(field), workload)
    runs: dict[str, SimulatedRun] = {}
    chosen = [field.joiners[name] for name in names or field.joiners]
    for turn in range(repeat):
        for joiner in chosen if turn % 2 == 0 else reversed(chosen):
            keep_best(runs, simulate(joiner, workload, later, field.threads, field.clock))
    if field.threads == 1:
        share_twins(runs)
    seen = observe(workload.left.codes, workload.right.codes, workload.window_ms, field.threads)
    return Measured(
        workload.name, seen, int(later.sum()), {joiner.name: runs[joiner.name] for joiner in chosen}
    )


def share_twins(runs: dict[str, SimulatedRun]) -> None:
    """Give both schemes the better run: with one worker there is nothing to distribute, and jm and jb are one program."""
    for name in ("shj", "pmj"):
        twins = [runs[twin] for twin in (f"{name}_jm", f"{name}_jb") if twin in runs]
        if twins:
            best = min(twins, key=lambda run: run.busy)
            runs |= {twin.algorithm: replace(best, algorithm=twin.algorithm) for twin in twins}


def keep_best(runs: dict[str, SimulatedRun], run: SimulatedRun) -> None:
    """Of several runs of an algorithm, the one that was least disturbed."""
    known = runs.get(run.algorithm)
    if known is None or run.busy < known.busy:
        runs[run.algorithm] = run


def _counter(field: JoinField) -> Eager:
    counter = field.joiners["shj_jm"]
    assert isinstance(counter, Eager)
    return counter
