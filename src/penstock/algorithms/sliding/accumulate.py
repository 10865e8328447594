"""Add a range of rows to states, in row order and in a form that compilers vectorise.

Integers may be added in any order, so compilers vectorise a plain loop. Compilers preserve the order of float
additions. So floats are added in LANES SIMD lanes, row r to lane r mod LANES: the order is then the same on every
machine, and it suits vector units. Within a chunk of rows a monoid's cheaper `in_chunk` state, if any, is exact enough.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.algorithms.monoids import Monoid
from penstock.algorithms.sliding.slide import Aggregation, States
from penstock.loop.abi import LANES
from penstock.loop.nodes import I64, Operand, Value, const, minimum

Streams = Sequence[tuple[States, Value]]  # states, and the first row to add to them

_LANE_BITS = 3
LONGEST_CHAIN = (
    8192  # dependent plain additions of floats: the error is at most 1e-12 of the summed magnitude
)
_CHUNK = 8192  # rows
_MORE_LANES, _WORTH_MORE = (
    2 * LANES,
    128,
)  # from 128 rows on, twice the lanes hide the latency of additions
_MOST_MONOIDS = 4
_WORTH_LANES = 2 * LANES  # rows: below this, initialising and merging lanes costs more than they save
# Above this, unrolling states per lane costs more compile time than it saves.
_MOST_STATES = 8


def fold_rows(part: Aggregation, states: States, start: Value, count: Value) -> None:
    """Add the rows [start, start + count), typically many."""
    k = part.k
    done = k.var("done", 0)
    if _in_lanes(part.monoids):
        with k.while_(count - done >= _WORTH_LANES):
            groups = k.var("groups", minimum((count - done) >> _LANE_BITS, _CHUNK // LANES))
            _lanes(part, [(states, k.var("first", start + done))], groups)
            k.set(done, done + groups * LANES)
    with k.for_(done, count, "r") as r:
        part.step(states, k.var("row", start + r))


def fold_known(part: Aggregation, states: States, start: Value, count: int) -> None:
    """Add a number of rows known at build time."""
    many = _MORE_LANES if count >= _WORTH_MORE and light(part.monoids) else LANES
    fold_streams(part, [(states, start)], count, many)


def fold_streams(part: Aggregation, streams: Streams, count: int, many: int = LANES) -> None:
    """Add `count` rows to each stream's states, interleaved. Each stream has `many` lanes, however many streams there are."""
    k, done = part.k, 0
    if _in_lanes(part.monoids):
        with k.for_(0, count // _CHUNK, "chunk") as chunk:
            _lanes(part, _moved(part, streams, chunk * _CHUNK), _CHUNK // many, many=many)
        done = count // _CHUNK * _CHUNK
        groups, rest = divmod(count - done, many)
        if groups * many >= _WORTH_LANES:
            _lanes(part, _moved(part, streams, const(done, I64)), groups, rest, many)
            return
    with k.for_(done, count, "r") as r:
        for states, start in streams:
            part.step(states, k.var("row", start + r))


def _moved(part: Aggregation, streams: Streams, by: Value) -> Streams:
    return [(states, part.k.var("first", start + by)) for states, start in streams]


def _in_lanes(monoids: Sequence[Monoid]) -> bool:
    chosen = [monoid.in_chunk or monoid for monoid in monoids]
    many = sum(len(monoid.states) for monoid in chosen)
    return has_floats(chosen) and many <= _MOST_STATES and not any(monoid.ordered for monoid in monoids)


def has_floats(monoids: Sequence[Monoid]) -> bool:
    """Return whether a state is a float, so that the order of merges affects the last bits."""
    return any(state.type.is_float for monoid in monoids for state in monoid.states)


def light(monoids: Sequence[Monoid]) -> bool:
    """Return whether states are small enough to unroll for every lane."""
    return len(monoids) <= _MOST_MONOIDS and all(len(monoid.states) == 1 for monoid in monoids)


def _lanes(part: Aggregation, streams: Streams, groups: Operand, rest: int = 0, many: int = LANES) -> None:
    """Add `groups * many` rows and then `rest` more to each stream's states."""
    k = part.k
    lighter = part.of([monoid.in_chunk or monoid for monoid in part.monoids])
    several = [[lighter.identities("lane") for _ in range(many)] for _ in streams]
    with k.for_(0, groups, "g") as g:
        for lanes, (_, first) in zip(several, streams, strict=True):
            _step_lanes(lighter, lanes, k.var("row", first + g * many))
    for lanes, (states, first) in zip(several, streams, strict=True):
        _step_lanes(lighter, lanes[:rest], k.var("row", first + groups * many))
        _joined(part, lighter, states, lanes)


def _step_lanes(part: Aggregation, lanes: Sequence[States], row: Value) -> None:
    for place, lane in enumerate(lanes):
        part.step(lane, part.k.var("row", row + place))


def _joined(part: Aggregation, lighter: Aggregation, states: States, lanes: Sequence[States]) -> None:
    """Merge the lanes, and add their total to the states."""
    (total,) = _halved(lighter, _written(lighter, lanes))
    for monoid, several, added in zip(part.monoids, states, total, strict=True):
        join = monoid.step if monoid.in_chunk else monoid.merge
        part.put(several, join(part.k, several, added))


def _written(part: Aggregation, lanes: Sequence[States]) -> Sequence[States]:
    """Store the lanes contiguously and load them again.

    Compilers turn contiguous stores into vectors of full width. Merged directly, lanes would become vectors of two,
    the width of the last merge.
    """
    memory = part.local("lanes", len(lanes))
    for place, lane in enumerate(lanes):
        part.store(memory, place, lane)
    return [part.load(memory, place, fresh=True) for place in range(len(lanes))]


def _halved(part: Aggregation, lanes: Sequence[States]) -> Sequence[States]:
    """Merge the first half of the lanes with the second until one is left: logarithmic depth, and vectorisable."""
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = [part.merged(a, b) for a, b in zip(lanes[:half], lanes[half:], strict=True)]
    return lanes
