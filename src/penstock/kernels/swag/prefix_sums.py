"""Prefix sums: what all rows before a place add up to, subtracted at the two ends of a frame.

For counts and integers that is exact. Compensated sums of floats are nearly so, as long as what lies in a frame
is not far smaller than what lies before it; frames are given again by two stacks where it is, or where a value is
not finite. Prefixes begin anew with every call, so nothing adds up from one to the next.

Cost: a step a row and a difference a frame, which do not wait for each other. Memory: a state a row. Neighbouring
frames whose ends move row by row, as those of regular time do, are vectors.
"""

from __future__ import annotations

from penstock.kernels.monoids import Prefix, Values
from penstock.kernels.swag.slide import Aggregation, Scratch, Slide
from penstock.kernels.swag.two_stacks import two_stacks
from penstock.loop.nodes import BOOL, Buffer, Value, Var, minimum, select

# Prefixes of more rows than this may have lost too much, however alike the rows are.
MOST_ROWS = 1 << 19
# So many frames are looked at together.
CHUNK = 64


def prefix_sums(slide: Slide) -> tuple[Scratch, ...]:
    """Write the loop over rows, the loop over frames, and what to do where they are not enough."""
    k = slide.k
    memory = [
        tuple(k.buffer("prefix", state.type) for state in prefix_of(slide, place).states)
        for place in range(len(slide.monoids))
    ]
    doubt = k.var("doubt", False, BOOL)
    with k.if_(slide.begin < slide.end):
        first = k.var("first", slide.lo[slide.begin])
        k.set(doubt, slide.hi[slide.end - 1] - first > MOST_ROWS)
        with k.if_(~doubt):
            _subtract(slide, memory, first, doubt)
    stacks: tuple[Scratch, ...] = ()
    with k.if_(doubt):
        stacks = two_stacks(slide)
    prefixes = tuple(Scratch(buffer, whole=True) for buffers in memory for buffer in buffers)
    return (*prefixes, *stacks)


def prefix_of(rows: Aggregation, place: int) -> Prefix:
    """How the monoid at a place keeps prefixes."""
    prefix = rows.monoids[place].prefix
    assert prefix is not None, f"{rows.monoids[place].name} has no prefixes"
    return prefix


class _Sums:
    """The state of all rows from the first on, before each row that frames have come to."""

    def __init__(self, slide: Slide, memory: list[tuple[Buffer, ...]], first: Value) -> None:
        self.slide, self.memory, self.first, k = slide, memory, first, slide.k
        self.states = [
            tuple(k.var("before", state.identity, state.type) for state in prefix_of(slide, place).states)
            for place in range(len(memory))
        ]
        self.upto = k.var("upto", first)
        self.slide.store(memory, first - first, self.states)

    def extend(self, last: Value) -> None:
        """Add the rows before `last`, one by one: each waits for the one before it."""
        slide, k = self.slide, self.slide.k
        with k.for_(self.upto, last, "row", scalar=True) as row:
            for place, (values, active) in enumerate(slide.row(row)):
                states = self.states[place]
                slide.put(states, prefix_of(slide, place).step(k, states, values), active)
            slide.store(self.memory, row + 1 - self.first, self.states)
        k.set(self.upto, last)


def _subtract(slide: Slide, memory: list[tuple[Buffer, ...]], first: Value, doubt: Var) -> None:
    """Take frames a chunk at a time, and sum up their rows just before: what was written last is still in the cache."""
    k = slide.k
    f, sums = k.var("chunk", slide.begin), _Sums(slide, memory, first)
    with k.while_(f < slide.end):
        stop = k.var("stop", minimum(f + CHUNK, slide.end))
        sums.extend(k.var("last", slide.hi[stop - 1]))
        lo, hi = k.var("lo", slide.lo[f] - first), k.var("hi", slide.hi[f] - first)
        with k.if_(_move_by_rows(slide, f, stop)), k.for_(0, CHUNK, "i") as i:
            _frame(slide, memory, k.var("f", f + i), (lo + i, hi + i), doubt)
        with k.else_(), k.for_(f, stop, "f") as each:
            _frame(slide, memory, each, (slide.lo[each] - first, slide.hi[each] - first), doubt)
        k.set(f, stop)


def _move_by_rows(slide: Slide, f: Value, stop: Value) -> Value:
    """Whether a whole chunk of frames is one frame moved row by row."""
    k = slide.k
    otherwise = k.var("otherwise", (stop - f).ne(CHUNK), BOOL)
    with k.if_(~otherwise):
        lo, hi = k.var("lo", slide.lo[f] - f), k.var("hi", slide.hi[f] - f)
        with k.for_(f, f + CHUNK, "f") as each:
            k.set(otherwise, otherwise | (slide.lo[each] - each).ne(lo) | (slide.hi[each] - each).ne(hi))
    return ~otherwise


def _frame(
    slide: Slide, memory: list[tuple[Buffer, ...]], f: Value, bounds: tuple[Value, Value], doubt: Var
) -> None:
    k = slide.k
    lo, hi = (k.var("bound", each) for each in bounds)
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
