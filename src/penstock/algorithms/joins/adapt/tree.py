"""The decision tree that chooses a join algorithm: its grammar, evaluation, display and JSON form.

    tree ::= Leaf(algorithm, regret) | Split(feature, threshold, below, above)

The paper's tree (its figure 4) uses the same features in words: arrival rate, key duplication, skew, number of
rows. Here the thresholds are measured on the machine that runs the joins.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from penstock.algorithms.joins.adapt.window_statistics import WINDOW_STATISTICS
from penstock.errors import StateError
from penstock.runtime.join_metrics import SeenStatistics

TREE_ALGORITHMS = ("npj", "prj", "mway", "mpass", "shj_jm", "shj_jb", "pmj_jm", "pmj_jb")
TARGETS = ("throughput", "latency", "progress")
IN_ORDER = "in order"
"""The tree of windows whose rows are all there, and whose pairs are given in the order of results."""
TREES = (*TARGETS, IN_ORDER)
DEEPEST_TREE = 16


@dataclass(frozen=True, slots=True)
class Leaf:
    """An algorithm; `regret` is the largest slowdown against the best one in the calibration, 0.05 for 5 %."""

    algorithm: str
    regret: float = 0.0


@dataclass(frozen=True, slots=True)
class Split:
    """A test: is the feature below the threshold?"""

    feature: str
    threshold: float
    below: Tree
    above: Tree


Tree = Leaf | Split


@dataclass(frozen=True, slots=True)
class Decision:
    """The algorithm, and the tests that led to it."""

    algorithm: str
    path: tuple[str, ...]


def decide(tree: Tree, seen: SeenStatistics) -> Decision:
    """Evaluate the tree.

    >>> tree = Split("rows", 1000.0, Leaf("npj"), Leaf("prj"))
    >>> decide(tree, {"rows": 5000.0})
    Decision(algorithm='prj', path=('rows = 5,000 ≥ 1,000',))
    """
    path: list[str] = []
    while isinstance(tree, Split):
        value = seen[tree.feature]
        below = value < tree.threshold
        path.append(f"{tree.feature} = {number(value)} {'<' if below else '≥'} {number(tree.threshold)}")
        tree = tree.below if below else tree.above
    return Decision(tree.algorithm, tuple(path))


def number(value: float) -> str:
    """Format a number with about three digits."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def show(tree: Tree, seen: SeenStatistics | None = None) -> str:
    """Draw the tree, one line per node; with `seen`, the path taken is marked.

    >>> print(show(Split("rows", 1000.0, Leaf("npj"), Leaf("prj", 0.1)), {"rows": 5000.0}))
    * rows < 1,000?
        yes: npj
      * no: prj (up to 10 % slower than the best)
    """
    return "\n".join(_lines(tree, seen, "", 0))


def _lines(tree: Tree, seen: SeenStatistics | None, answer: str, depth: int) -> Iterator[str]:
    mark = "* " if seen is not None else "  "
    indent = "  " * depth
    if isinstance(tree, Leaf):
        slower = (
            f" (up to {tree.regret:.0%} slower than the best)".replace("%", " %")
            if tree.regret >= 0.005
            else ""
        )
        yield f"{indent}{mark}{answer}{tree.algorithm}{slower}"
        return
    yield f"{indent}{mark}{answer}{tree.feature} < {number(tree.threshold)}?"
    below = None if seen is None else seen[tree.feature] < tree.threshold
    yield from _lines(tree.below, seen if below else None, "yes: ", depth + 1)
    yield from _lines(tree.above, seen if below is False else None, "no: ", depth + 1)


# -- as JSON ---------------------------------------------------------------------------------------------


def to_json(tree: Tree) -> dict[str, Any]:
    """Return a tree as plain values."""
    if isinstance(tree, Leaf):
        return {"algorithm": tree.algorithm, "regret": tree.regret}
    return {
        "feature": tree.feature,
        "threshold": tree.threshold,
        "below": to_json(tree.below),
        "above": to_json(tree.above),
    }


def from_json(value: Any, depth: int = 0) -> Tree:
    """Read a tree; `StateError` if the value is not one."""
    match value:
        case {"algorithm": str(name), "regret": int() | float() as regret} if name in TREE_ALGORITHMS:
            return Leaf(name, float(regret))
        case {"feature": str(name), "threshold": int() | float() as at, "below": below, "above": above} if (
            name in WINDOW_STATISTICS and depth < DEEPEST_TREE
        ):
            return Split(name, float(at), from_json(below, depth + 1), from_json(above, depth + 1))
    raise StateError(
        "the calibration of joins is damaged or of another version: run `penstock doctor --calibrate`"
    )
