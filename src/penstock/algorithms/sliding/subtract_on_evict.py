"""Subtract-on-evict: one running state; rows are added on entry and subtracted on eviction. Monoids need `remove`.

Cost: two steps per row, independent of the windows' size. State: one.
"""

from __future__ import annotations

from penstock.algorithms.sliding.slide import Slide, SlideScratch, States
from penstock.loop.nodes import Value, Var


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
