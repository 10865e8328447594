"""Subtract-on-evict: one running state that rows enter and leave. For monoids that can `remove`.

Cost: two steps a row, whatever the windows' size. State: one.
"""

from __future__ import annotations

from penstock.kernels.swag.slide import Scratch, Slide, States
from penstock.loop.nodes import Value, Var


def subtract_on_evict(slide: Slide) -> tuple[Scratch, ...]:
    """Write the loop over frames: take out what has left, add what has come."""
    k = slide.k
    states = slide.identities("state")
    first, last = k.var("first", 0), k.var("last", 0)  # the rows that the states hold
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
    """Forget rows at once where all of them have left, and with them all that rounding has lost."""
    slide.reset(states)
    slide.k.set(first, lo)
    slide.k.set(last, lo)
