"""Choose how the workers of an aggregation share the table of their keys.

    1,000 keys                            →  private      each worker fills its own table, in its cache; they are merged
    1,000,000 keys, alike in frequency    →  partitioned  one table; each worker adds the rows of the keys that it owns
    the same, most rows of few keys       →  private      or shared, by what the merge costs

A pure function of what is known of the keys and the machine. The costs are nanoseconds per row.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.physical.nodes import Sharing
from penstock.runtime.adapt.machine import Machine

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
