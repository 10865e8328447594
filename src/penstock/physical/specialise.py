"""Specialise a node to what its rows have shown: the only way from the generic plan to a variant.

    PaneAggregate dense, no nulls, 64-bit sums   + a key beyond the dense range   →  PaneAggregate hash, ...

A variant computes the same answer as the generic node. Drivers report what the rows have shown and get the kernels of
the variant from `runtime.variants.Variants`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from penstock.physical.nodes import Choice, FilterOrder, KeyTable, Node, PaneAggregate, Sharing
from penstock.physical.order_conjuncts import show_order


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
