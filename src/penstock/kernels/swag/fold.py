"""Add a run of rows to states, in the order of rows and in a form that compilers vectorise.

Integers may be added in any order, so a plain loop is vectorised as it stands. Floats may not: compilers keep
the order in which a program adds them. So floats are added in LANES lanes, row r to lane r mod LANES, which
fixes the order for every machine and is what vector units do.
"""

from __future__ import annotations

from penstock.kernels.swag.slide import Aggregation, States
from penstock.loop.abi import LANES
from penstock.loop.nodes import Value

# Below this, setting up and joining lanes costs more than they save.
_WORTH_LANES = 4 * LANES


def fold_rows(part: Aggregation, states: States, start: Value, count: Value) -> None:
    """Add the rows [start, start + count)."""
    k = part.k
    if not _in_lanes(part):
        with k.for_(0, count, "r") as r:
            part.step(states, k.var("row", start + r))
        return
    done = k.var("done", 0)
    with k.if_(count >= _WORTH_LANES):
        _lanes(part, states, start, count >> 3)
        k.set(done, (count >> 3) << 3)
    with k.for_(done, count, "r") as r:
        part.step(states, k.var("row", start + r))


def fold_few(part: Aggregation, states: States, start: Value, count: int) -> None:
    """Add a number of rows known when the kernel is written."""
    k, done = part.k, 0
    if _in_lanes(part) and count >= _WORTH_LANES:
        done = count // LANES * LANES
        _lanes(part, states, start, count // LANES)
    with k.for_(done, count, "r") as r:
        part.step(states, k.var("row", start + r))


def _in_lanes(part: Aggregation) -> bool:
    floats = any(state.type.is_float for monoid in part.monoids for state in monoid.states)
    return floats and not any(monoid.ordered for monoid in part.monoids)


def _lanes(part: Aggregation, states: States, start: Value, groups: Value | int) -> None:
    k = part.k
    lanes = [part.identities("lane") for _ in range(LANES)]
    with k.for_(0, groups, "g") as g:
        first = k.var("first", start + g * LANES)
        for place, lane in enumerate(lanes):
            part.step(lane, k.var("row", first + place))
    for lane in lanes:
        part.assign(states, part.merged(states, lane))
