"""Choose the algorithm of each reduction over overlapping windows, with a reason (Hammer Slide, section 2).

    ~w1[t] @ size 10s every 1s: ⊕(sum, int), ⊕(max, float)  →  {"w1": (subtract-on-evict, two-stacks)}

The *way* is chosen once per object, for all its reductions: "panes" if all states have a fixed size and merge in any
order, else "partitions", over sorted rows. The *algorithm* is chosen per reduction:

* `one pane`: a window is one pane, so nothing is merged;
* `recompute`: compute every window from its panes or rows; for windows with little or no overlap, and for
  aggregates that only fold rows in order;
* `subtract-on-evict`: one running state, for aggregates that remove rows without loss;
* `prefix-sums`: the difference of two running totals at the frame's ends; for sums of floats over rows;
* `two-stacks`: for all other aggregates that merge;
* `count-slide`: windows of rows without keys begin at regular positions, so neighbouring windows are vectorised;
* `order-statistics`: the sorted values of a window, for aggregates without a state of fixed size;
* `frame ends`: only the positions of a frame's first and last row.

This analysis does not change the program.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.analysis.panes import ReductionFacts, in_panes, overlaps, panes_per_window, regular
from penstock.ir.nodes import Attach, Lookback, Program, Reduce, RollingJoin, Windowed
from penstock.types.windows import Window

ONE_PANE, FRAME_ENDS, ORDER_STATISTICS = "one pane", "frame ends", "order-statistics"
PREFIX_SUMS, COUNT_SLIDE = "prefix-sums", "count-slide"
RECOMPUTE, SUBTRACT, TWO_STACKS = "recompute", "subtract-on-evict", "two-stacks"
# Up to this many panes, merging anew is cheaper than incremental maintenance (measured: equal at 5).
FEW_PANES = 4


@dataclass(frozen=True, slots=True)
class AlgorithmChoice:
    """The algorithm of one reduction, the way of its object, and the reason as text."""

    algorithm: str
    way: str
    reason: str


def choices(program: Program, force: str | None = None) -> dict[str, tuple[AlgorithmChoice, ...]]:
    """Choose the algorithm of every reduction of every windowed object, by the object's name.

    `force` names an algorithm to use wherever it is applicable.
    """
    found: dict[str, tuple[AlgorithmChoice, ...]] = {}
    for obj in program.objects:
        match obj.body:
            case Reduce() | Attach() | Lookback() as body:
                found[obj.name] = _chosen(body, program, force)
            case RollingJoin(right=right, reductions=reductions) as join:
                facts = [ReductionFacts(reduction, program[right].schema) for reduction in reductions]
                found[obj.name] = tuple(_over_partitions(one, join, force) for one in facts)
    return found


def _chosen(body: Windowed, program: Program, force: str | None) -> tuple[AlgorithmChoice, ...]:
    schema = program[body.source].schema
    facts = [ReductionFacts(reduction, schema) for reduction in body.reductions]
    if isinstance(body, Reduce) and in_panes(body, program):
        return tuple(_in_panes(fact, body.domain, force) for fact in facts)
    return tuple(_over_partitions(fact, body, force) for fact in facts)


# --- the algorithm ------------------------------------------------------------------------------------------


def preferred(domain: Window, force: str | None = None) -> str:
    """Return how panes of these windows are merged if the aggregate permits it."""
    panes = panes_per_window(domain)
    if panes == 1:
        return ONE_PANE
    return force or (RECOMPUTE if panes <= FEW_PANES else SUBTRACT)


def _in_panes(facts: ReductionFacts, domain: Window, force: str | None) -> AlgorithmChoice:
    panes, wanted = panes_per_window(domain), preferred(domain, force)
    if wanted == ONE_PANE:
        return AlgorithmChoice(ONE_PANE, "panes", "each window is one pane, read where it lies")
    if wanted == SUBTRACT:
        obstacle = (
            "a custom aggregate removes rows, and panes are states"
            if facts.definition is not None
            else _obstacle(facts)
        )
        return _subtracted(facts, "panes", obstacle, force)
    if force is not None:
        return AlgorithmChoice(force, "panes", "requested")
    return AlgorithmChoice(RECOMPUTE, "panes", f"a window has {panes} panes only, soon merged anew")


def over_samples(facts: ReductionFacts, force: str | None = None) -> AlgorithmChoice:
    """Choose the algorithm of a reduction over the samples of a signal, whose spans overlap like look-backs."""
    return _over_partitions(facts, Lookback("", (), (), (), ()), force)


def _over_partitions(
    facts: ReductionFacts, body: Windowed | RollingJoin, force: str | None
) -> AlgorithmChoice:
    if facts.is_ends:
        return AlgorithmChoice(
            FRAME_ENDS, "partitions", "the positions of a window's first and last row determine it"
        )
    if not facts.algebra.commutative and facts.algebra.holistic:
        return AlgorithmChoice(
            RECOMPUTE, "partitions", "the result is all values of a window" + _instead(force, RECOMPUTE)
        )
    if facts.algebra.holistic:
        reason = f"{facts.name} needs the values of a window in order"
        return AlgorithmChoice(ORDER_STATISTICS, "partitions", reason + _instead(force, ORDER_STATISTICS))
    if force is None and regular(body) and facts.algebra.associative:
        shared = "neighbours share panes" if overlaps(body) else "each row is read once"
        reason = f"windows of rows without keys lie at regular places: nothing is looked up, {shared}"
        return AlgorithmChoice(COUNT_SLIDE, "partitions", reason)
    if force is None and not overlaps(body):
        return AlgorithmChoice(RECOMPUTE, "partitions", "windows do not overlap: each row is read once")
    if force == RECOMPUTE:
        return AlgorithmChoice(RECOMPUTE, "partitions", "requested")
    return _slid(facts, force)


def _slid(facts: ReductionFacts, force: str | None) -> AlgorithmChoice:
    obstacle = _obstacle(facts)
    if force != TWO_STACKS and obstacle is None:
        return _subtracted(facts, "partitions", None, force)
    if not facts.algebra.associative:
        reason = f"{facts.name} has no merge: its state comes from rows in order"
        return AlgorithmChoice(RECOMPUTE, "partitions", reason + _instead(force, RECOMPUTE))
    if force == TWO_STACKS:
        return AlgorithmChoice(TWO_STACKS, "partitions", "requested")
    if force is None and facts.has_prefixes:
        reason = f"{facts.name} of floats is the difference of two compensated prefixes, by two stacks where values differ too much in size"
        return AlgorithmChoice(PREFIX_SUMS, "partitions", reason)
    return _subtracted(facts, "partitions", obstacle, force)


def _subtracted(facts: ReductionFacts, way: str, obstacle: str | None, force: str | None) -> AlgorithmChoice:
    """Choose subtract-on-evict, or two-stacks if there is an obstacle."""
    if obstacle is None:
        reason = "requested" if force == SUBTRACT else f"{facts.name} takes out again exactly what left"
        return AlgorithmChoice(SUBTRACT, way, reason)
    return AlgorithmChoice(TWO_STACKS, way, obstacle + _instead(force, TWO_STACKS))


def _obstacle(facts: ReductionFacts) -> str | None:
    """Return why evicted rows cannot be subtracted; None if they can."""
    if not facts.algebra.invertible:
        return f"nothing can be taken out of {facts.name} again"
    if facts.inexact:
        return f"{facts.name} of floats is never subtracted: rounding would stay behind"
    return None


def _instead(force: str | None, taken: str) -> str:
    return "" if force in (None, taken) else f" (so not by {force}, which was requested)"
