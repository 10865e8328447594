"""Train a decision tree from measurements: each split minimises the cost of wrong choices."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from penstock.algorithms.joins.adapt.tree import TREE_ALGORITHMS, Leaf, Split, Tree, decide
from penstock.algorithms.joins.adapt.window_statistics import WINDOW_STATISTICS, Observed, scale_of

DEPTH = 5
NOISE, ALLOWED = 0.05, 0.15
GAIN = 0.03  # minimum saving of a split, as a fraction of the best cost, summed over the points
ASKING = dict.fromkeys(WINDOW_STATISTICS, 0.0) | dict.fromkeys(("span", "spread"), GAIN / 2)
ASKING |= dict.fromkeys(("duplicates", "hottest"), GAIN)
"""What a question must save besides: those last ones take a sorted sample."""
RIM = 0.05  # a threshold keeps at least this fraction of the gap from the points on either side


@dataclass(frozen=True)
class Point:
    """The statistics of a workload, and the cost of each algorithm on it."""

    seen: Observed
    costs: Mapping[str, float]

    def regret(self, algorithm: str) -> float:
        """Return how much more than the best an algorithm cost, as a fraction; at most 9."""
        return min(self.costs[algorithm] / min(self.costs.values()) - 1.0, 9.0)


class CandidateSplit(NamedTuple):
    """A candidate split: is the feature below the threshold? `cost` is that of the best leaves on both sides,
    plus the cost of measuring the feature.
    """

    cost: float
    feature: str
    threshold: float


def train_tree(points: Sequence[Point], depth: int = DEPTH) -> Tree:
    """Return a leaf with the best algorithm for these points, or the best split.

    >>> def at(rows, npj, prj):
    ...     return Point(Observed(rows, rows, 1, 1, 1, 0, 1, 1), dict.fromkeys(TREE_ALGORITHMS, 50) | {"npj": npj, "prj": prj})
    >>> train_tree([at(10, 1, 2), at(20, 1, 2), at(1000, 2, 1), at(2000, 2, 1)])
    Split(feature='rows', threshold=141.0, below=Leaf(algorithm='npj', regret=0.0), above=Leaf(algorithm='prj', regret=0.0))
    """
    leaf, cost = best_leaf(points)
    if depth == 0 or len(points) < 2 or cost < GAIN:
        return leaf
    found = _best_question(points, cost, depth)
    if found is None:
        return leaf
    below, above = divided(points, found.feature, found.threshold)
    trees = train_tree(below, depth - 1), train_tree(above, depth - 1)
    return Split(found.feature, _crossing(found.feature, (below, above), trees), *trees)


def best_leaf(points: Sequence[Point]) -> tuple[Leaf, float]:
    """Return the algorithm with the least total cost, and that cost."""
    costs = _badness(points).sum(axis=0)
    name = TREE_ALGORITHMS[int(costs.argmin())]
    return Leaf(name, round(max(point.regret(name) for point in points), 3)), float(costs.min())


def _badness(points: Sequence[Point]) -> np.ndarray:
    """Return the cost of each point (row) and algorithm (column): zero for a regret within noise, and more
    beyond the 15 % that are allowed.

    Of equally good algorithms the first is taken: the simpler one, and the lazy one, which does the least work.
    """
    regrets = np.array([[point.regret(name) for name in TREE_ALGORITHMS] for point in points])
    counted: np.ndarray = np.maximum(regrets - NOISE, 0.0) + 4 * np.maximum(regrets - ALLOWED, 0.0)
    return counted


def _best_question(points: Sequence[Point], cost: float, depth: int) -> CandidateSplit | None:
    """Return the split that saves most, with the splits that follow it.

    A split is also accepted if only the next one saves anything: large windows favour another algorithm where
    codes are scattered and keys are unique, but neither feature separates the points alone.
    """
    splits = list(questions(points))
    plain = min(splits, default=None)
    if depth > 1:
        deeper = min(((_next_cost(points, question), question) for question in splits), default=None)
        if deeper is not None and deeper[0] < cost - 2 * GAIN:
            return deeper[1]
    return plain if plain is not None and plain.cost < cost - GAIN else None


def _next_cost(points: Sequence[Point], split: CandidateSplit) -> float:
    """Return the remaining cost after a split and the best further split on each side."""
    return ASKING[split.feature] + sum(
        min([best_leaf(side)[1], *(question.cost for question in questions(side))])
        for side in divided(points, split.feature, split.threshold)
    )


def questions(points: Sequence[Point]) -> Iterator[CandidateSplit]:
    """Yield every split between two adjacent values of a feature."""
    badness = _badness(points)
    for feature in WINDOW_STATISTICS:
        values = np.array([point.seen[feature] for point in points])
        order = np.argsort(values, kind="stable")
        values, sums = values[order], np.cumsum(badness[order], axis=0)
        left = sums.min(axis=1) + (sums[-1] - sums).min(axis=1)
        for place in np.flatnonzero(values[1:] > values[:-1]):
            threshold = _between(feature, values[place], values[place + 1])
            if values[place] < threshold <= values[place + 1]:
                yield CandidateSplit(float(left[place]) + ASKING[feature], feature, threshold)


def _crossing(feature: str, points: tuple[list[Point], list[Point]], trees: tuple[Tree, Tree]) -> float:
    """Return the threshold at which the two choices cost the same, by the points next to the split on both
    sides.

    The midpoint is not safe: one choice can be fifty times better on one side and the other only marginally
    better on the other side, as with an eager join just before it falls behind its input. The threshold then
    moves towards the side with the small difference.
    """
    low = max(point.seen[feature] for point in points[0])
    high = min(point.seen[feature] for point in points[1])
    before = max(_advantage([point for point in points[0] if point.seen[feature] == low], trees), 0.0)
    after = max(-_advantage([point for point in points[1] if point.seen[feature] == high], trees), 0.0)
    share = before / (before + after) if before + after > 0 else 0.5
    return _between(feature, low, high, min(max(share, RIM), 1 - RIM))


def _advantage(points: Sequence[Point], trees: tuple[Tree, Tree]) -> float:
    """Return how much cheaper the lower tree's choices are than the upper tree's, as a mean logarithm."""
    costs = [[point.costs[decide(tree, point.seen).algorithm] for tree in trees] for point in points]
    return sum(math.log(upper / lower) for lower, upper in costs) / len(costs)


def _between(feature: str, low: float, high: float, share: float = 0.5) -> float:
    """Return the midpoint, or the point at this fraction, on the feature's scale, rounded to three digits."""
    middle = scale_of(feature, low) * (1 - share) + scale_of(feature, high) * share
    return float(f"{middle if feature == 'hottest' else math.exp(middle):.3g}")


def divided(points: Sequence[Point], feature: str, threshold: float) -> tuple[list[Point], list[Point]]:
    """Return the points below a threshold, and the others."""
    below = [point for point in points if point.seen[feature] < threshold]
    return below, [point for point in points if point.seen[feature] >= threshold]
