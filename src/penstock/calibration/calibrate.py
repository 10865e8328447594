"""Measure this machine once, and grow the trees that `auto` decides by (`penstock doctor --calibrate`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from penstock.algorithms.joins.adapt.train_tree import train_tree
from penstock.algorithms.joins.adapt.tree import IN_ORDER, TARGETS, Tree
from penstock.calibration.field import JoinField, Measured, measure
from penstock.calibration.ordered import calibration_in_order, measure_ordered
from penstock.calibration.points import calibration

Progress = Callable[[str], None]
CALIBRATION_REPEAT = 2
MORE_IN_ORDER = 2
"""Lists of pairs are short, so their points can be measured a little more often."""


@dataclass(frozen=True)
class Calibration:
    """What was measured, streaming and at rest, and the trees that came of it."""

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
