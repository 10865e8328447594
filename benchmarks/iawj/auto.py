"""How good is `auto`? Its choice at each point of the grid, against the best of the eight."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.figures import Figure
from penstock.algorithms.joins.adapt.tree import IN_ORDER, TARGETS, TREES, JoinChooser
from penstock.calibration.simulate import Measured

NEAR = 1.15
OFTEN = 0.9
WORST = 2.0


@dataclass(frozen=True)
class Choice:
    """What `auto` chose for a workload and a target, and how many times the best's cost it was."""

    workload: str
    target: str
    algorithm: str
    best: str
    ratio: float
    path: tuple[str, ...]


def choices(chooser: JoinChooser, measured: Sequence[Measured]) -> Iterator[Choice]:
    """Decide every point for every target."""
    for measurement in measured:
        for target in TARGETS:
            decision, costs = chooser.choose(measurement.seen, target), measurement.costs(target)
            best = min(costs, key=lambda name: costs[name])
            ratio = costs[decision.algorithm] / costs[best]
            yield Choice(measurement.workload, target, decision.algorithm, best, ratio, decision.path)


def choices_in_order(chooser: JoinChooser, measured: Sequence[Measured]) -> Iterator[Choice]:
    """Decide every point whose pairs are given in order."""
    for measurement in measured:
        chosen, costs = chooser.choose(measurement.seen, IN_ORDER), measurement.costs("throughput")
        best = min(costs, key=lambda name: costs[name])
        ratio = costs[chosen.algorithm] / costs[best]
        yield Choice(measurement.workload, IN_ORDER, chosen.algorithm, best, ratio, chosen.path)


def auto_figures(made: Sequence[Choice]) -> list[Figure]:
    """How often the choice is near the best, and how far off the worst is; over all and for each target."""
    figures = []
    for target in (*TREES, "all targets"):
        ratios = [choice.ratio for choice in made if target in {choice.target, "all targets"}]
        near = sum(ratio <= NEAR for ratio in ratios) / max(len(ratios), 1)
        name = f"auto, {target} ({len(ratios)} points)"
        figures += [
            Figure(f"{name}: within 15 % of the best", near * 100, OFTEN * 100, unit="%"),
            Figure(f"{name}: worst / best", max(ratios, default=1.0), WORST, at_least=False),
        ]
    return figures
