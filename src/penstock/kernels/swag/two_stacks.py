"""Two stacks (Hammer Slide): suffixes of the older rows, one running state of the newer. For any monoid.

    rows       lo ............ mid .......... hi
               front: aggregates back: one
               of [lo, mid)      state of [mid, hi)

A *flip* makes the rows of the current frame the front: going backwards from its end, `mid`, it writes the
aggregate of [lo[g], mid) for every later frame g that starts before `mid`, one for each start and not for each
row. Until a frame starts at or after `mid`, a result is then one merge of the front at its start with the back.
So frames come in blocks, from flip to flip, without a branch a row: backwards once, forwards once.

Cost: two steps a row and two merges a frame, whatever the windows' size. Memory: a state for each row of the
longest frame, of which only those at starts are touched. States are only ever joined older with newer.
"""

from __future__ import annotations

from penstock.kernels.swag.fold import fold_rows
from penstock.kernels.swag.slide import Memory, Scratch, Slide, scratch
from penstock.loop.nodes import Value, Var


def two_stacks(slide: Slide) -> tuple[Scratch, ...]:
    """Write the loop over blocks of frames."""
    k = slide.k
    suffix = slide.memory("suffix")
    f = k.var("f", slide.begin)
    with k.while_(f < slide.end):
        first, mid = k.var("first", slide.lo[f]), k.var("mid", slide.hi[f])
        stop = _block(slide, f, mid)
        _flip(slide, suffix, f, stop, first, mid)
        _forward(slide, suffix, f, stop, first, mid)
        k.set(f, stop)
    return scratch(suffix)


def _block(slide: Slide, f: Value, mid: Value) -> Var:
    """Find the end of the frames that the rows before `mid` can serve: those that start before it, and f."""
    k = slide.k
    stop = k.var("stop", f + 1)
    inside = k.var("inside", stop < slide.end)
    with k.while_(inside):
        k.set(inside, slide.lo[stop] < mid)
        k.set(stop, stop + inside.to(stop.type))
        k.set(inside, inside & (stop < slide.end))
    return stop


def _flip(slide: Slide, suffix: Memory, f: Value, stop: Value, first: Value, mid: Value) -> None:
    """Write the aggregate of [lo[g], mid) for the frames of the block, the last first."""
    k = slide.k
    front, upto = slide.identities("front"), k.var("upto", mid)
    with k.for_(0, stop - f, "back") as distance:
        start = k.var("start", slide.lo[stop - 1 - distance])
        between = slide.identities("between")
        fold_rows(slide, between, start, k.var("count", upto - start))
        slide.assign(front, slide.merged(between, front))
        slide.store(suffix, start - first, front)
        k.set(upto, start)


def _forward(slide: Slide, suffix: Memory, f: Value, stop: Value, first: Value, mid: Value) -> None:
    """Let the newer rows enter frame by frame, and emit."""
    k = slide.k
    back, upto = slide.identities("back"), k.var("upto", mid)
    with k.for_(f, stop, "g") as g:
        hi = k.var("hi", slide.hi[g])
        fold_rows(slide, back, upto, k.var("count", hi - upto))
        k.set(upto, hi)
        front = slide.load(suffix, k.var("place", slide.lo[g] - first))
        slide.emit(g, slide.merged(front, back))
