"""Measure this machine once, and train the decision trees of `algorithm="auto"` (`penstock doctor --calibrate`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.algorithms.joins.adapt.train_tree import train_tree
from penstock.algorithms.joins.adapt.tree import IN_ORDER, TARGETS, Tree
from penstock.algorithms.joins.adapt.window_statistics import observe
from penstock.calibration.simulate import JoinField, Measured, SimulatedRun, keep_best, measure, share_twins
from penstock.calibration.workloads import Micro, Workload

# --- The workloads that the decision trees of the joins are trained on.


def scaled(micro: Micro, scale: float) -> Micro:
    """The same over a shorter window. Rates stay, since they decide whether an eager algorithm keeps up."""
    return replace(micro, window_ms=max(int(micro.window_ms * scale), 1))


def calibration(scale: float = 1.0) -> Iterator[tuple[str, Micro]]:
    """Points to train on: none is on a figure or drawn with the seed of one."""
    for place, micro in enumerate(_calibration_points()):
        yield f"calibration {place + 1}", replace(scaled(micro, scale), seed=1000 + place)


def _calibration_points() -> Sequence[Micro]:
    return (
        *(Micro(rate, rate, window_ms=700) for rate in (60, 900, 2300, 4700, 9000, 17000)),
        # An eager join falls behind somewhere here, and a table outgrows the cache: a hole would be expensive.
        *(Micro(rate, rate, window_ms=700) for rate in (20500, 23500, 27500, 32000, 45000)),
        *(Micro(rate, rate, window_ms=700, scatter=True) for rate in (60, 900, 4700, 15000)),
        *(Micro(1100, rate, window_ms=900) for rate in (2500, 9000, 20000, 32000)),
        *(Micro(5000, 5000, duplicates=n, window_ms=800) for n in (4, 30, 300)),
        *(Micro(9000, 9000, key_skew=z, window_ms=800) for z in (0.6, 1.0, 1.4)),
        *(Micro(2000, 2000, time_skew=z, window_ms=900) for z in (0.7, 1.4)),
        *(Micro(14000, 14000, window_ms=w) for w in (400, 1700)),
        Micro(4000, 4000, duplicates=20, scatter=True, window_ms=600),
        Micro(1300, 15000, scatter=True, window_ms=600),
    )


# --- Measure pairs in the order of results, as `collect` returns them: the cost of an algorithm when its pairs are listed and sorted.


def measure_ordered(field: JoinField, workload: Workload, repeat: int) -> Measured:
    """List the pairs of a window by every algorithm, in turns, and keep the best run of each."""
    runs: dict[str, SimulatedRun] = {}
    for turn in range(repeat):
        for name in list(field.ordered)[:: 1 if turn % 2 == 0 else -1]:
            keep_best(runs, _listed(field, name, workload))
    if field.threads == 1:
        share_twins(runs)
    codes = workload.left.codes, workload.right.codes
    seen = observe(*codes, 0.0, field.threads)
    return Measured(workload.name, seen, runs["npj"].matches, {name: runs[name] for name in field.ordered})


def _listed(field: JoinField, name: str, workload: Workload) -> SimulatedRun:
    begin = field.clock()
    own, _ = field.ordered[name].ordered(workload.left.codes, workload.right.codes, field.threads)
    took = (field.clock() - begin) * 1e3
    return SimulatedRun(name, workload.name, workload.rows, len(own), finished=took, busy=took)


def calibration_in_order(scale: float = 1.0) -> Iterator[tuple[str, Micro]]:
    """Points to train on: few pairs per row, since all pairs are listed."""
    for place, micro in enumerate(_ordered_points()):
        yield f"calibration in order {place + 1}", replace(scaled(micro, scale), seed=2000 + place)


# npj looks its rows up all over a table, so a neighbour can make it three times as slow: one point was not enough.
_UNEVEN = ((90, 2500), (2500, 90), (60, 1100), (1100, 60), (250, 1900), (1900, 250))


def _ordered_points() -> Sequence[Micro]:
    both = (False, True)
    return (
        *(Micro(n, n, scatter=far, window_ms=700) for n in (30, 150, 350, 700, 1500, 3500) for far in both),
        *(Micro(900, 900, duplicates=n, scatter=far, window_ms=600) for n in (3, 12) for far in both),
        *(Micro(*rates, scatter=far, window_ms=900) for rates in _UNEVEN for far in both),
        *(Micro(300, 300, key_skew=z, scatter=True, window_ms=500) for z in (0.4, 0.8)),
    )


Progress = Callable[[str], None]
CALIBRATION_REPEAT = 2
MORE_IN_ORDER = 2
"""Lists of pairs are short, so their points can be measured a little more often."""


@dataclass(frozen=True)
class Calibration:
    """The measurements, streaming and at rest, and the trees trained on them."""

    measured: Sequence[Measured]
    ordered: Sequence[Measured]
    trees: Mapping[str, Tree]


def calibrate(
    fields: Sequence[JoinField], scale: float, progress: Progress, repeat: int = CALIBRATION_REPEAT
) -> Calibration:
    """Run all algorithms over the points of calibration, streaming and at rest, on each number of threads."""
    measured: list[Measured] = []
    for name, micro in calibration(scale):
        progress(name)
        workload = micro.make(name)
        measured += [
            measure(field, variant, repeat) for field in fields for variant in (workload, workload.at_rest())
        ]
    ordered = list(_in_order(fields, scale, progress, repeat))
    return Calibration(measured, ordered, trees_of(measured, ordered))


def _in_order(
    fields: Sequence[JoinField], scale: float, progress: Progress, repeat: int
) -> Iterator[Measured]:
    for name, micro in calibration_in_order(scale):
        progress(name)
        workload = micro.make(name).at_rest()
        yield from (measure_ordered(field, workload, repeat + MORE_IN_ORDER) for field in fields)


def trees_of(measured: Sequence[Measured], ordered: Sequence[Measured]) -> dict[str, Tree]:
    """A tree for each target, and that of pairs in order."""
    trees = {
        target: train_tree([measurement.point(target) for measurement in measured]) for target in TARGETS
    }
    return {**trees, IN_ORDER: train_tree([measurement.point("throughput") for measurement in ordered])}
