"""Choose what an operator keeps of open windows and look-backs: their rows, or partial states per key."""

from __future__ import annotations

from dataclasses import replace
from math import exp

from penstock.analysis.panes import ReductionFacts, state_obstacle
from penstock.ir import nodes as ir
from penstock.physical.nodes import Assumption, Choice, Held, LookBack, Mode, Node, Rejected
from penstock.types.windows import Count, Session

STATES: Held = "states per key"
ROWS: Held = "rows"
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
    if obstacle is not None:
        return Choice("held", ROWS, "windows read their rows", (Rejected(STATES, obstacle),))
    if mode == "bounded":
        few = Assumption(
            f"the engine has at most {FEW_THREADS} threads", "sorted partitions, which threads share"
        )
        many = Assumption(f"keys have {ROWS_PER_KEY} rows or more each", "sorted rows, from the first row on")
        reason = "rows enter and leave the sums of their key in order of time, which needs no sorting by key"
        return Choice(
            "held",
            STATES,
            reason,
            (Rejected(ROWS, "they are sorted by key, and results by time"),),
            (few, many),
        )
    reason = "states of a fixed size per key: a push costs its rows and what they complete"
    return Choice("held", STATES, reason, (Rejected(ROWS, "each push would read every row held"),))


def held_for(rows: int, sampled: int, distinct: int) -> tuple[Held, str]:
    """Choose for data at rest, of which a sample of so many rows has so many distinct keys.

    States pay if a key has `ROWS_PER_KEY` rows or more. A table of more keys leaves the caches, and each row waits for
    its key. One key needs no sorting at all.

    >>> held_for(1_000_000, 4_096, 900)[0], held_for(1_000_000, 4_096, 4_000)[0]
    ('states per key', 'rows')
    """
    if distinct <= 1:
        return ROWS, "the rows have one key: in order of time, they are sorted"
    most = rows / ROWS_PER_KEY
    if distinct > most * (1 - exp(-sampled / most)):  # as many as a sample has of so many keys
        return (
            ROWS,
            f"a sample of {sampled:,} rows has {distinct:,} keys: fewer than {ROWS_PER_KEY} rows for each",
        )
    return STATES, f"a sample of {sampled:,} rows has {distinct:,} keys: their states stay in the caches"


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
        case _:
            return False


def _slower_at_rest(body: ir.Body, program: ir.Program) -> str | None:
    """Return why sorted partitions are faster for data at rest; None if they are not."""
    if isinstance(body, ir.Lookback) and body.keys and len(body.spans) == 1 and body.spans[0].rows is None:
        facts = [ReductionFacts(reduction, program[body.source].schema) for reduction in body.reductions]
        if all(fact.algebra.invertible and not fact.inexact for fact in facts):
            return None
    return "data at rest comes in one push: rows are sorted by key once, without a lookup each"
