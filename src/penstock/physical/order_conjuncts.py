"""Order the conjuncts of a filter by what a sample has shown: which are computed for every row, and which on survivors.

    f >= 1 & g >= 2 & h >= 3   + g keeps 1 % of the rows   →  ((1,), (0,), (2,)): g for every row, then f, then h

A group of conjuncts is computed together. The first group reads every row in SIMD lanes without branches and fills the
selection vector; each later group reads the selected rows and shortens it. So a cheap conjunct that keeps most rows
belongs into the first group, and one behind a selective conjunct costs next to nothing.

A conjunct that can fail is computed for every row, whatever the order: the same rows fail under each order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from penstock.physical.nodes import FilterOrder
from penstock.physical.profile import MASKED, Profile

# Nanoseconds, measured on the fold kernel with 64-bit columns: to read a row in lanes, most of it for memory; a selected
# row alone, with its value in the cache; and the rest of the fold.
IN_LANES, LINE_COST = 0.55, 0.5
LONE_COST = 1.2
REST_OF_FOLD = 1.5
LINE = 8  # values that come from memory together
ORDERING_GAIN = 0.15  # of the estimated cost: an order that saves less is not worth new code
GUESSED_GAIN = 0.25  # the same before any row was seen
DEAR = 1.5  # nanoseconds in lanes: lists, texts, divisions


@dataclass(frozen=True, slots=True)
class ConjunctCost:
    """What is known of a conjunct without rows: its nanoseconds per row in a kernel, and whether it can fail.

    `guess` is the share of rows that a planner expects it to keep. Texts are compared row by row, not in `lanes`.
    """

    kernel: float
    total: bool = True
    guess: float = 0.5
    lanes: bool = True

    @property
    def in_lanes(self) -> float:
        return IN_LANES + (self.kernel / 4 if self.lanes else self.kernel)

    def alone(self, share: float) -> float:
        """The cost per row of all rows if only this share is selected: memory delivers whole lines."""
        return float(share * (LONE_COST + self.kernel) + (1 - (1 - share) ** LINE) * LINE_COST)


def guessed_order(costs: Sequence[ConjunctCost]) -> FilterOrder | None:
    """Return the order before any row was seen: expensive conjuncts on survivors of cheap ones, where that saves much.

    a == 1 & b in (34 values)   →  ((0,), (1,)): b is looked up for the rows that pass a

    Cheap conjuncts are computed together: which of them drops most rows only a sample shows.
    """
    dear = [number for number, cost in enumerate(costs) if cost.total and cost.in_lanes >= DEAR]
    first = tuple(number for number in range(len(costs)) if number not in dear)
    if not dear or not first:
        return None
    counted = range(min(len(costs), MASKED))
    shares = [prod(costs[n].guess for n in counted if mask >> n & 1) for mask in range(1 << len(counted))]
    order = (first, *((number,) for number in sorted(dear, key=lambda number: costs[number].kernel)))
    together = cost_of((tuple(range(len(costs))),), shares, costs)
    return order if cost_of(order, shares, costs) < (1 - GUESSED_GAIN) * together else None


def order_conjuncts(
    profile: Profile, costs: Sequence[ConjunctCost], now: FilterOrder | None
) -> FilterOrder | None:
    """Return the order of least estimated cost; the present one if the gain is small. None: all for every row."""
    if len(costs) < 2 or not profile.rows or not profile.masks:
        return now
    shares = _shares(profile, min(len(costs), MASKED))
    best = _cheapest(shares, costs)
    present = now or (tuple(range(len(costs))),)
    if cost_of(best, shares, costs) >= (1 - ORDERING_GAIN) * cost_of(present, shares, costs):
        return now
    return None if len(best) == 1 else best


def cost_of(order: FilterOrder, shares: Sequence[float], costs: Sequence[ConjunctCost]) -> float:
    """Estimate the nanoseconds per row of an order; `shares[mask]` is the share that passes the conjuncts of a mask."""
    total = REST_OF_FOLD + sum(costs[number].in_lanes for number in order[0])
    passed = _mask(order[0])
    for group in order[1:]:
        share = shares[passed & (len(shares) - 1)]
        total += sum(costs[number].alone(share) for number in group)
        passed |= _mask(group)
    return total


def _mask(numbers: Sequence[int]) -> int:
    return sum(1 << number for number in numbers)


def _shares(profile: Profile, counted: int) -> list[float]:
    """For each set of conjuncts the share of rows that pass all of them; a share is never quite 0 or 1."""
    rows, found = profile.rows, list(profile.masks)
    for number in range(counted):  # sums over supersets, one conjunct at a time
        for mask in range(1 << counted):
            if not mask >> number & 1:
                found[mask] += found[mask | 1 << number]
    return [(count + 0.5) / (rows + 1) for count in found]


def _cheapest(shares: Sequence[float], costs: Sequence[ConjunctCost]) -> FilterOrder:
    """The best order by dynamic programming over sets of conjuncts; those not counted are computed last, together."""
    counted = min(len(costs), MASKED)
    everyone = (1 << counted) - 1
    fixed = _mask([number for number in range(counted) if not costs[number].total])
    best: dict[int, tuple[float, FilterOrder]] = {}
    for mask in range(1, 1 << counted):  # a set comes after all of its subsets
        if mask & fixed == fixed:
            best[mask] = _best_of(mask, best, shares, costs)
    order = best[everyone][1]
    rest = tuple(range(counted, len(costs)))
    late = tuple(number for number in rest if costs[number].total)
    first = tuple(number for number in rest if not costs[number].total)
    return ((*order[0], *first), *order[1:], *((late,) if late else ()))


def _best_of(
    mask: int,
    best: dict[int, tuple[float, FilterOrder]],
    shares: Sequence[float],
    costs: Sequence[ConjunctCost],
) -> tuple[float, FilterOrder]:
    """The best order of a set: all for every row, or the best of a subset with one conjunct more."""
    numbers = tuple(number for number in range(len(costs)) if mask >> number & 1)
    found: tuple[float, FilterOrder] = sum(costs[number].in_lanes for number in numbers), (numbers,)
    for number in numbers:
        before = best.get(mask & ~(1 << number))
        if before is not None:
            cost = before[0] + costs[number].alone(shares[mask & ~(1 << number)])
            if cost < found[0]:
                found = cost, (*before[1], (number,))
    return found


def show_order(order: FilterOrder | None) -> str:
    """Show an order by the numbers of the conjuncts.

    >>> show_order(((1,), (0, 2))), show_order(None)
    ('1, then 0 & 2', 'all at once')
    """
    if order is None:
        return "all at once"
    return ", then ".join(" & ".join(map(str, group)) for group in order)
