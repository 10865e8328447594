"""Run one algorithm on one workload, on a simulated clock that skips waiting.

Work is timed for real; arrival is not waited for. When work is finished the clock stands where it would stand,
and if no row has come by then it jumps to the next one. A window of a second is so measured in as
long as its join takes, and no other program's noise is taken for waiting.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from penstock.algorithms.joins.adapt.train_tree import Point
from penstock.algorithms.joins.adapt.window_statistics import Observed, observe
from penstock.algorithms.joins.eager import Eager
from penstock.algorithms.joins.joiner import Kernels, Lazy
from penstock.algorithms.kernel_factory import KernelFactory
from penstock.calibration.workloads import Workload
from penstock.codegen.cache import KernelCache
from penstock.codegen.native import compile_kernel
from penstock.operators.joins.algorithm_pairs import Ordered
from penstock.operators.joins.build import partition_kernels
from penstock.operators.joins.build_algorithms import EAGER_BUILDERS, LAZY_BUILDERS, in_order, kernels_of

EAGER_CHUNK = (
    1 << 16
)  # rows of a side that an eager algorithm takes at most before it turns to the other side
Clock = Callable[[], float]


@dataclass(frozen=True)
class EmittedMatches:
    """Matches emitted between two times (ms), counted in `counts` by the tick in which their later row arrived."""

    begin: float
    end: float
    ticks: np.ndarray
    counts: np.ndarray


@dataclass
class SimulatedRun:
    """The result of a simulation: emissions in order, and the duration of each phase (ms)."""

    algorithm: str
    workload: str
    rows: int
    matches: int = 0
    finished: float = 0.0
    busy: float = 0.0
    emissions: list[EmittedMatches] = field(default_factory=list)
    phases: dict[str, float] = field(default_factory=dict)

    @property
    def throughput(self) -> float:
        """Rows per millisecond, until the last match."""
        return self.rows / max(self.finished, 1e-6)

    def latency(self, quantile: float = 0.95) -> float:
        """A quantile of the delay of a match behind its later row (ms)."""
        waits = np.concatenate([[0.0], *(emission.end - emission.ticks for emission in self.emissions)])
        counts = np.concatenate([[0], *(emission.counts for emission in self.emissions)])
        order = np.argsort(waits)
        reached = np.searchsorted(np.cumsum(counts[order]), quantile * counts.sum())
        return max(float(waits[order][min(reached, len(waits) - 1)]), 0.0)

    def progress(self) -> tuple[np.ndarray, np.ndarray]:
        """Times (ms), and the share of the matches that was emitted by then."""
        times = [at for emission in self.emissions for at in (emission.begin, emission.end)]
        given = np.cumsum([part for emission in self.emissions for part in (0, emission.counts.sum())])
        return np.array([0.0, *times]), np.array([0.0, *given / max(self.matches, 1)])

    def time_to(self, part: float) -> float:
        """The time at which this share of the matches had been emitted (ms)."""
        if not self.matches:
            return self.finished
        times, given = self.progress()
        last = min(int(np.searchsorted(given, part)), len(given) - 1)
        first = max(last - 1, 0)
        return float(np.interp(part, given[[first, last]], times[[first, last]]))


def simulate(
    joiner: Lazy | Eager,
    workload: Workload,
    later: np.ndarray,
    threads: int = 1,
    clock: Clock = time.perf_counter,
) -> SimulatedRun:
    """Run a workload. `later` holds, for each tick, the number of matches whose later row arrives in it."""
    run = SimulatedRun(joiner.name, workload.name, workload.rows)
    if isinstance(joiner, Lazy):
        _lazily(joiner, workload, later, threads, clock, run)
    else:
        _eagerly(joiner, workload, later, threads, clock, run)
    return run


def _lazily(
    joiner: Lazy, workload: Workload, later: np.ndarray, threads: int, clock: Clock, run: SimulatedRun
) -> None:
    begin = clock()
    matches = joiner.join(workload.left.codes, workload.right.codes, "count", threads)
    took = (clock() - begin) * 1e3
    assert isinstance(matches, int)
    run.phases = {name: seconds * 1e3 for name, seconds in joiner.seconds.items()}
    run.matches, run.busy, run.finished = matches, took, workload.window_ms + took
    probing = run.phases.get("probe", 0.0)
    ticks = np.arange(len(later))
    run.emissions.append(EmittedMatches(run.finished - min(probing, took), run.finished, ticks, later))
    run.phases["wait"] = float(workload.window_ms)


def _eagerly(
    joiner: Eager, workload: Workload, later: np.ndarray, threads: int, clock: Clock, run: SimulatedRun
) -> None:
    window = joiner.open(threads, "count")
    left_over = later.astype(np.float64)
    sides = (workload.left, workload.right)
    taken, tick, now, since = [0, 0], 0, 0.0, 0
    waited = 0.0
    while any(at < side.rows for at, side in zip(taken, sides, strict=True)):
        tick = max(tick, min(int(now), len(later) - 1))
        there = [int(side.arrived[min(tick, len(side.arrived) - 1)]) for side in sides]
        if there == taken:
            waited += max(tick + 1 - now, 0.0)
            tick, now = tick + 1, max(now, float(tick + 1))
            continue
        found, took = _push(window, sides, taken, there, clock)
        now += took
        run.busy += took
        since = _note(run, left_over, found, (now - took, now), (since, tick + 1))
    begin = clock()
    rest = window.finish()
    took = (clock() - begin) * 1e3
    assert isinstance(rest, int)
    run.busy, run.finished = run.busy + took, max(now, float(workload.window_ms)) + took
    run.matches += rest
    if rest:
        ended = EmittedMatches(
            run.finished - took, run.finished, np.arange(len(later)), np.maximum(left_over, 0)
        )
        run.emissions.append(ended)
    elif run.emissions:
        run.finished = run.emissions[-1].end
    run.phases = {"wait": waited, "push": run.busy - took, "merge": took}


def _push(
    window: Any, sides: tuple[Any, Any], taken: list[int], there: list[int], clock: Clock
) -> tuple[int, float]:
    """Push the rows of both sides that have arrived, at most a chunk; return the matches and the milliseconds."""
    pieces = []
    for side in (0, 1):
        end = min(there[side], taken[side] + EAGER_CHUNK)
        pieces.append((side, sides[side].codes[taken[side] : end]))
        taken[side] = end
    begin = clock()
    found = sum(window.push(side, piece) for side, piece in pieces if len(piece))
    return int(found), (clock() - begin) * 1e3


def _note(
    run: SimulatedRun, left_over: np.ndarray, found: int, span: tuple[float, float], ticks: tuple[int, int]
) -> int:
    """Record matches, and distribute them over the ticks since the last ones by the matches left there."""
    if not found:
        return ticks[0]
    first = min(ticks[0], ticks[1] - 1)
    shares = left_over[first : ticks[1]]
    total = shares.sum()
    counts = shares * min(found / total, 1.0) if total > 0 else np.full(len(shares), found / len(shares))
    left_over[first : ticks[1]] -= counts
    run.matches += found
    run.emissions.append(EmittedMatches(*span, np.arange(first, ticks[1]), counts))
    return ticks[1] - 1


def later_rows(joiner: Eager, workload: Workload) -> np.ndarray:
    """For each tick, the number of matches whose later row arrives in it."""
    window = joiner.open(1, "count")
    found, taken = [], [0, 0]
    sides = (workload.left, workload.right)
    for tick in range(max(len(side.arrived) for side in sides)):
        total = 0
        for place, side in enumerate(sides):
            end = int(side.arrived[min(tick, len(side.arrived) - 1)])
            if end > taken[place]:
                pushed = window.push(place, side.codes[taken[place] : end])
                assert isinstance(pushed, int)
                total, taken[place] = total + pushed, end
        found.append(total)
    window.finish()
    return np.array(found, np.int64)


# --- The eight algorithms: joiners that share their compiled kernels.

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
    """A workload, the statistics of it that `auto` reads, and the run of each algorithm."""

    workload: str
    seen: Observed
    matches: int
    runs: Mapping[str, SimulatedRun]

    def costs(self, target: str) -> dict[str, float]:
        """The cost of each algorithm in milliseconds: less is better for all three targets."""
        return {name: cost(run, target) for name, run in self.runs.items()}

    def point(self, target: str) -> Point:
        return Point(self.seen, self.costs(target))

    @property
    def agree(self) -> bool:
        return all(run.matches == self.matches for run in self.runs.values())


RESOLUTION = 1.0
"""Milliseconds: rows arrive in ticks, so shorter waits are indistinguishable."""


def cost(run: SimulatedRun, target: str) -> float:
    """Return the figure that a target minimises."""
    if target == "throughput":
        return max(run.finished, 1e-3)
    return max(run.latency() if target == "latency" else run.time_to(0.5), RESOLUTION)


def measure(
    field: JoinField, workload: Workload, repeat: int = FIELD_REPEAT, names: Sequence[str] = ()
) -> Measured:
    """Run every algorithm `repeat` times, in turns, and keep the best run of each."""
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
    """Assign the better run to both schemes: on one worker nothing is distributed, and jm and jb are one program."""
    for name in ("shj", "pmj"):
        twins = [runs[twin] for twin in (f"{name}_jm", f"{name}_jb") if twin in runs]
        if twins:
            best = min(twins, key=lambda run: run.busy)
            runs |= {twin.algorithm: replace(best, algorithm=twin.algorithm) for twin in twins}


def keep_best(runs: dict[str, SimulatedRun], run: SimulatedRun) -> None:
    """Keep the least disturbed of several runs of an algorithm."""
    known = runs.get(run.algorithm)
    if known is None or run.busy < known.busy:
        runs[run.algorithm] = run


def _counter(field: JoinField) -> Eager:
    counter = field.joiners["shj_jm"]
    assert isinstance(counter, Eager)
    return counter
