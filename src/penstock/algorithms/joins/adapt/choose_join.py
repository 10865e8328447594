"""The choice of a join algorithm: one tree per target, calibrated on this machine or the package's default.

    file ::= {"version": 3, "machine": text, "trees": {target: tree}}

The file is JSON in the private folder of compiled kernels. It is data, checked node by node when read. A file
that is damaged, or was measured on another machine, is not used.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.algorithms.joins.adapt.default_trees import DEFAULT_TREES
from penstock.algorithms.joins.adapt.tree import TARGETS, TREES, Tree, decide, from_json, show, to_json
from penstock.atomic_write import replace_file
from penstock.errors import EngineError, StateError
from penstock.runtime.join_metrics import ChosenAlgorithm, SeenStatistics

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
