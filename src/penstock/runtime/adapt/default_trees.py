"""The trees that come with the package, for machines that were never calibrated.

Read off a calibration of one two-core machine with 32 MB of third-level cache, and rounded. Where codes lie close
together one table of counters is best as long as it stays in the cache; scattered keys are hashed, and then
partitions pay from some hundred thousand rows on. Pairs that are given in order come so from one table alone: those of
others are sorted, which costs least where there is one for each row. A symmetric hash join keeps up with some thirty to forty thousand rows
a millisecond. Beyond that it falls behind, but it still answers sooner than one that waits for the whole window until some
fifty-five thousand; then what finishes first is also what answers soonest.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.runtime.adapt.tree import IN_ORDER, Leaf, Split, Tree

AT_REST: Tree = Split(
    "spread",
    4.0,
    Split("span", 2e6, Leaf("npj"), Leaf("prj")),
    Split("rows", 2e5, Leaf("shj_jm"), Leaf("prj")),
)
EAGERLY: Tree = Split("rate", 5.5e4, Leaf("shj_jm"), AT_REST)
ORDERED: Tree = Split(
    "spread",
    4.0,
    Leaf("npj"),
    Split("smaller", 1.5e5, Leaf("npj"), Split("duplicates", 2.0, Leaf("prj"), Leaf("npj"))),
)
DEFAULT_TREES: Mapping[str, Tree] = {
    "throughput": AT_REST,
    "latency": EAGERLY,
    "progress": EAGERLY,
    IN_ORDER: ORDERED,
}
