"""Decide on a variant: from what a sample of rows and the state have shown, on a machine, for the node that runs now.

    PaneAggregate hash, 128-bit sums   + 1,000 keys in a range of 1,024, sums within 62 bits   →  dense, 64-bit sums

Pure: no clock, no randomness, no state. The runtime applies a decision choice by choice, and leaves out those that wait
because they have failed, or that the engine pins.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from penstock.algorithms.hash_table.keys import dense_allowed
from penstock.physical.choose_sharing import KeyUse, choose_sharing
from penstock.physical.nodes import Choice, KeyTable, Node, PaneAggregate
from penstock.physical.order_conjuncts import ConjunctCost, order_conjuncts, show_order
from penstock.physical.profile import Profile
from penstock.physical.specialise import ROW_BY_ROW, RUN_BY_RUN, PaneProfile, specialise
from penstock.runtime.adapt.machine import Machine

# A dense table has at most so many columns for each key in use: it gives way at 16, so that a choice does not flip.
EMPTIEST_CHOSEN = 8
# Rows of one key on average: below the first number they are added one by one, from the second on in registers. Measured:
# half the time at 16 rows where a key is looked up in a hash table, four fifths where it is the index of an array.
RUN_LENGTHS: dict[KeyTable, tuple[float, float]] = {"dense": (8, 16), "hash": (2, 4), "sparse": (2, 4)}


@dataclass(frozen=True, slots=True)
class StateProfile:
    """What the state of a pane aggregate shows.

    `rows` were folded of late: they bound the size of a dense table. `keys` are held; `ranges` are their smallest and
    largest words, with those of the sample, None if no dense table is possible. `narrow`: all sums fit 62 bits.
    `null_free`: nullable columns that have held no null lately, nor in any state. `conjuncts`: what they cost.
    `use`: of a dense table, None unless workers may share it now.
    """

    rows: int
    keys: int = 0
    ranges: tuple[tuple[int, int], ...] | None = None
    narrow: bool = False
    null_free: frozenset[str] = frozenset()
    conjuncts: tuple[ConjunctCost, ...] = ()
    use: KeyUse | None = None


def decide(profile: Profile, state: StateProfile, machine: Machine, node: Node) -> Node:
    """Return the variant that suits what was seen; the node itself where nothing suits better."""
    assert isinstance(node.op, PaneAggregate)
    table, reason = _key_table(profile, state, node.op.key_table)
    wide = node.op.wide and not state.narrow
    nullable = node.op.nullable - state.null_free
    order = order_conjuncts(profile, state.conjuncts, node.op.order)
    sharing, shared_because = node.op.sharing, ""
    if state.use is not None:
        sharing, shared_because = choose_sharing(state.use, machine, node.op.sharing)
    runs = _in_runs(profile, table, node.op.runs)
    seen = PaneProfile(table, nullable, wide, order, sharing, runs)
    reasons = [Choice("key table", table, reason)]
    if runs:
        reasons.append(
            Choice("addition", RUN_BY_RUN, f"{profile.run_length:,.0f} neighbouring rows have the same key")
        )
    if shared_because:
        reasons.append(Choice("key table shared", sharing, shared_because))
    found = specialise(node, seen, *reasons)
    return node if found.op == node.op else found


def _key_table(profile: Profile, state: StateProfile, now: KeyTable) -> tuple[KeyTable, str]:
    if now not in ("hash", "sparse") or state.ranges is None or not profile.rows:
        return now, "as before"
    columns = math.prod(high - low + 2 for low, high in state.ranges)
    if dense_allowed(columns, state.rows) and columns <= EMPTIEST_CHOSEN * max(state.keys, 1):
        return "dense", f"{state.keys:,} keys lie in a range of {columns - 1:,}"
    return now, f"{state.keys:,} keys lie too far apart for an array"


def _in_runs(profile: Profile, table: KeyTable, now: bool) -> bool:
    """Whether to add rows of one key in registers: as before between the lengths at which that loses and gains."""
    length = profile.run_length
    if table not in RUN_LENGTHS or not length:
        return now
    shortest, long = RUN_LENGTHS[table]
    return now if shortest <= length < long else length >= long


class Difference(NamedTuple):
    """One choice that two variants of a node make differently."""

    what: str
    before: str
    after: str
    why: str


def differences(before: Node, after: Node) -> list[Difference]:
    """The choices of a pane aggregate that differ, in the order in which they are applied."""
    assert isinstance(before.op, PaneAggregate)
    assert isinstance(after.op, PaneAggregate)
    why = {choice.what: choice.reason for choice in after.choices}
    return [
        Difference(what, read(before.op), read(after.op), why.get(what, usual))
        for what, (read, usual) in DECISIONS.items()
        if read(before.op) != read(after.op)
    ]


def _flags(op: PaneAggregate) -> str:
    return ", ".join(sorted(op.nullable)) or "none"


# The choices that a run may change: how the plan shows each, and the usual reason to change it.
DECISIONS: dict[str, tuple[Callable[[PaneAggregate], str], str]] = {
    "filter order": (lambda op: show_order(op.order), "the cheapest for the rows that pass each conjunct"),
    "key table shared": (lambda op: op.sharing, "what was seen of the keys"),
    "addition": (
        lambda op: RUN_BY_RUN if op.runs else ROW_BY_ROW,
        "neighbouring rows have different keys",
    ),
    "null flags": (_flags, "no null came of late, and no state holds one"),
    "sums": (lambda op: "128 bits" if op.wide else "64 bits", "all sums fit 62 bits"),
    "key table": (lambda op: op.key_table, "what was seen of the keys"),
}
