"""Specialise a node to what its rows have shown on a machine: the only way from the generic plan to a variant.

    PaneAggregate dense, no nulls, 64-bit sums   + a key beyond the dense range   →  PaneAggregate hash, ...

A variant computes the same answer as the generic node. Drivers report what the rows have shown and get the kernels of
the variant from `runtime.variants.Variants`.

    PaneAggregate hash, 128-bit sums   + 1,000 keys in a range of 1,024, sums within 62 bits   →  dense, 64-bit sums

Pure: no clock, no randomness, no state. The runtime applies a decision choice by choice, and leaves out those that wait
because they have failed, or that the engine pins.

    1,000 keys                            →  private      each worker fills its own table, in its cache; they are merged
    1,000,000 keys, alike in frequency    →  partitioned  one table; each worker adds the rows of the keys that it owns
    the same, most rows of few keys       →  private      or shared, by what the merge costs

A pure function of what is known of the keys and the machine. The costs are nanoseconds per row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from penstock.algorithms.hash_table.keys import dense_allowed
from penstock.physical.nodes import Choice, FilterOrder, KeyTable, Node, PaneAggregate, Sharing
from penstock.physical.order_conjuncts import ConjunctCost, order_conjuncts, show_order
from penstock.physical.profile import Profile
from penstock.runtime.adapt.controller import Machine


@dataclass(frozen=True, slots=True)
class PaneProfile:
    """What the rows of a pane aggregate have shown.

    Where their keys fit, the columns with nulls, sums beyond 64 bits; the order of the filter, and how workers share the
    key table; whether neighbouring rows have the same key.
    """

    key_table: KeyTable
    nullable: frozenset[str]
    wide: bool
    order: FilterOrder | None = None
    sharing: Sharing = "private"
    runs: bool = False


ROW_BY_ROW, RUN_BY_RUN = "row by row", "run by run"


def profile_of(op: PaneAggregate) -> PaneProfile:
    """What a variant assumes of its rows: the inverse of `specialise`."""
    return PaneProfile(op.key_table, op.nullable, op.wide, op.order, op.sharing, op.runs)


def runnable(seen: PaneProfile) -> PaneProfile:
    """The variant that a fold runs: only a dense table is shared, by atomic operations only with sums of 64 bits."""
    shares = seen.key_table == "dense" and not (seen.sharing == "shared" and seen.wide)
    found = seen if shares else replace(seen, sharing="private")
    return replace(found, runs=False) if found.sharing == "shared" else found


def specialise(node: Node, profile: PaneProfile, *reasons: Choice) -> Node:
    """Return the variant of a node that holds for these rows; `reasons` replace the usual ones."""
    assert isinstance(node.op, PaneAggregate)
    op = replace(
        node.op,
        key_table=profile.key_table,
        nullable=profile.nullable,
        wide=profile.wide,
        order=profile.order,
        sharing=profile.sharing,
        runs=profile.runs,
    )
    found = {choice.what: choice for choice in (*_choices(profile), *reasons)}
    if profile.order == node.op.order:
        found.pop("filter order", None)  # the plan has the reason
    left = "filter order" if profile.order is None else ""
    kept = [found.pop(choice.what, choice) for choice in node.choices if choice.what != left]
    return replace(node, op=op, choices=(*kept, *found.values()))


_TABLES: dict[KeyTable, str] = {
    "none": "the window has no keys: states stay in registers",
    "dense": "the keys seen lie in a small range: an array index finds a group",
    "hash": "the keys seen lie too far apart for an array",
    "sparse": "few keys occur in a pane: one hash table holds the (pane, key) pairs that occur",
}


_SHARING: dict[Sharing, str] = {
    "private": "each worker fills a table of its own, which are merged",
    "partitioned": "each worker owns a range of the keys of one table, and reads the rows of its own keys",
    "shared": "all workers update one table by atomic operations",
}


def _choices(profile: PaneProfile) -> Iterator[Choice]:
    yield Choice("key table", profile.key_table, _TABLES[profile.key_table])
    sums = "128-bit sums" if profile.wide else "64-bit sums"
    flags = f"null flags for {', '.join(sorted(profile.nullable))}" if profile.nullable else "no null flags"
    if profile.order is not None:
        yield Choice(
            "filter order",
            show_order(profile.order),
            "the cheapest order for the rows that pass each conjunct",
        )
    if profile.runs:
        yield Choice(
            "addition", RUN_BY_RUN, "neighbouring rows have the same key: it is looked up once for a run"
        )
    if profile.sharing != "private":
        yield Choice("key table shared", profile.sharing, _SHARING[profile.sharing])
    yield Choice("state layout", f"{sums}, {flags}", "the narrowest states that hold the rows seen")


ADD = 3.5  # a row, with its cell in the cache of the core
FARTHEST_COST = 10.0  # more, with the cell in memory; a part of it, as the table fills the part of the shared cache for it
READ = 0.8  # to read a row whose key another worker owns
FILTER = 1.5  # to read the columns of a conjunct of the filter, and to test it
ATOMIC_COST = 5.0  # an atomic operation instead of a plain one
CONTENDED = 60.0  # more, if two workers update one cell at the same time
MERGE = 8.0  # a cell of another worker's table: its first page, its merge
SHARING_GAIN = 0.15  # of the estimated cost: what changes for less would change back for noise


@dataclass(frozen=True, slots=True)
class KeyUse:
    """How a dense table of keys is used.

    It has `columns` of `cell_bytes`. `rows` are added before tables are merged, `skew` of them to the most frequent key.
    `states` is the number of atomic operations per row, 0 if a state has none; `conjuncts` are those of the filter.
    """

    columns: int
    cell_bytes: int
    rows: int
    skew: float = 0.0
    states: int = 0
    conjuncts: int = 0


def choose_sharing(use: KeyUse, machine: Machine, now: Sharing = "private") -> tuple[Sharing, str]:
    """Return the way of least estimated cost, and the reason; the present way unless another is clearly cheaper."""
    costs = costs_of(use, machine)
    best = min(costs, key=lambda way: costs[way])
    if now in costs and costs[best] >= (1 - SHARING_GAIN) * costs[now]:
        best = now
    return best, _reason(best, use)


def costs_of(use: KeyUse, machine: Machine) -> dict[Sharing, float]:
    """Estimate the nanoseconds per row of each way that is possible."""
    threads = machine.threads
    if threads == 1:
        return {"private": 0.0}
    size, cold = use.columns * use.cell_bytes, 1 - use.skew
    step = ADD + _memory(size * threads, machine) * cold  # as many tables share the cache
    owned = ADD + (_memory(size, machine) if size > threads * machine.private_cache else 0.0)
    one = ADD + _memory(size, machine) * cold
    filtered = FILTER * use.conjuncts  # by every worker that reads the row
    merged = MERGE * use.columns * (threads - 1) / max(use.rows, 1)
    found: dict[Sharing, float] = {
        "private": (filtered + step) / threads + merged,
        "partitioned": READ
        + filtered
        + ADD * use.skew
        + owned * cold / threads,  # one worker adds the hottest key alone
    }
    if use.states:
        contended = CONTENDED * use.skew * use.skew * (threads - 1) / threads
        found["shared"] = (filtered + one + ATOMIC_COST * use.states) / threads + contended
    return found


def _memory(size: int, machine: Machine) -> float:
    """What a cell costs in tables of so many bytes in all."""
    return 0.0 if size <= machine.private_cache else FARTHEST_COST * min(size / machine.shared_cache, 1.0)


def _reason(taken: Sharing, use: KeyUse) -> str:
    keys = f"{use.columns:,} keys for {use.rows:,} rows"
    skew = f", {use.skew:.0%} of them of one key" if use.skew else ""
    return f"{keys}{skew}: {_WHY[taken]}"


_WHY: dict[Sharing, str] = {
    "private": "tables of their own are merged for less than workers would wait for each other",
    "partitioned": "each worker owns a range of keys, and nothing is merged",
    "shared": "atomic operations cost less than a merge",
}


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
