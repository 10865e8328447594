"""Add a run of rows to states, in the order of rows and in a form that compilers vectorise.

Integers may be added in any order, so a plain loop is vectorised as it stands. Floats may not: compilers keep
the order in which a program adds them. So floats are added in LANES lanes, row r to lane r mod LANES, which
fixes the order for every machine and is what vector units do. Within a chunk of rows a monoid's cheaper state
is exact enough, where it has one.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.kernels.monoids import Monoid, Values
from penstock.kernels.swag.slide import Aggregation, States
from penstock.loop.abi import LANES
from penstock.loop.nodes import Operand, Value, minimum

_LANE_BITS = 3
_CHUNK = 1024  # rows: a lane then rounds 128 times, which stays far below 1e-12 of what it adds
# Below this, setting up and joining lanes costs more than they save.
_WORTH_LANES = 4 * LANES
# Above this, writing states out once for each lane costs more to compile than it saves.
_MOST_STATES = 8


def fold_rows(part: Aggregation, states: States, start: Value, count: Value) -> None:
    """Add the rows [start, start + count), many of them as a rule."""
    k = part.k
    done = k.var("done", 0)
    if _in_lanes(part.monoids):
        with k.while_(count - done >= _WORTH_LANES):
            groups = k.var("groups", minimum((count - done) >> _LANE_BITS, _CHUNK // LANES))
            _lanes(part, states, k.var("first", start + done), groups)
            k.set(done, done + groups * LANES)
    with k.for_(done, count, "r") as r:
        part.step(states, k.var("row", start + r))


def fold_known(part: Aggregation, states: States, start: Value, count: int) -> None:
    """Add a number of rows known when the kernel is written."""
    k, done = part.k, 0
    if _in_lanes(part.monoids):
        with k.for_(0, count // _CHUNK, "chunk") as chunk:
            _lanes(part, states, k.var("first", start + chunk * _CHUNK), _CHUNK // LANES)
        done = count // _CHUNK * _CHUNK
        groups = (count - done) // LANES
        if groups * LANES >= _WORTH_LANES:
            _lanes(part, states, k.var("first", start + done), groups)
            done += groups * LANES
    with k.for_(done, count, "r") as r:
        part.step(states, k.var("row", start + r))


def _in_lanes(monoids: Sequence[Monoid]) -> bool:
    chosen = [monoid.in_chunk or monoid for monoid in monoids]
    floats = any(state.type.is_float for monoid in chosen for state in monoid.states)
    many = sum(len(monoid.states) for monoid in chosen)
    return floats and many <= _MOST_STATES and not any(monoid.ordered for monoid in monoids)


def _lanes(part: Aggregation, states: States, first: Value, groups: Operand) -> None:
    """Add `groups` times LANES rows."""
    k = part.k
    lighter = part.of([monoid.in_chunk or monoid for monoid in part.monoids])
    lanes = [lighter.identities("lane") for _ in range(LANES)]
    with k.for_(0, groups, "g") as g:
        row = k.var("row", first + g * LANES)
        for place, lane in enumerate(lanes):
            lighter.step(lane, k.var("row", row + place))
    total: Sequence[Values] = lanes[0]
    for lane in lanes[1:]:
        total = lighter.merged(total, lane)
    for monoid, several, added in zip(part.monoids, states, total, strict=True):
        join = monoid.step if monoid.in_chunk else monoid.merge
        part.put(several, join(k, several, added))
