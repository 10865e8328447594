"""The fold without keys: reduce a chunk into locals, then add those to the pane once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.algorithms.expressions.cells import conjunction
from penstock.algorithms.monoids import Monoid, Values
from penstock.algorithms.sliding.accumulate import has_floats
from penstock.loop.abi import LANES, NEED_SLOTS, NEED_WIDE
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import I64, U64, Overflows, Value, Var, const, select
from penstock.operators.pane_aggregate.kernels.fold_steps.frame import FOLD_CHUNK, FoldFrame, Update
from penstock.operators.pane_aggregate.kernels.fold_steps.panes import CurrentPane

MOST_STATES_IN_LANES = 8
LARGEST_IN_CHUNK = (1 << 63) // FOLD_CHUNK  # a chunk of values below this cannot overflow 64 bits

Totals = list[tuple[Var, ...]]


@dataclass
class ChunkReduction:
    """Reduces a chunk of `n` rows that lies in one pane.

    Inside the chunk a 64-bit sum may wrap: `magnitudes`, the disjunction of the bits of all values, bounds
    whether that can have happened. `matched` counts the rows that pass the filter.
    """

    frame: FoldFrame
    pane: CurrentPane
    n: Var
    monoids: list[Monoid] = field(init=False)
    matched: Var = field(init=False)
    magnitudes: list[Var | None] = field(init=False)

    def write(self) -> None:
        k, monoids = self.frame.k, self.frame.spec.monoids
        in_lanes = has_floats(monoids) and _light(monoids)
        self.monoids = [(monoid.in_chunk if in_lanes else None) or monoid for monoid in monoids]
        self.matched = k.var("matched", 0)
        self.magnitudes = [k.var("magnitude", 0) if monoid.guarded else None for monoid in monoids]
        total = self._in_lanes() if in_lanes else self._in_order()
        with k.if_(self.matched > 0):
            self._add_total(total)
        self.frame.tally(self.n, self.matched)

    def _in_order(self) -> Sequence[Values]:
        totals = self._identities("sum")
        with self.frame.k.for_(0, self.n, "r") as r:
            self._step(totals, self.frame.at + r)
        return totals

    def _in_lanes(self) -> Sequence[Values]:
        """Sum floats in LANES fixed lanes: the same order, hence the same result, on every CPU."""
        k, at = self.frame.k, self.frame.at
        lanes = [self._identities("lane") for _ in range(LANES)]
        with k.for_(0, self.n >> 3, "g") as g:
            for place, totals in enumerate(lanes):
                self._step(totals, at + g * LANES + place)
        with k.for_((self.n >> 3) << 3, self.n, "r") as r:
            self._step(lanes[0], at + r)
        merged: Sequence[Values] = lanes[0]
        for totals in lanes[1:]:
            merged = [m.merge(k, a, b) for m, a, b in zip(self.monoids, merged, totals, strict=True)]
        return merged

    def _identities(self, hint: str) -> Totals:
        return [
            tuple(self.frame.k.var(hint, state.identity, state.type) for state in monoid.states)
            for monoid in self.monoids
        ]

    def _step(self, totals: Totals, row: Value) -> None:
        k = self.frame.k
        at = k.var("row", row)
        passed = self.frame.passes(at)
        passed = None if passed is None else k.var("passed", passed)
        for m, (values, active) in enumerate(self.frame.contributions(at, passed)):
            self._step_one(m, totals[m], values, conjunction(passed, active))
        k.set(self.matched, self.matched + (const(1, I64) if passed is None else passed.to(I64)))

    def _step_one(self, m: int, total: tuple[Var, ...], values: Values, active: Value | None) -> None:
        k, magnitude = self.frame.k, self.magnitudes[m]
        if magnitude is not None:
            k.set(magnitude, magnitude | _magnitude(k, values[0]))
        stepped = [k.var("next", new) for new in self.monoids[m].step(k, total, values)]
        for target, new in zip(total, stepped, strict=True):
            k.set(target, new if active is None else select(active, new, target))

    # -- into the pane -----------------------------------------------------------------------------

    def _add_total(self, totals: Sequence[Values]) -> None:
        frame, k = self.frame, self.frame.k
        slot = frame.panes.find(k, self.pane.number, lambda: frame.leave(NEED_SLOTS, frame.at))
        place = k.var("place", slot * frame.width)
        updates = [self._update(m, place, total) for m, total in enumerate(totals)]
        for magnitude, update, total in zip(self.magnitudes, updates, totals, strict=True):
            if magnitude is not None:
                self._check(magnitude, update.old[0], total[0])
        for update in updates:
            for buffer, value in zip(update.buffers, update.new, strict=True):
                k.store(buffer, place, value)

    def _update(self, m: int, place: Value, total: Values) -> Update:
        """Merge a chunk's total into the pane, or step with it where the chunk's state is simpler."""
        k, monoid, buffers = self.frame.k, self.frame.spec.monoids[m], self.frame.states[m]
        old = tuple(k.var("old", buffer[place]) for buffer in buffers)
        plainer = self.monoids[m] is not monoid
        return Update(buffers, old, monoid.step(k, old, total) if plainer else monoid.merge(k, old, total))

    def _check(self, magnitude: Value, old: Value, total: Value) -> None:
        """Abandon the chunk if its 64-bit total may have wrapped, or overflows the pane's."""
        wraps = (magnitude >= LARGEST_IN_CHUNK) | Overflows("add", old, total)
        with self.frame.k.if_(wraps):
            self.frame.leave(NEED_WIDE, self.frame.at)


def _magnitude(k: KernelBuilder, value: Value) -> Value:
    """Bits that bound a value's magnitude; all bits if an unsigned value does not fit 64 signed bits."""
    bits = k.var("bits", value.to(I64))
    if value.type == U64:
        return select(bits < 0, const((1 << 63) - 1, I64), bits)
    return bits ^ (bits >> 63)


def _light(monoids: Sequence[Monoid]) -> bool:
    """Whether states are few enough to be repeated per lane: repetition costs compile time."""
    chosen = [monoid.in_chunk or monoid for monoid in monoids]
    return sum(len(monoid.states) for monoid in chosen if len(monoid.states) > 1) <= MOST_STATES_IN_LANES
