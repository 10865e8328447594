"""The default trees, for machines without a calibration.

They are rounded from a calibration of one two-core machine with 32 MB of third-level cache. Dense codes: one
table of counters is best as long as it fits the cache. Scattered codes are hashed, and partitioning pays from
some hundred thousand rows on. Ordered pairs: only the single table produces them in order; other algorithms
sort the pairs, which costs least with one pair per row. A symmetric hash join keeps up with some thirty to
forty thousand rows a millisecond. Beyond that it falls behind, but its latency stays below that of a lazy join
up to some fifty-five thousand; from there on the algorithm with the highest throughput also has the lowest
latency.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.algorithms.joins.adapt.tree import IN_ORDER, Leaf, Split, Tree

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
