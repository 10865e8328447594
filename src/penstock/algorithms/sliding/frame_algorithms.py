"""Algorithms over frames of rows: recompute, subtract-on-evict, two stacks (Hammer Slide), prefix sums.

Integers may be added in any order, so compilers vectorise a plain loop. Compilers preserve the order of float
additions. So floats are added in LANES SIMD lanes, row r to lane r mod LANES: the order is then the same on every
machine, and it suits vector units. Within a chunk of rows a monoid's cheaper `in_chunk` state, if any, is exact enough.

Cost: the sum of the windows' sizes. State: none.

Cost: two steps per row, independent of the windows' size. State: one.

    rows       lo ............ mid .......... hi
               front: aggregates back: one
               of [lo, mid)      state of [mid, hi)

A *flip* turns the rows of the current frame into the front: backwards from the frame's end, `mid`, it stores the
aggregate of [lo[g], mid) for every later frame g that starts before `mid`. Until a frame starts at or after `mid`, a
result is one merge of the front at its start with the back. So frames form blocks, from flip to flip: one backward
and one forward pass, without a branch per row.

The front has one aggregate per frame start; the rows between two starts are reduced in one loop. In dense slides,
where nearly every row is a start, it has one aggregate per row.

Cost: two steps per row and two merges per frame, independent of the windows' size. Memory: one state per row of the
longest frame, of which only those at starts are written. Merges always have the order (older, newer).

For counts and integers that is exact. For compensated float sums it is nearly exact unless a frame's sum is far smaller
than the prefix before it. In that case, or if a value is not finite, two stacks recompute the frames. Prefixes restart
with every call, so errors do not accumulate across calls.

Cost: one step per row and one difference per frame; differences are independent. Memory: one state per row. Frames
whose ends advance row by row, as with regular time, are vectorised.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.algorithms.monoids import Monoid, Prefix, Values
from penstock.algorithms.sliding.slide import Aggregation, Memory, Slide, SlideScratch, States, scratch
from penstock.loop.abi import LANES
from penstock.loop.nodes import BOOL, I64, Buffer, Operand, Value, Var, const, minimum, select

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


def recompute(slide: Slide) -> tuple[SlideScratch, ...]:
    """Emit the loop over frames."""
    k = slide.k
    with k.for_(slide.begin, slide.end, "f") as f:
        start = k.var("start", slide.lo[f])
        states = slide.identities("state")
        fold_rows(slide, states, start, k.var("count", slide.hi[f] - start))
        slide.emit(f, states)
    return ()


def subtract_on_evict(slide: Slide) -> tuple[SlideScratch, ...]:
    """Emit the loop over frames: subtract evicted rows, add new rows."""
    k = slide.k
    states = slide.identities("state")
    first, last = k.var("first", 0), k.var("last", 0)  # the rows in the states
    with k.for_(slide.begin, slide.end, "f") as f:
        lo, hi = k.var("lo", slide.lo[f]), k.var("hi", slide.hi[f])
        with k.if_(lo >= last):
            _start_again(slide, states, first, last, lo)
        with k.for_(first, lo, "out", scalar=slide.dense) as row:
            slide.remove(states, row)
        with k.for_(last, hi, "in", scalar=slide.dense) as row:
            slide.step(states, row)
        k.set(first, lo)
        k.set(last, hi)
        slide.emit(f, states)
    return ()


def _start_again(slide: Slide, states: States, first: Var, last: Var, lo: Value) -> None:
    """Reset the states when all rows have left; this also discards rounding errors."""
    slide.reset(states)
    slide.k.set(first, lo)
    slide.k.set(last, lo)


def two_stacks(slide: Slide) -> tuple[SlideScratch, ...]:
    """Emit the loop over blocks of frames."""
    k = slide.k
    suffix = slide.memory("suffix")
    f = k.var("f", slide.begin)
    with k.while_(f < slide.end):
        first, mid = k.var("first", slide.lo[f]), k.var("mid", slide.hi[f])
        if slide.dense:
            _flip_rows(slide, suffix, first, mid)
        else:
            _flip_starts(slide, suffix, f, first, mid)
        _forward(slide, suffix, f, first, mid)
    return scratch(suffix)


def _served(slide: Slide, f: Value, mid: Value) -> Value:
    """Return whether frame f exists and starts before `mid`."""
    last = minimum(f, slide.end - 1)
    return (f < slide.end) & (slide.lo[last] < mid)


def _flip_starts(slide: Slide, suffix: Memory, f: Value, first: Value, mid: Value) -> None:
    """Store the aggregate of [lo[g], mid) for the frames g of the block, last to first."""
    k = slide.k
    stop = k.var("stop", f + 1)
    with k.while_(_served(slide, stop, mid)):
        k.set(stop, stop + 1)
    front, upto = slide.identities("front"), k.var("upto", mid)
    with k.for_(0, stop - f, "distance") as distance:
        start = k.var("start", slide.lo[stop - 1 - distance])
        between = slide.identities("between")
        fold_rows(slide, between, start, k.var("count", upto - start))
        slide.assign(front, slide.merged(between, front))
        slide.store(suffix, start - first, front)
        k.set(upto, start)


def _flip_rows(slide: Slide, suffix: Memory, first: Value, mid: Value) -> None:
    """Store the aggregate of [row, mid) for every row of the first frame, last to first."""
    k = slide.k
    front = slide.identities("front")
    slide.store(suffix, 0, front)  # for an empty frame
    with k.for_(0, mid - first, "distance") as distance:
        row = k.var("row", mid - 1 - distance)
        slide.step_before(front, row)
        slide.store(suffix, row - first, front)


def _forward(slide: Slide, suffix: Memory, f: Var, first: Value, mid: Value) -> None:
    """Add the newer rows frame by frame and emit; leave f at the next block's first frame."""
    k = slide.k
    back, upto = slide.identities("back"), k.var("upto", mid)
    block = k.var("block", f)
    with k.while_(f.eq(block) | _served(slide, f, mid)):
        hi = k.var("hi", slide.hi[f])
        if slide.dense:
            with k.for_(upto, hi, "r", scalar=True) as r:
                slide.step(back, r)
        else:
            fold_rows(slide, back, upto, k.var("count", hi - upto))
        k.set(upto, hi)
        front = slide.load(suffix, k.var("place", slide.lo[f] - first))
        slide.emit(k.var("g", f), slide.merged(front, back))
        k.set(f, f + 1)


# Prefixes of more rows than this may lose too much precision, however similar the rows are.
MOST_PREFIX_ROWS = 1 << 19
# Frames tested at once.
PREFIX_CHUNK = 64


def prefix_sums(slide: Slide) -> tuple[SlideScratch, ...]:
    """Emit the loop over rows, the loop over frames, and the fallback to two stacks."""
    k = slide.k
    memory = [
        tuple(k.buffer("prefix", state.type) for state in prefix_of(slide, place).states)
        for place in range(len(slide.monoids))
    ]
    doubt = k.var("doubt", False, BOOL)
    with k.if_(slide.begin < slide.end):
        first = k.var("first", slide.lo[slide.begin])
        k.set(doubt, slide.hi[slide.end - 1] - first > MOST_PREFIX_ROWS)
        with k.if_(~doubt):
            _subtract(slide, memory, first, doubt)
    stacks: tuple[SlideScratch, ...] = ()
    with k.if_(doubt):
        stacks = two_stacks(slide)
    prefixes = tuple(SlideScratch(buffer, whole=True) for buffers in memory for buffer in buffers)
    return (*prefixes, *stacks)


def prefix_of(rows: Aggregation, place: int) -> Prefix:
    """Return the prefix definition of the monoid at a position."""
    prefix = rows.monoids[place].prefix
    assert prefix is not None, f"{rows.monoids[place].name} has no prefixes"
    return prefix


class _Sums:
    """The prefix states from `first` up to the last row that frames have reached."""

    def __init__(self, slide: Slide, memory: list[tuple[Buffer, ...]], first: Value) -> None:
        self.slide, self.memory, self.first, k = slide, memory, first, slide.k
        self.states = [
            tuple(k.var("before", state.identity, state.type) for state in prefix_of(slide, place).states)
            for place in range(len(memory))
        ]
        self.upto = k.var("upto", first)
        self.slide.store(memory, first - first, self.states)

    def extend(self, last: Value) -> None:
        """Extend the prefixes up to `last`, in a loop of dependent steps."""
        slide, k = self.slide, self.slide.k
        with k.for_(self.upto, last, "row", scalar=True) as row:
            for place, (values, active) in enumerate(slide.row(row)):
                states = self.states[place]
                slide.put(states, prefix_of(slide, place).step(k, states, values), active)
            slide.store(self.memory, row + 1 - self.first, self.states)
        k.set(self.upto, last)


def _subtract(slide: Slide, memory: list[tuple[Buffer, ...]], first: Value, doubt: Var) -> None:
    """Emit the loop over chunks of frames. Prefixes are extended just before use, so they are still in the cache."""
    k = slide.k
    f, sums = k.var("chunk", slide.begin), _Sums(slide, memory, first)
    with k.while_(f < slide.end):
        stop = k.var("stop", minimum(f + PREFIX_CHUNK, slide.end))
        sums.extend(k.var("last", slide.hi[stop - 1]))
        lo, hi = k.var("lo", slide.lo[f] - first), k.var("hi", slide.hi[f] - first)
        with k.if_(_move_by_rows(slide, f, stop)), k.for_(0, PREFIX_CHUNK, "i") as i:
            _frame(slide, memory, k.var("f", f + i), (lo + i, hi + i), doubt)
        with k.else_(), k.for_(f, stop, "f") as frame:
            _frame(slide, memory, frame, (slide.lo[frame] - first, slide.hi[frame] - first), doubt)
        k.set(f, stop)


def _move_by_rows(slide: Slide, f: Value, stop: Value) -> Value:
    """Return whether the frames of a full chunk advance by exactly one row each."""
    k = slide.k
    otherwise = k.var("otherwise", (stop - f).ne(PREFIX_CHUNK), BOOL)
    with k.if_(~otherwise):
        lo, hi = k.var("lo", slide.lo[f] - f), k.var("hi", slide.hi[f] - f)
        with k.for_(f, f + PREFIX_CHUNK, "f") as frame:
            k.set(otherwise, otherwise | (slide.lo[frame] - frame).ne(lo) | (slide.hi[frame] - frame).ne(hi))
    return ~otherwise


def _frame(
    slide: Slide, memory: list[tuple[Buffer, ...]], f: Value, bounds: tuple[Value, Value], doubt: Var
) -> None:
    k = slide.k
    lo, hi = (k.var("bound", bound) for bound in bounds)
    found: list[Values] = []
    for place, buffers in enumerate(memory):
        ends = tuple(tuple(k.var("prefix", buffer[at]) for buffer in buffers) for at in (hi, lo))
        values, lost = prefix_of(slide, place).between(k, *ends)
        nothing = slide.monoids[place].states
        found.append(
            tuple(
                k.var("between", select(lo < hi, value, state.identity))
                for value, state in zip(values, nothing, strict=True)
            )
        )
        k.set(doubt, doubt | (lost & (lo < hi)))
    slide.emit(f, found)
