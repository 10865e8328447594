"""The trees that come with the package, for machines that were never calibrated."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.runtime.adapt.tree import Leaf, Split, Tree

AT_REST: Tree = Split(
    "spread",
    4.0,
    Split("smaller", 8e6, Leaf("npj"), Leaf("prj")),
    Split("smaller", 5e4, Leaf("npj"), Leaf("prj")),
)
EAGERLY: Tree = Split("rate", 3e4, Leaf("shj_jm"), AT_REST)
SUPPLIED: Mapping[str, Tree] = {"throughput": AT_REST, "latency": EAGERLY, "progress": EAGERLY}
