"""Measure this machine once, and grow the trees that `auto` decides by (`penstock doctor --calibrate`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from penstock.bench.iawj.field import JoinField, Measured, measure
from penstock.bench.iawj.sweeps import calibration
from penstock.runtime.adapt.grow import grow
from penstock.runtime.adapt.tree import TARGETS, Tree

Progress = Callable[[str], None]
REPEAT = 2


@dataclass(frozen=True)
class Calibration:
    """What was measured, streaming and at rest, and the trees that came of it."""

    measured: Sequence[Measured]
    trees: Mapping[str, Tree]


def calibrate(
    fields: Sequence[JoinField], scale: float, progress: Progress, repeat: int = REPEAT
) -> Calibration:
    """Run all algorithms over the points of calibration, streaming and at rest, on each number of threads."""
    measured: list[Measured] = []
    for name, micro in calibration(scale):
        progress(name)
        workload = micro.make(name)
        measured += [
            measure(field, each, repeat) for field in fields for each in (workload, workload.at_rest())
        ]
    return Calibration(measured, trees_of(measured))


def trees_of(measured: Sequence[Measured]) -> dict[str, Tree]:
    """A tree for each target."""
    return {target: grow([each.point(target) for each in measured]) for target in TARGETS}
