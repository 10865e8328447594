"""Two stacks (Hammer Slide): suffix aggregates of the older rows, one running state of the newer. For any monoid.

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
"""

from __future__ import annotations

from penstock.algorithms.sliding.accumulate import fold_rows
from penstock.algorithms.sliding.slide import Memory, Slide, SlideScratch, scratch
from penstock.loop.nodes import Value, Var, minimum


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
