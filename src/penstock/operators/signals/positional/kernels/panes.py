"""Reduce the entries of one pane in SIMD lanes, merged in a fixed order: results do not depend on block bounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from penstock.algorithms.monoids import Values
from penstock.algorithms.monoids.base import either as chosen
from penstock.algorithms.monoids.moments import distance
from penstock.algorithms.partials.needs import MOMENTS
from penstock.loop.abi import LANES
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import F64, I64, Value, Var, const, select
from penstock.operators.signals.positional.kernels.light_moments import LIGHT_MOMENTS
from penstock.operators.signals.positional.kernels.reductions import TrackAlgebra

Contribution = Callable[[Value], tuple[Values, Value | None]]
Step = Callable[[Value, tuple[Var, ...]], None]


@dataclass(frozen=True, slots=True)
class Entries:
    """Consecutive entries, the contribution of each, and the maximum number of SIMD lanes."""

    first: Value
    count: int
    bring: Contribution
    lanes: int = LANES

    def in_lanes(self, most: int) -> Entries:
        return replace(self, lanes=min(self.lanes, most))


def reduced(k: KernelBuilder, algebra: TrackAlgebra, entries: Entries, kind: str) -> Values:
    """The state of all entries."""
    if kind in MOMENTS:
        return _moments(k, algebra, entries, MOMENTS.index(kind) + 2)
    monoid = algebra.monoid
    start = tuple((part.identity, part.type) for part in monoid.states)

    def step(entry: Value, state: tuple[Var, ...]) -> None:
        values, active = entries.bring(entry)
        new = monoid.step(k, state, values)
        new = new if active is None else chosen(k.var("active", active), new, state)
        for var, value in zip(state, [k.var("new", value) for value in new], strict=True):
            k.set(var, value)

    # Integers may be added in any order: LLVM chooses their lanes.
    exact = not any(part.type.is_float for part in monoid.states)
    lanes = _in_lanes(k, entries.in_lanes(1) if exact else entries, start, step)
    return _joined(lanes, lambda a, b: monoid.merge(k, a, b))


def _in_lanes(
    k: KernelBuilder, entries: Entries, start: Sequence[tuple[float, object]], step: Step
) -> list[Values]:
    """Reduce entry i in lane i mod the number of lanes; few entries use one lane."""
    lanes = entries.lanes if entries.count >= 2 * entries.lanes else 1
    states = [tuple(k.var("lane", value, type) for value, type in start) for _ in range(lanes)]  # type: ignore[arg-type]
    whole = entries.count // lanes
    with k.for_(0, whole, "g") as group:
        first = k.var("entry", entries.first + group * lanes)
        for lane, state in enumerate(states):
            step(first + lane if lane else first, state)
    for rest in range(entries.count - whole * lanes):
        step(k.var("entry", entries.first + (whole * lanes + rest)), states[rest])
    return list(states)


def _joined(lanes: Sequence[Values], merge: Callable[[Values, Values], Values]) -> Values:
    """Merge neighbours pairwise, in a tree."""
    while len(lanes) > 1:
        lanes = [merge(a, b) for a, b in zip(lanes[::2], lanes[1::2], strict=True)]
    return lanes[0]


def _added(a: Values, b: Values) -> Values:
    return tuple(x + y for x, y in zip(a, b, strict=True))


def _moments(k: KernelBuilder, algebra: TrackAlgebra, entries: Entries, order: int) -> Values:
    """Compute moments in two passes over the pane: the mean, then powers of the distances from it.

    The error of the mean equals the mean of the distances; it is corrected to the first order.
    """
    total, count = _totals(k, algebra, entries)
    n = k.var("n", count.to(F64))
    mean = k.var("mean", total.div(n))

    def step(entry: Value, state: tuple[Var, ...]) -> None:
        values, active = entries.bring(entry)
        off = distance(k, values[0], mean)
        far = k.var("far", off if active is None else select(active, off, 0.0))
        power: Value = far
        for place, var in enumerate(state):
            if place:
                power = k.var("power", power * far)
            k.set(var, var + power)

    # Several independent sums saturate the processor with half the lanes, and the code is half as long.
    lanes = _in_lanes(k, entries.in_lanes(LANES // 2) if order > 2 else entries, [(0.0, F64)] * order, step)
    off, *powers = (k.var("sum", value) for value in _joined(lanes, _added))
    share = k.var("share", off.div(n))
    new = [powers[0] - off * share]
    if order > 2:
        new.append(powers[1] - powers[0] * share * 3)
    if order > 3:
        new.append(powers[2] - powers[1] * share * 4)
    # A mean of one float includes the correction.
    light = algebra.monoid.name in LIGHT_MOMENTS
    state = (count, mean + share, const(0.0, F64), *new) if light else (count, mean, share, *new)
    if algebra.known:
        return state
    nothing = tuple(const(part.identity, part.type) for part in algebra.monoid.states)
    return chosen(count.eq(0), nothing, state)


def _totals(k: KernelBuilder, algebra: TrackAlgebra, entries: Entries) -> tuple[Value, Value]:
    """The sum and the number of all values."""

    def step(entry: Value, state: tuple[Var, ...]) -> None:
        values, active = entries.bring(entry)
        value = values[0].to(F64)
        k.set(state[0], state[0] + (value if active is None else select(active, value, 0.0)))
        if len(state) > 1:
            k.set(state[1], state[1] + (const(1, I64) if active is None else active.to(I64)))

    start: list[tuple[float, object]] = [(0.0, F64)] if algebra.known else [(0.0, F64), (0, I64)]
    total, *count = _joined(_in_lanes(k, entries, start, step), _added)
    return total, k.var("count", count[0] if count else const(entries.count, I64))
