"""Choose how a windowed object runs: in panes or over rows, its key table, what is kept, and the algorithm of each reduction.

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

from dataclasses import dataclass, replace
from math import exp

import pyarrow as pa

from penstock.algorithms.keyed_states.row_store import can_grow
from penstock.algorithms.sorted_partitions.reducers import FrameReduction
from penstock.analysis.panes import (
    ReductionFacts,
    in_panes,
    overlaps,
    panes_per_window,
    reductions_obstacle,
    regular,
    state_obstacle,
)
from penstock.expr import nodes as ex
from penstock.expr.typing import type_of
from penstock.ir import nodes as ir
from penstock.ir.nodes import Attach, Lookback, Program, Reduce, RollingJoin, Windowed, result_type
from penstock.loop.numbers import is_text
from penstock.physical.nodes import Assumption, Choice, Held, LookBack, Mode, Node, Reduction, Rejected
from penstock.types.arrow import kind_of
from penstock.types.windows import WINDOW_BOUNDS, CarriedWindow, Count, Session, Window

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


def key_table(body: ir.Reduce, schema: pa.Schema) -> Choice:
    """Choose the first key table: dense wherever a key's range may turn out to be small.

    The bounds of a carried window are keys, too.
    """
    bounds = WINDOW_BOUNDS if isinstance(body.domain, CarriedWindow) else ()
    keys = (*(key.expr for key in body.keys), *map(ex.Column, bounds))
    if not keys:
        return Choice("key table", "none", "the window has no keys: states stay in registers")
    if all(_may_be_dense(key, schema) for key in keys):
        small = Assumption("the range of keys is small for the rows seen", "an open-addressing hash table")
        return Choice(
            "key table", "dense", "keys are whole columns: an array index finds a group", (), (small,)
        )
    reason = "a key is computed or a float"
    return Choice("key table", "hash", reason, (Rejected("dense", f"{reason}, so its range is not known"),))


def _may_be_dense(expr: ex.Expr, schema: pa.Schema) -> bool:
    dtype = type_of(expr, schema)
    return ex.path_of(expr) is not None and (is_text(dtype) or kind_of(dtype) != "float")


def state_layout(reductions: tuple[ir.Reduction, ...]) -> Choice:
    """Choose the layout of states: narrow and without null flags until the data requires more."""
    taken = "64-bit sums, no null flags" if reductions else "presence alone"
    return Choice(
        "state layout",
        taken,
        "the narrowest states that may hold",
        (),
        (
            Assumption("no column that is read holds nulls", "states with null flags"),
            Assumption("sums fit 64 bits", "128-bit sums from the first that does not"),
        )
        if reductions
        else (),
    )


def grouping(obstacle: str | None) -> Choice:
    """Choose between panes and sorted rows: `obstacle` says why panes cannot hold what the object needs."""
    if obstacle is None:
        return Choice("grouping", "panes", "states of a fixed size merge in any order, on one grid of time")
    reason = "rows of each key are sorted by time; a window is a range of them"
    return Choice("grouping", "sorted partitions", reason, (Rejected("panes", obstacle),))


def algorithms(chosen: tuple[AlgorithmChoice, ...]) -> tuple[Choice, ...]:
    """The algorithm of each reduction, as choices of the node."""
    return tuple(
        Choice(f"reduction #{number}", choice.algorithm, choice.reason)
        for number, choice in enumerate(chosen)
    )


def reductions_of(
    reductions: tuple[ir.Reduction, ...], schema: pa.Schema, chosen: tuple[AlgorithmChoice, ...]
) -> tuple[Reduction, ...]:
    """The reductions of an object with their algorithms."""
    return tuple(
        Reduction(
            reduction.function,
            reduction.args,
            reduction.where,
            reduction.options,
            result_type(reduction, schema),
            choice.algorithm,
            reduction.span,
        )
        for reduction, choice in zip(reductions, chosen, strict=True)
    )


def reductions_over_columns(
    reductions: tuple[FrameReduction, ...], chosen: tuple[AlgorithmChoice, ...]
) -> tuple[Reduction, ...]:
    """The reductions of an object whose arguments and conditions are columns, with their algorithms."""
    return tuple(
        Reduction(
            reduction.function,
            tuple(map(ex.Column, reduction.args)),
            None if reduction.where is None else ex.Column(reduction.where),
            reduction.options,
            reduction.type,
            choice.algorithm,
            reduction.span,
        )
        for reduction, choice in zip(reductions, chosen, strict=True)
    )


HELD_STATES: Held = "states per key"
LISTS: Held = "lists of rows per key"
HELD_ROWS: Held = "rows"
ROWS_PER_KEY = 128  # measured: with 100 of 1 M rows for each key both take as long, with 10 rows take a fifth
# Threads share sorted partitions, but not the states of a key: from three on, sorting is faster (measured with two).
FEW_THREADS = 2


def keyed_states(
    body: ir.Body, program: ir.Program, aggregator: str | None = None, mode: Mode = "unbounded"
) -> Choice:
    """Choose states per key wherever a running query can have them: a push then costs its rows and what they complete.

    Data at rest is one push, and sorting rows by key once is mostly faster than a lookup for each row. Measured with one
    thread, sorted against states, in M rows/s: sessions 62 and 46, windows of rows 116 and 75, look-backs over a span of
    time by key 10 and 27 if rows are subtracted, 18 and 16 if not. A forced algorithm applies to rows.
    """
    obstacle = state_obstacle(body, program)
    if mode == "bounded":
        obstacle = obstacle or _slower_at_rest(body, program)
    if aggregator is not None:
        obstacle = obstacle or f"{aggregator} was requested, which reduces rows"
    if obstacle is not None and mode == "unbounded" and aggregator is None and _has_lists(body, program):
        reason = (
            "a window reads its own rows alone: a push costs its rows and those of the windows it completes"
        )
        rejected = Rejected(HELD_STATES, obstacle), Rejected(HELD_ROWS, "each push would read every row held")
        return Choice("held", LISTS, reason, rejected)
    if obstacle is not None:
        return Choice("held", HELD_ROWS, "windows read their rows", (Rejected(HELD_STATES, obstacle),))
    if mode == "bounded":
        few = Assumption(
            f"the engine has at most {FEW_THREADS} threads", "sorted partitions, which threads share"
        )
        many = Assumption(f"keys have {ROWS_PER_KEY} rows or more each", "sorted rows, from the first row on")
        reason = "rows enter and leave the sums of their key in order of time, which needs no sorting by key"
        return Choice(
            "held",
            HELD_STATES,
            reason,
            (Rejected(HELD_ROWS, "they are sorted by key, and results by time"),),
            (few, many),
        )
    reason = "states of a fixed size per key: a push costs its rows and what they complete"
    if isinstance(body, Lookback) and reductions_obstacle(body.reductions, program[body.source].schema):
        reason = "search trees of the values of each key: a row costs the logarithm of the rows held"
    return Choice("held", HELD_STATES, reason, (Rejected(HELD_ROWS, "each push would read every row held"),))


def held_for(rows: int, sampled: int, distinct: int) -> tuple[Held, str]:
    """Choose for data at rest, of which a sample of so many rows has so many distinct keys.

    States pay if a key has `ROWS_PER_KEY` rows or more. A table of more keys leaves the caches, and each row waits for
    its key. One key needs no sorting at all.

    >>> held_for(1_000_000, 4_096, 900)[0], held_for(1_000_000, 4_096, 4_000)[0]
    ('states per key', 'rows')
    """
    if distinct <= 1:
        return HELD_ROWS, "the rows have one key: in order of time, they are sorted"
    most = rows / ROWS_PER_KEY
    if distinct > most * (1 - exp(-sampled / most)):  # as many as a sample has of so many keys
        return (
            HELD_ROWS,
            f"a sample of {sampled:,} rows has {distinct:,} keys: fewer than {ROWS_PER_KEY} rows for each",
        )
    return HELD_STATES, f"a sample of {sampled:,} rows has {distinct:,} keys: their states stay in the caches"


def revised(node: Node, held: Held, why: str) -> Node:
    """The node of a look-back that holds something else than planned, for the reason `why`."""
    assert isinstance(node.op, LookBack)
    choices = tuple(
        Choice("held", held, why, (Rejected(choice.taken, "what was planned"),))
        if choice.what == "held"
        else choice
        for choice in node.choices
    )
    return replace(node, op=replace(node.op, held=held), choices=choices)


def may_hold_states(body: ir.Body) -> bool:
    """Return whether the choice is open for a type of window, so that its plan records the choice and its reason."""
    match body:
        case ir.Lookback() | ir.Reduce(domain=Session() | Count()):
            return True
        case ir.Attach(domain=Count()) | ir.Apply(domain=Count()):
            return bool(body.keys)
        case _:
            return False


def _has_lists(body: ir.Body, program: ir.Program) -> bool:
    """Return whether rows can be held in lists per key: windows of rows by key, and columns that grow in place."""
    match body:
        case ir.Reduce(domain=Count()) | ir.Attach(domain=Count()) | ir.Apply(domain=Count()) if body.keys:
            return all(can_grow(field.type) for field in program[body.source].schema)
        case _:
            return False


def _slower_at_rest(body: ir.Body, program: ir.Program) -> str | None:
    """Return why sorted partitions are faster for data at rest; None if they are not."""
    if isinstance(body, ir.Lookback) and body.keys and len(body.spans) == 1 and body.spans[0].rows is None:
        facts = [ReductionFacts(reduction, program[body.source].schema) for reduction in body.reductions]
        if all(fact.algebra.invertible and not fact.inexact for fact in facts):
            return None
    return "data at rest comes in one push: rows are sorted by key once, without a lookup each"
