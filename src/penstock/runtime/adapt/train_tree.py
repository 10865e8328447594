"""Grow a decision tree from measurements: each split is the one after which choosing badly costs least."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from penstock.runtime.adapt.tree import ALGORITHMS, Leaf, Split, Tree, decide
from penstock.runtime.adapt.window_statistics import FEATURES, Observed, scale_of

DEPTH = 5
NOISE, ALLOWED = 0.05, 0.15
GAIN = 0.03  # what a split must save, as a part of the best's cost, summed over the points
ASKING = dict.fromkeys(FEATURES, 0.0) | dict.fromkeys(("span", "spread"), GAIN / 2)
ASKING |= dict.fromkeys(("duplicates", "hottest"), GAIN)
"""What a question must save besides: those last ones take a sorted sample."""
RIM = 0.05  # a threshold keeps this part of the way from the points that it was learnt from


@dataclass(frozen=True)
class Point:
    """What was seen of a workload, and what each algorithm cost on it."""

    seen: Observed
    costs: Mapping[str, float]

    def regret(self, algorithm: str) -> float:
        """How much more than the best an algorithm cost; ten times is as bad as any more."""
        return min(self.costs[algorithm] / min(self.costs.values()) - 1.0, 9.0)


class Question(NamedTuple):
    """Is the feature below the threshold? `cost` is what the best choice on either side still costs, and the asking."""

    cost: float
    feature: str
    threshold: float


def train_tree(points: Sequence[Point], depth: int = DEPTH) -> Tree:
    """Choose the algorithm for these points, or the question that tells them apart best.

    >>> def at(rows, npj, prj):
    ...     return Point(Observed(rows, rows, 1, 1, 1, 0, 1, 1), dict.fromkeys(ALGORITHMS, 50) | {"npj": npj, "prj": prj})
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
    """The algorithm whose mistakes cost least, and what they cost."""
    costs = _badness(points).sum(axis=0)
    name = ALGORITHMS[int(costs.argmin())]
    return Leaf(name, round(max(point.regret(name) for point in points), 3)), float(costs.min())


def _badness(points: Sequence[Point]) -> np.ndarray:
    """What the regrets of points (down) and algorithms (across) count: nothing where noise alone can make them,
    and more beyond the 15 % that are allowed.

    Of algorithms that are equally good the first is taken: the simpler one, and the lazy one, which works least.
    """
    regrets = np.array([[point.regret(name) for name in ALGORITHMS] for point in points])
    counted: np.ndarray = np.maximum(regrets - NOISE, 0.0) + 4 * np.maximum(regrets - ALLOWED, 0.0)
    return counted


def _best_question(points: Sequence[Point], cost: float, depth: int) -> Question | None:
    """The question that saves most together with the ones that follow it.

    A question is also worth asking if only the next one saves anything: large windows want another algorithm
    where codes are scattered and keys are unique, but neither of the two tells anything alone.
    """
    asked = list(questions(points))
    plain = min(asked, default=None)
    if depth > 1:
        deeper = min(((_next_cost(points, each), each) for each in asked), default=None)
        if deeper is not None and deeper[0] < cost - 2 * GAIN:
            return deeper[1]
    return plain if plain is not None and plain.cost < cost - GAIN else None


def _next_cost(points: Sequence[Point], asked: Question) -> float:
    """What is left of the cost after a question and the best one on either side of it."""
    return ASKING[asked.feature] + sum(
        min([best_leaf(side)[1], *(each.cost for each in questions(side))])
        for side in divided(points, asked.feature, asked.threshold)
    )


def questions(points: Sequence[Point]) -> Iterator[Question]:
    """Every question between two neighbouring values."""
    badness = _badness(points)
    for feature in FEATURES:
        values = np.array([point.seen[feature] for point in points])
        order = np.argsort(values, kind="stable")
        values, sums = values[order], np.cumsum(badness[order], axis=0)
        left = sums.min(axis=1) + (sums[-1] - sums).min(axis=1)
        for place in np.flatnonzero(values[1:] > values[:-1]):
            threshold = _between(feature, values[place], values[place + 1])
            if values[place] < threshold <= values[place + 1]:
                yield Question(float(left[place]) + ASKING[feature], feature, threshold)


def _crossing(feature: str, points: tuple[list[Point], list[Point]], trees: tuple[Tree, Tree]) -> float:
    """Where the two choices cost the same, judged by the points next to the split on both its sides.

    Half way between them is not safe: one choice can be fifty times the better on this side, the other a hair's
    breadth ahead on that, as an eager join is until it falls behind the rows. The threshold then belongs over there.
    """
    low = max(point.seen[feature] for point in points[0])
    high = min(point.seen[feature] for point in points[1])
    before = max(_advantage([each for each in points[0] if each.seen[feature] == low], trees), 0.0)
    after = max(-_advantage([each for each in points[1] if each.seen[feature] == high], trees), 0.0)
    share = before / (before + after) if before + after > 0 else 0.5
    return _between(feature, low, high, min(max(share, RIM), 1 - RIM))


def _advantage(points: Sequence[Point], trees: tuple[Tree, Tree]) -> float:
    """How much cheaper the lower tree's choices are than the upper one's, as a logarithm."""
    costs = [[point.costs[decide(tree, point.seen).algorithm] for tree in trees] for point in points]
    return sum(math.log(upper / lower) for lower, upper in costs) / len(costs)


def _between(feature: str, low: float, high: float, share: float = 0.5) -> float:
    """Half way, or this share of it, on the feature's scale, as a round figure."""
    middle = scale_of(feature, low) * (1 - share) + scale_of(feature, high) * share
    return float(f"{middle if feature == 'hottest' else math.exp(middle):.3g}")


def divided(points: Sequence[Point], feature: str, threshold: float) -> tuple[list[Point], list[Point]]:
    """The points below a threshold, and the others."""
    below = [point for point in points if point.seen[feature] < threshold]
    return below, [point for point in points if point.seen[feature] >= threshold]
