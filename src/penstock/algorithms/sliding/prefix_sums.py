"""Prefix sums: a frame's aggregate is the difference of the prefix aggregates at its two ends.

For counts and integers that is exact. For compensated float sums it is nearly exact unless a frame's sum is far smaller
than the prefix before it. In that case, or if a value is not finite, two stacks recompute the frames. Prefixes restart
with every call, so errors do not accumulate across calls.

Cost: one step per row and one difference per frame; differences are independent. Memory: one state per row. Frames
whose ends advance row by row, as with regular time, are vectorised.
"""

from __future__ import annotations

from penstock.algorithms.monoids import Prefix, Values
from penstock.algorithms.sliding.slide import Aggregation, Slide, SlideScratch
from penstock.algorithms.sliding.two_stacks import two_stacks
from penstock.loop.nodes import BOOL, Buffer, Value, Var, minimum, select

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
