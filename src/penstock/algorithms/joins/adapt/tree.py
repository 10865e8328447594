"""The decision trees that choose a join algorithm: grammar, evaluation, JSON form, the defaults, and the tree of this machine.

    tree ::= Leaf(algorithm, regret) | Split(feature, threshold, below, above)

The paper's tree (its figure 4) uses the same features in words: arrival rate, key duplication, skew, number of
rows. Here the thresholds are measured on the machine that runs the joins.

They are rounded from a calibration of one two-core machine with 32 MB of third-level cache. Dense codes: one
table of counters is best as long as it fits the cache. Scattered codes are hashed, and partitioning pays from
some hundred thousand rows on. Ordered pairs: only the single table produces them in order; other algorithms
sort the pairs, which costs least with one pair per row. A symmetric hash join keeps up with some thirty to
forty thousand rows a millisecond. Beyond that it falls behind, but its latency stays below that of a lazy join
up to some fifty-five thousand; from there on the algorithm with the highest throughput also has the lowest
latency.

    file ::= {"version": 3, "machine": text, "trees": {target: tree}}

The file is JSON in the private folder of compiled kernels. It is data, checked node by node when read. A file
that is damaged, or was measured on another machine, is not used.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.algorithms.joins.adapt.window_statistics import WINDOW_STATISTICS
from penstock.atomic_write import replace_file
from penstock.errors import EngineError, StateError
from penstock.runtime.metrics import ChosenAlgorithm, SeenStatistics

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


TREE_AT_REST: Tree = Split(
    "spread",
    4.0,
    Split("span", 2e6, Leaf("npj"), Leaf("prj")),
    Split("rows", 2e5, Leaf("shj_jm"), Leaf("prj")),
)
EAGERLY: Tree = Split("rate", 5.5e4, Leaf("shj_jm"), TREE_AT_REST)
ORDERED: Tree = Split(
    "spread",
    4.0,
    Leaf("npj"),
    Split("smaller", 1.5e5, Leaf("npj"), Split("duplicates", 2.0, Leaf("prj"), Leaf("npj"))),
)
DEFAULT_TREES: Mapping[str, Tree] = {
    "throughput": TREE_AT_REST,
    "latency": EAGERLY,
    "progress": EAGERLY,
    IN_ORDER: ORDERED,
}


TREE_VERSION = 3
FILE = "joins.json"


@dataclass(frozen=True)
class JoinChooser:
    """Trees by target; `origin` names their source.

    >>> JoinChooser(DEFAULT_TREES).choose({"rate": 2.0}, "latency").algorithm
    'shj_jm'
    """

    trees: Mapping[str, Tree]
    origin: str = "supplied with the package; `penstock doctor --calibrate` measures this machine"

    def choose(self, seen: SeenStatistics, optimise: str = "throughput") -> ChosenAlgorithm:
        """Return the algorithm for a window with these statistics, and the reason."""
        decision = decide(self.trees[checked(optimise)], seen)
        return ChosenAlgorithm(decision.algorithm, seen, decision.path)

    def show(self, optimise: str = "throughput", seen: SeenStatistics | None = None) -> str:
        """Return the tree of a target; with `seen`, the path of a window is marked."""
        return show(self.trees[checked(optimise)], seen)


def checked(optimise: str) -> str:
    """Return the name of a tree, or raise an error that lists the targets."""
    if optimise not in TREES:
        raise EngineError(f"optimise={optimise!r} is not a target of joins: choose from {', '.join(TARGETS)}")
    return optimise


def save_trees(directory: Path, machine: str, trees: Mapping[str, Tree]) -> Path:
    """Write the file atomically: a reader finds the old file, the new one or none."""
    document = {
        "version": TREE_VERSION,
        "machine": machine,
        "trees": {target: to_json(tree) for target, tree in trees.items()},
    }
    data = json.dumps(document, indent=1).encode()
    replace_file(directory / FILE, lambda file: file.write(data))
    return directory / FILE


def load_trees(directory: Path, machine: str) -> JoinChooser:
    """Read the file; `StateError` if it is damaged or from another machine, `OSError` if there is none."""
    try:
        document = json.loads((directory / FILE).read_text(encoding="utf-8"))
    except ValueError:
        document = None
    match document:
        case {"version": version, "machine": str(name), "trees": dict(trees)} if version == TREE_VERSION:
            if name != machine:
                raise StateError(f"{FILE} was measured on another machine: run `penstock doctor --calibrate`")
            return JoinChooser({target: from_json(trees.get(target)) for target in TREES}, "calibrated here")
    raise StateError(f"{FILE} is damaged or of another version: run `penstock doctor --calibrate`")


def chooser(directory: Path | None, machine: str) -> JoinChooser:
    """Return the trees calibrated on this machine, or else the package's defaults."""
    if directory is None:
        return JoinChooser(DEFAULT_TREES)
    try:
        return load_trees(directory, machine)
    except (OSError, StateError):
        return JoinChooser(DEFAULT_TREES)
