"""Grow a decision tree from measurements: each split is the one after which choosing badly costs least."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from penstock.runtime.adapt.observe import FEATURES, Observed, scale_of
from penstock.runtime.adapt.tree import ALGORITHMS, Leaf, Split, Tree

DEPTH = 5
NOISE, ALLOWED = 0.05, 0.15
GAIN = 0.03  # what a split must save, as a part of the best's cost, summed over the points


@dataclass(frozen=True)
class Point:
    """What was seen of a workload, and what each algorithm cost on it."""

    seen: Observed
    costs: Mapping[str, float]

    def regret(self, algorithm: str) -> float:
        """How much more than the best an algorithm cost; ten times is as bad as any more."""
        return min(self.costs[algorithm] / min(self.costs.values()) - 1.0, 9.0)


def grow(points: Sequence[Point], depth: int = DEPTH) -> Tree:
    """Choose the algorithm for these points, or the question that tells them apart best.

    >>> def at(rows, npj, prj):
    ...     return Point(Observed(rows, rows, 1, 1, 1, 0, 1, 1), dict.fromkeys(ALGORITHMS, 50) | {"npj": npj, "prj": prj})
    >>> grow([at(10, 1, 2), at(20, 2, 3), at(1000, 9, 5), at(2000, 20, 9)])
    Split(feature='rows', threshold=141.0, below=Leaf(algorithm='npj', regret=0.0), above=Leaf(algorithm='prj', regret=0.0))
    """
    leaf, cost = best_leaf(points)
    if depth == 0 or len(points) < 2 or cost < GAIN:
        return leaf
    found = min(splits(points), key=lambda each: each[0], default=None)
    if found is None or cost - found[0] < GAIN:
        return leaf
    _, feature, threshold = found
    below, above = divided(points, feature, threshold)
    return Split(feature, threshold, grow(below, depth - 1), grow(above, depth - 1))


def best_leaf(points: Sequence[Point]) -> tuple[Leaf, float]:
    """The algorithm whose mistakes cost least, and what they cost."""
    costs = {name: sum(_badness(point.regret(name)) for point in points) for name in ALGORITHMS}
    name = min(costs, key=lambda each: costs[each])
    return Leaf(name, round(max(point.regret(name) for point in points), 3)), costs[name]


def _badness(regret: float) -> float:
    """What a regret counts: nothing where noise alone can make it, and more beyond the 15 % that are allowed.

    Of algorithms that are equally good the first is taken: the simpler one, and the lazy one, which works least.
    """
    return max(regret - NOISE, 0.0) + 4 * max(regret - ALLOWED, 0.0)


def splits(points: Sequence[Point]) -> Iterator[tuple[float, str, float]]:
    """Every question between two neighbouring values: what is left of the cost, the feature, the threshold."""
    for feature in FEATURES:
        values = sorted({point.seen[feature] for point in points})
        for low, high in pairwise(values):
            threshold = _between(feature, low, high)
            below, above = divided(points, feature, threshold)
            if below and above:
                yield best_leaf(below)[1] + best_leaf(above)[1], feature, threshold


def _between(feature: str, low: float, high: float) -> float:
    """Half way, on the feature's scale, as a round figure."""
    middle = (scale_of(feature, low) + scale_of(feature, high)) / 2
    return float(f"{middle if feature == 'hottest' else math.exp(middle):.3g}")


def divided(points: Sequence[Point], feature: str, threshold: float) -> tuple[list[Point], list[Point]]:
    """The points below a threshold, and the others."""
    below = [point for point in points if point.seen[feature] < threshold]
    return below, [point for point in points if point.seen[feature] >= threshold]
